/* Matchers: masks, tokens taken and taken back. See matcher.h. Thread: a matcher has one owner. */
#include "grammar/matcher.h"

#include <string.h>

#include "grammar/trie.h"
#include "grammar/vec.h"

static void store_unref(struct esp_grammar *g, struct esp_store *store)
{
    if (store == NULL) {
        return;
    }
    pthread_mutex_lock(&g->lock);
    bool last = --store->n_refs == 0;
    pthread_mutex_unlock(&g->lock);
    if (last) {
        esp_store_destroy(store);
    }
}

static struct esp_store *store_ref(struct esp_grammar *g)
{
    pthread_mutex_lock(&g->lock);
    struct esp_store *store = g->store;
    store->n_refs++;
    pthread_mutex_unlock(&g->lock);
    return store;
}

static void drop_mask(struct esp_matcher *m)
{
    if (m->mask != 0) {
        pthread_mutex_lock(&m->store->lock);
        esp_store_unpin(m->store, m->mask);
        pthread_mutex_unlock(&m->store->lock);
        m->mask = 0;
    }
}

/* Makes the grammar go on with a fresh store when the matcher's one is the current one. */
static esp_status renew_store(struct esp_matcher *m)
{
    struct esp_grammar *g = m->grammar;
    struct esp_store *fresh, *old = NULL;
    pthread_mutex_lock(&g->lock);
    bool current = g->store == m->store;
    pthread_mutex_unlock(&g->lock);
    if (!current) {
        return ESP_OK;
    }
    esp_status status = esp_store_create(&g->base, g->starts, g->trie, &fresh);
    if (status != ESP_OK) {
        return status;
    }
    pthread_mutex_lock(&g->lock);
    if (g->store == m->store) {
        old = g->store;
        g->store = fresh;
        fresh = NULL;
    }
    pthread_mutex_unlock(&g->lock);
    esp_store_destroy(fresh);
    store_unref(g, old);
    return ESP_OK;
}

/* The configurations of all tokens so far, in the matcher's store. */
static esp_status replay(struct esp_matcher *m)
{
    struct esp_store *store = m->store;
    pthread_mutex_lock(&store->lock);
    m->confs[0] = esp_conf_start(store, 0);
    for (uint32_t idx = 0; idx < m->n && store->x.failed == ESP_OK; idx++) {
        bool end = m->grammar->trie->roles[m->tokens[idx]] == ESP_ROLE_END;
        m->confs[idx + 1] = end ? m->confs[idx] : esp_conf_take(store, m->confs[idx], m->tokens[idx]);
    }
    esp_status status = store->x.failed;
    pthread_mutex_unlock(&store->lock);
    return status;
}

/* Moves the matcher to the grammar's current store, which is renewed first when it is the full one. */
static esp_status move_store(struct esp_matcher *m)
{
    drop_mask(m);
    esp_status status = renew_store(m);
    if (status == ESP_OK) {
        store_unref(m->grammar, m->store);
        m->store = store_ref(m->grammar);
        status = replay(m);
    }
    return status;
}

/* Locks the store, moved to a fresh one first when it is full or has failed. */
static esp_status enter(struct esp_matcher *m)
{
    pthread_mutex_lock(&m->store->lock);
    m->store->x.fuel = ESP_STORE_FUEL;
    if (m->store->x.failed == ESP_OK && !esp_store_full(m->store)) {
        return ESP_OK;
    }
    pthread_mutex_unlock(&m->store->lock);
    esp_status status = move_store(m);
    if (status == ESP_OK) {
        pthread_mutex_lock(&m->store->lock);
        m->store->x.fuel = ESP_STORE_FUEL;
    }
    return status;
}

esp_status esp_matcher_create(struct esp_grammar *grammar, struct esp_matcher **ret_matcher)
{
    struct esp_matcher *m = esp_calloc(ESP_TAG_GRAMMAR, 1, sizeof *m);
    if (m == NULL) {
        return ESP_ENOMEM;
    }
    m->grammar = esp_grammar_ref(grammar);
    m->store = store_ref(grammar);
    esp_status status = esp_vec_grow(&m->confs, &m->confs_cap, 1) ? replay(m) : ESP_ENOMEM;
    if (status != ESP_OK && m->confs != NULL) {
        status = move_store(m); /* the store that everyone shares had failed */
    }
    if (status != ESP_OK) {
        esp_matcher_destroy(m);
        return status;
    }
    *ret_matcher = m;
    return ESP_OK;
}

esp_status esp_matcher_fork(const struct esp_matcher *matcher, struct esp_matcher **ret_matcher)
{
    struct esp_matcher *m = esp_calloc(ESP_TAG_GRAMMAR, 1, sizeof *m);
    if (m == NULL) {
        return ESP_ENOMEM;
    }
    m->grammar = esp_grammar_ref(matcher->grammar);
    m->store = matcher->store;
    pthread_mutex_lock(&m->grammar->lock);
    m->store->n_refs++;
    pthread_mutex_unlock(&m->grammar->lock);
    if (!esp_vec_grow(&m->confs, &m->confs_cap, (uint64_t)matcher->n + 1) ||
        !esp_vec_grow(&m->tokens, &m->tokens_cap, (uint64_t)matcher->n + 1)) {
        esp_matcher_destroy(m);
        return ESP_ENOMEM;
    }
    memcpy(m->confs, matcher->confs, ((size_t)matcher->n + 1) * sizeof *m->confs);
    if (matcher->n > 0) {
        memcpy(m->tokens, matcher->tokens, (size_t)matcher->n * sizeof *m->tokens);
    }
    m->n = matcher->n;
    m->ended = matcher->ended;
    *ret_matcher = m;
    return ESP_OK;
}

