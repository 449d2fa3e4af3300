/* Grammar options from JSON, and the cache of compiled grammars by content.
 *
 *   newest ◄─► … ◄─► oldest     entries in order of last use; key = kind, options and source text
 *
 * An entry enters the list before its grammar is compiled, so that equal requests find it and wait. It lives while
 * the list or a waiter holds it. Over the cap the oldest finished entries leave; a grammar's size grows as its
 * lazy parts are built, so sizes are summed anew after each compile. Failures are not kept.
 * Thread: any; one lock, never held while compiling.
 */
#include <jansson.h>
#include <pthread.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/base/clock.h"
#include "runtime/base/json.h"
#include "runtime/histogram.h"
#include "runtime/vocab.h"

struct entry {
    struct entry *newer, *older;
    uint64_t hash;
    enum esp_grammar_kind kind;
    struct esp_grammar_options options;
    char *text;
    size_t n_bytes;
    bool done, listed;
    unsigned n_holders; /* callers inside get */
    esp_status status;
    struct esp_err err;
    struct esp_grammar *grammar; /* NULL while compiling or failed */
};

struct esp_grammar_cache {
    pthread_mutex_t lock;
    pthread_cond_t finished;
    struct entry *newest, *oldest;
    size_t n, bytes_max;
    uint64_t n_compiled, n_hits;
    struct esp_histogram compile;
};

/* One option that chooses between texts: the index of the value, 0 when absent. */
static esp_status read_choice(const json_t *obj, const char *name, const char *const *values, size_t n, size_t *ret_idx,
                              struct esp_err *err)
{
    const char *text;
    esp_status status = esp_json_string(obj, name, &text, err);
    size_t idx = 0;
    while (status == ESP_OK && text != NULL && idx < n && strcmp(values[idx], text) != 0) {
        idx++;
    }
    if (status == ESP_OK && idx == n) {
        status = esp_fail(err, ESP_EINVAL, "option \"%s\": \"%.64s\" is none of its values", name, text);
    }
    if (status != ESP_OK) {
        esp_err_keyword(err, name);
        return status;
    }
    *ret_idx = idx;
    return ESP_OK;
}

static esp_status read_bool(const json_t *obj, const char *name, bool *ret, struct esp_err *err)
{
    esp_status status = esp_json_bool(obj, name, false, ret, err);
    if (status != ESP_OK) {
        esp_err_keyword(err, name);
    }
    return status;
}

static esp_status read_options(json_t *obj, struct esp_grammar_options *ret_options, struct esp_err *err)
{
    static const char *const names[] = {"order", "whitespace", "escapes", "formats", "lenient", "mask_times"};
    static const char *const orders[] = {"declared", "any"}, *const spaces[] = {"compact", "line", "pretty"};
    static const char *const escapes[] = {"short", "any"}, *const formats[] = {"assert", "annotate"};
    const char *key;
    json_t *value;
    json_object_foreach(obj, key, value) {
        size_t idx = 0;
        while (idx < sizeof names / sizeof names[0] && strcmp(names[idx], key) != 0) {
            idx++;
        }
        if (idx == sizeof names / sizeof names[0]) {
            esp_fail(err, ESP_EINVAL, "unknown option \"%.64s\"", key);
            esp_err_keyword(err, key);
            return ESP_EINVAL;
        }
    }
    struct esp_grammar_options options = {0};
    size_t order = 0, space = 0, escape = 0, format = 0;
    bool mask_times; /* concerns the command that measures, not the grammar */
    esp_status status = read_choice(obj, "order", orders, 2, &order, err);
    status = status != ESP_OK ? status : read_choice(obj, "whitespace", spaces, 3, &space, err);
    status = status != ESP_OK ? status : read_choice(obj, "escapes", escapes, 2, &escape, err);
    status = status != ESP_OK ? status : read_choice(obj, "formats", formats, 2, &format, err);
    status = status != ESP_OK ? status : read_bool(obj, "lenient", &options.lenient, err);
    status = status != ESP_OK ? status : read_bool(obj, "mask_times", &mask_times, err);
    if (status != ESP_OK) {
        return status;
    }
    options.order_any = order == 1;
    options.whitespace = (enum esp_grammar_whitespace)space;
    options.escapes_any = escape == 1;
    options.formats_annotate = format == 1;
    *ret_options = options;
    return ESP_OK;
}

esp_status esp_grammar_options_parse(const char *text, struct esp_grammar_options *ret_options, struct esp_err *err)
{
    if (text == NULL || text[0] == '\0') {
        *ret_options = (struct esp_grammar_options){0};
        return ESP_OK;
    }
    json_t *obj = esp_json_parse(text, strlen(text), err);
    if (obj == NULL) {
        return ESP_EINVAL;
    }
    esp_status status = json_is_object(obj) ? read_options(obj, ret_options, err)
                                            : esp_fail(err, ESP_EINVAL, "the options must be a JSON object");
    json_decref(obj);
    return status;
}

esp_status esp_grammar_cache_create(size_t bytes_max, struct esp_grammar_cache **ret_cache)
{
    struct esp_grammar_cache *cache = esp_calloc(ESP_TAG_GRAMMAR, 1, sizeof *cache);
    if (cache == NULL) {
        return ESP_ENOMEM;
    }
    if (pthread_mutex_init(&cache->lock, NULL) != 0) {
        esp_free(cache);
        return ESP_ENOMEM;
    }
    if (pthread_cond_init(&cache->finished, NULL) != 0) {
        pthread_mutex_destroy(&cache->lock);
        esp_free(cache);
        return ESP_ENOMEM;
    }
    cache->bytes_max = bytes_max;
    esp_histogram_init(&cache->compile, 1e-5);
    *ret_cache = cache;
    return ESP_OK;
}

static void free_entry(struct entry *entry)
{
    esp_grammar_unref(entry->grammar);
    esp_free(entry->text);
    esp_free(entry);
}

static void unlink_entry(struct esp_grammar_cache *cache, struct entry *entry)
{
    *(entry->newer == NULL ? &cache->newest : &entry->newer->older) = entry->older;
    *(entry->older == NULL ? &cache->oldest : &entry->older->newer) = entry->newer;
    entry->newer = entry->older = NULL;
    entry->listed = false;
    cache->n--;
}

static void link_newest(struct esp_grammar_cache *cache, struct entry *entry)
{
    entry->older = cache->newest;
    *(cache->newest == NULL ? &cache->oldest : &cache->newest->newer) = entry;
    cache->newest = entry;
    entry->listed = true;
    cache->n++;
}

void esp_grammar_cache_destroy(struct esp_grammar_cache *cache)
{
    if (cache == NULL) {
        return;
    }
    while (cache->newest != NULL) {
        struct entry *entry = cache->newest;
        unlink_entry(cache, entry);
        free_entry(entry);
    }
    pthread_cond_destroy(&cache->finished);
    pthread_mutex_destroy(&cache->lock);
    esp_free(cache);
}

static bool same_options(const struct esp_grammar_options *a, const struct esp_grammar_options *b)
{
    return a->order_any == b->order_any && a->whitespace == b->whitespace && a->escapes_any == b->escapes_any &&
           a->formats_annotate == b->formats_annotate && a->lenient == b->lenient && a->fuel == b->fuel;
}

static struct entry *find_entry(const struct esp_grammar_cache *cache, const struct esp_grammar_spec *spec,
                                uint64_t hash)
{
    for (struct entry *entry = cache->newest; entry != NULL; entry = entry->older) {
        if (entry->hash == hash && entry->kind == spec->kind && entry->n_bytes == spec->n_bytes &&
            same_options(&entry->options, &spec->options) && memcmp(entry->text, spec->text, spec->n_bytes) == 0) {
            return entry;
        }
    }
    return NULL;
}

static size_t kept_bytes(const struct esp_grammar_cache *cache)
{
    size_t n_bytes = 0;
    for (const struct entry *entry = cache->newest; entry != NULL; entry = entry->older) {
        n_bytes += entry->n_bytes + sizeof *entry;
        n_bytes += entry->grammar == NULL ? 0 : esp_grammar_bytes(entry->grammar);
    }
    return n_bytes;
}