void esp_matcher_destroy(struct esp_matcher *matcher)
{
    if (matcher == NULL) {
        return;
    }
    drop_mask(matcher);
    store_unref(matcher->grammar, matcher->store);
    esp_grammar_unref(matcher->grammar);
    esp_free(matcher->tokens);
    esp_free(matcher->confs);
    esp_free(matcher);
}

const uint64_t *esp_matcher_mask(struct esp_matcher *m)
{
    if (m->mask != 0) {
        return m->mask_bits;
    }
    /* A failure in a store that others filled is cured by a fresh one; a second failure is real. */
    for (int attempt = 0; attempt < 2 && m->mask == 0; attempt++) {
        if (enter(m) != ESP_OK) {
            return NULL;
        }
        uint32_t conf = m->ended ? ESP_CONF_DEAD : m->confs[m->n];
        m->mask = esp_store_mask(m->store, conf);
        m->mask_bits = m->mask == 0 ? NULL : m->store->masks[m->mask].bits;
        pthread_mutex_unlock(&m->store->lock);
    }
    return m->mask_bits;
}

bool esp_matcher_complete(const struct esp_matcher *matcher)
{
    pthread_mutex_lock(&matcher->store->lock);
    bool complete = !matcher->ended && matcher->store->confs[matcher->confs[matcher->n]].complete;
    pthread_mutex_unlock(&matcher->store->lock);
    return complete;
}

bool esp_matcher_ended(const struct esp_matcher *matcher)
{
    return matcher->ended;
}

/* Where a token leads, ESP_CONF_DEAD when it is not allowed. The store is locked. */
static uint32_t lead(const struct esp_matcher *m, uint32_t token)
{
    uint32_t conf = m->confs[m->n];
    if (m->grammar->trie->roles[token] == ESP_ROLE_END) {
        return m->store->confs[conf].complete ? conf : ESP_CONF_DEAD;
    }
    conf = esp_conf_take(m->store, conf, token);
    return esp_store_live(m->store, conf) ? conf : ESP_CONF_DEAD;
}

esp_status esp_matcher_accept(struct esp_matcher *m, uint32_t token)
{
    if (token >= m->grammar->trie->n_tokens || m->ended) {
        return ESP_EINVAL;
    }
    if (m->n >= ESP_MATCHER_TOKENS_MAX) {
        return ESP_ELIMIT;
    }
    if (!esp_vec_grow(&m->tokens, &m->tokens_cap, (uint64_t)m->n + 1) ||
        !esp_vec_grow(&m->confs, &m->confs_cap, (uint64_t)m->n + 2)) {
        return ESP_ENOMEM;
    }
    esp_status status = ESP_OK;
    for (int attempt = 0; attempt < 2; attempt++) {
        status = enter(m);
        if (status != ESP_OK) {
            return status;
        }
        uint32_t conf = lead(m, token);
        status = m->store->x.failed != ESP_OK ? m->store->x.failed : conf == ESP_CONF_DEAD ? ESP_EINVAL : ESP_OK;
        bool failed = m->store->x.failed != ESP_OK;
        pthread_mutex_unlock(&m->store->lock);
        if (status == ESP_OK) {
            drop_mask(m);
            m->tokens[m->n++] = token;
            m->confs[m->n] = conf;
            m->ended = m->grammar->trie->roles[token] == ESP_ROLE_END;
        }
        if (!failed) {
            break;
        }
    }
    return status;
}

esp_status esp_matcher_rollback(struct esp_matcher *m, uint32_t n)
{
    if (n > m->n) {
        return ESP_EINVAL;
    }
    if (n > 0) {
        drop_mask(m);
        m->n -= n;
        m->ended = false;
    }
    return ESP_OK;
}

esp_status esp_matcher_mask_oracle(struct esp_matcher *m, uint64_t *mask)
{
    const struct esp_trie *trie = m->grammar->trie;
    esp_status status = ESP_OK;
    pthread_mutex_lock(&m->store->lock); /* a full store is not left: the mask that is compared lies there */
    if (m->store->x.failed != ESP_OK) {
        pthread_mutex_unlock(&m->store->lock);
        status = enter(m);
    }
    if (status != ESP_OK) {
        return status;
    }
    m->store->x.fuel = UINT64_MAX; /* brute force takes what it takes */
    memset(mask, 0, esp_mask_words(trie->n_tokens) * sizeof *mask);
    for (uint32_t token = 0; token < trie->n_tokens && !m->ended; token++) {
        if (lead(m, token) != ESP_CONF_DEAD) {
            esp_mask_set(mask, token);
        }
    }
    status = m->store->x.failed;
    pthread_mutex_unlock(&m->store->lock);
    return status;
}