/* Drops the oldest finished entries until the rest fits. An entry in use leaves the list and lives on. */
static void evict(struct esp_grammar_cache *cache)
{
    size_t n_bytes = kept_bytes(cache);
    struct entry *entry = cache->oldest;
    while (entry != NULL && (n_bytes > cache->bytes_max || cache->n > ESP_GRAMMAR_CACHE_N_MAX)) {
        struct entry *newer = entry->newer;
        if (entry->done) {
            n_bytes -= entry->n_bytes + sizeof *entry + esp_grammar_bytes(entry->grammar);
            unlink_entry(cache, entry);
            if (entry->n_holders == 0) {
                free_entry(entry);
            }
        }
        entry = newer;
    }
}

static struct entry *new_entry(const struct esp_grammar_spec *spec, uint64_t hash)
{
    struct entry *entry = esp_calloc(ESP_TAG_GRAMMAR, 1, sizeof *entry);
    char *text = esp_strndup(ESP_TAG_GRAMMAR, spec->text, spec->n_bytes);
    if (entry == NULL || text == NULL) {
        esp_free(entry);
        esp_free(text);
        return NULL;
    }
    entry->text = text;
    entry->n_bytes = spec->n_bytes;
    entry->kind = spec->kind;
    entry->options = spec->options;
    entry->hash = hash;
    return entry;
}

/* Called with the lock held and gives it back for the time of the compile. */
static void compile_entry(struct esp_grammar_cache *cache, const struct esp_trie *trie, struct entry *entry)
{
    struct esp_grammar_spec spec = {entry->kind, entry->text, entry->n_bytes, entry->options};
    cache->n_compiled++;
    pthread_mutex_unlock(&cache->lock);
    struct esp_grammar *grammar = NULL;
    struct esp_err err = {0};
    struct esp_clock clock = esp_clock_monotonic();
    int64_t from_ns = esp_clock_now(&clock);
    esp_status status = esp_grammar_compile(trie, &spec, &grammar, &err);
    int64_t took_ns = esp_clock_now(&clock) - from_ns;
    pthread_mutex_lock(&cache->lock);
    esp_histogram_add(&cache->compile, took_ns);
    entry->status = status;
    entry->err = err;
    entry->grammar = status == ESP_OK ? grammar : NULL;
    entry->done = true;
    if (status != ESP_OK) {
        unlink_entry(cache, entry);
    } else {
        evict(cache);
    }
    pthread_cond_broadcast(&cache->finished);
}

esp_status esp_grammar_cache_get(struct esp_grammar_cache *cache, const struct esp_trie *trie,
                                 const struct esp_grammar_spec *spec, struct esp_grammar **ret_grammar,
                                 struct esp_err *err)
{
    if (spec->n_bytes > ESP_GRAMMAR_TEXT_BYTES_MAX) {
        return esp_fail(err, ESP_ELIMIT, "a grammar of %zu bytes; at most %u are taken", spec->n_bytes,
                        (unsigned)ESP_GRAMMAR_TEXT_BYTES_MAX);
    }
    uint64_t hash = XXH3_64bits(spec->text, spec->n_bytes);
    pthread_mutex_lock(&cache->lock);
    struct entry *entry = find_entry(cache, spec, hash);
    bool mine = entry == NULL;
    if (mine) {
        entry = new_entry(spec, hash);
        if (entry == NULL) {
            pthread_mutex_unlock(&cache->lock);
            return esp_fail(err, ESP_ENOMEM, "out of memory for a grammar");
        }
    } else {
        cache->n_hits++;
        unlink_entry(cache, entry);
    }
    link_newest(cache, entry);
    entry->n_holders++;
    if (mine) {
        compile_entry(cache, trie, entry);
    }
    while (!entry->done) {
        pthread_cond_wait(&cache->finished, &cache->lock);
    }
    esp_status status = entry->status;
    if (status == ESP_OK) {
        *ret_grammar = esp_grammar_ref(entry->grammar);
    } else if (err != NULL) {
        *err = entry->err;
    }
    entry->n_holders--;
    bool last = entry->n_holders == 0 && !entry->listed;
    pthread_mutex_unlock(&cache->lock);
    if (last) {
        free_entry(entry);
    }
    return status;
}

struct esp_grammar_cache_stats esp_grammar_cache_stats(struct esp_grammar_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    struct esp_grammar_cache_stats stats = {cache->n_compiled, cache->n_hits, cache->n, kept_bytes(cache),
                                            cache->compile};
    pthread_mutex_unlock(&cache->lock);
    return stats;
}
