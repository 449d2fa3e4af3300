/* See lease.h. Namespaces without nodes may be recycled by the tree, so the name is looked up again
 * whenever the sequence holds no node that keeps it alive. */
#include "runtime/lease.h"

#include <assert.h>

static bool shares(const struct esp_lease_ctx *ctx, struct esp_seq *seq)
{
    struct esp_job *job = seq->job;
    if (ctx->off || job->no_share) {
        return false;
    }
    if (seq->n_node == 0) {
        /* Absent and empty are not the same. */
        char given[2] = {job->salt != NULL, job->key != NULL};
        struct esp_field fields[] = {{ctx->model_id, ctx->model_id_bytes},
                                     {given, sizeof given},
                                     {job->salt, job->salt_bytes},
                                     {job->key, job->key_bytes}};
        if (esp_tree_namespace(ctx->tree, fields, sizeof fields / sizeof fields[0], &job->ns, NULL) != ESP_OK) {
            job->no_share = true;
            return false;
        }
    }
    return true;
}

static struct esp_node_id ancestor(const struct esp_tree *tree, struct esp_node_id node, uint32_t n_up)
{
    for (; n_up > 0; n_up--) {
        node = esp_tree_node_parent(tree, node);
    }
    return node;
}

bool esp_lease_adopt(const struct esp_lease_ctx *ctx, struct esp_seq *seq)
{
    if (!shares(ctx, seq)) {
        return false;
    }
    struct esp_match match;
    esp_tree_match_from(ctx->tree, seq->job->ns, seq->node, seq->tokens, seq->n_tokens - 1, &match);
    if (match.n_cached > seq->n_node) {
        uint32_t n_stale = (seq->n_pages < match.n_cached ? seq->n_pages : match.n_cached) - seq->n_node;
        esp_tree_free_private(ctx->tree, seq->pages + seq->n_node, n_stale);
        struct esp_node_id node = ancestor(ctx->tree, match.last, match.n_pages - match.n_cached);
        esp_tree_lease_down(ctx->tree, seq->node, node, seq->pages);
        seq->node = node;
        seq->n_node = match.n_cached;
        seq->n_pages = seq->n_pages < match.n_cached ? match.n_cached : seq->n_pages;
        if (seq->n_computed < match.n_cached * ESP_TREE_PAGE_TOKENS) {
            seq->n_computed = match.n_cached * ESP_TREE_PAGE_TOKENS;
        }
    }
    return match.n_pages > seq->n_node;
}

void esp_lease_peek(const struct esp_lease_ctx *ctx, struct esp_seq *seq, struct esp_lease_view *ret_view)
{
    *ret_view = (struct esp_lease_view){.class = ESP_CLASS_NORMAL};
    if (!shares(ctx, seq)) {
        return;
    }
    struct esp_match match;
    esp_tree_match(ctx->tree, seq->job->ns, seq->tokens, seq->n_tokens - 1, &match);
    if (match.n_cached > 0) {
        struct esp_node_id node = ancestor(ctx->tree, match.last, match.n_pages - match.n_cached);
        ret_view->n_tokens = match.n_cached * ESP_TREE_PAGE_TOKENS;
        ret_view->n_unreferenced = esp_tree_unreferenced(ctx->tree, node, &ret_view->class);
    }
}

void esp_lease_explain(const struct esp_lease_ctx *ctx, struct esp_seq *seq, uint32_t n_spaces_max,
                       struct esp_tree_why *ret_why)
{
    uint32_t n_max = seq->n_tokens - 1;
    if (shares(ctx, seq)) {
        esp_tree_explain(ctx->tree, seq->job->ns, seq->tokens, n_max, n_spaces_max, ret_why);
    } else {
        *ret_why = (struct esp_tree_why){.n_wanted = n_max / ESP_TREE_PAGE_TOKENS * ESP_TREE_PAGE_TOKENS,
                                         .have = UINT32_MAX};
    }
}

uint32_t esp_lease_tail(const struct esp_lease_ctx *ctx, const struct esp_seq *seq, struct esp_node_id *ret_src)
{
    if (ctx->off || seq->job->no_share || seq->n_pages == seq->n_node) {
        return 0;
    }
    struct esp_match match;
    esp_tree_match_from(ctx->tree, seq->job->ns, seq->node, seq->tokens, seq->n_tokens - 1, &match);
    uint32_t n_tokens = seq->n_node * ESP_TREE_PAGE_TOKENS + match.n_copy_tokens;
    if (match.n_pages != seq->n_node || match.n_copy_tokens == 0 || n_tokens <= seq->n_computed) {
        return 0;
    }
    struct esp_node_id src = esp_tree_page_node(ctx->tree, match.copy_page);
    esp_tree_lease(ctx->tree, src, NULL);
    *ret_src = src;
    return n_tokens - seq->n_computed;
}

esp_status esp_lease_reserve(const struct esp_lease_ctx *ctx, struct esp_seq *seq, uint32_t n_pages)
{
    if (n_pages <= seq->n_pages) {
        return ESP_OK;
    }
    esp_status status = esp_tree_alloc(ctx->tree, n_pages - seq->n_pages, seq->pages + seq->n_pages);
    if (status == ESP_OK) {
        seq->n_pages = n_pages;
    }
    return status;
}

/* The page at n_node enters the tree, or an equal one that is already there takes its place. */
static bool enter_one(const struct esp_lease_ctx *ctx, struct esp_seq *seq, enum esp_page_state state)
{
    if (!shares(ctx, seq)) {
        return false;
    }
    struct esp_page_id own = seq->pages[seq->n_node];
    struct esp_node_id node;
    bool existed;
    esp_status status = esp_tree_insert(ctx->tree, seq->job->ns, seq->n_node == 0 ? ESP_NODE_NONE : seq->node,
                                        seq->tokens + (size_t)seq->n_node * ESP_TREE_PAGE_TOKENS, own, state, &node,
                                        &existed);
    if (status != ESP_OK) {
        return false;
    }
    if (existed) {
        /* Pages are announced only where a match just found nothing, and entered when nothing is pending. */
        assert(state == ESP_PAGE_CACHED && esp_tree_node_state(ctx->tree, node) == ESP_PAGE_CACHED);
        seq->pages[seq->n_node] = esp_tree_node_page(ctx->tree, node);
        esp_tree_free_private(ctx->tree, &own, 1);
    }
    seq->node = node;
    seq->n_node++;
    return !existed;
}

uint32_t esp_lease_announce(const struct esp_lease_ctx *ctx, struct esp_seq *seq, uint32_t n_tokens)
{
    /* A page that ends with the last known token was not looked for (one token is always computed), so an
     * equal one may exist; it enters after the step. */
    uint32_t n_full = (n_tokens < seq->n_tokens ? n_tokens : seq->n_tokens - 1) / ESP_TREE_PAGE_TOKENS;
    uint32_t n = 0;
    while (seq->n_node < n_full && enter_one(ctx, seq, ESP_PAGE_PENDING)) {
        n++;
    }
    return n;
}

void esp_lease_publish(const struct esp_lease_ctx *ctx, struct esp_seq *seq, uint32_t n_announced)
{
    for (uint32_t i = seq->n_node - n_announced; i < seq->n_node; i++) {
        esp_tree_publish(ctx->tree, esp_tree_page_node(ctx->tree, seq->pages[i]));
    }
}

void esp_lease_enter(const struct esp_lease_ctx *ctx, struct esp_seq *seq)
{
    uint32_t n_full = seq->n_computed / ESP_TREE_PAGE_TOKENS;
    uint32_t before = UINT32_MAX;
    while (seq->n_node < n_full && seq->n_node != before) {
        before = seq->n_node;
        enter_one(ctx, seq, ESP_PAGE_CACHED);
    }
}

void esp_lease_wants_pins(const struct esp_lease_ctx *ctx, struct esp_seq *seq)
{
    struct esp_job *job = seq->job;
    bool shares_now = job->n_pins > 0 && shares(ctx, seq);
    uint32_t n_done = 0; /* pages that pins before this one reserve */
    for (uint32_t i = 0; i < job->n_pins; i++) {
        struct esp_job_pin *pin = &job->pins[i];
        uint32_t n = shares_now ? esp_tree_unpinned(ctx->tree, job->ns, seq->tokens, pin->n_pages) : 0;
        n = n > n_done ? n - n_done : 0;
        pin->open = shares_now && pin->n_pages > 0 && esp_tree_pin_reserve(ctx->tree, n);
        pin->n_reserved = pin->open ? n : 0;
        n_done += pin->n_reserved;
    }
}

void esp_lease_pin(const struct esp_lease_ctx *ctx, struct esp_seq *seq)
{
    struct esp_job *job = seq->job;
    for (uint32_t i = 0; i < job->n_pins; i++) {
        struct esp_job_pin *pin = &job->pins[i];
        if (pin->open && pin->n_pages <= seq->n_node) {
            struct esp_node_id node = esp_tree_page_node(ctx->tree, seq->pages[pin->n_pages - 1]);
            int64_t n_new = esp_tree_pin(ctx->tree, node, pin->ttl_ns, pin->n_reserved);
            if (n_new >= 0 && ctx->store != NULL) {
                esp_keep_add(ctx->store, node, ESP_CLASS_PINNED);
            }
            job->n_written += n_new > 0 ? (uint32_t)n_new * ESP_TREE_PAGE_TOKENS : 0;
            job->n_refused += n_new < 0 ? pin->n_pages * ESP_TREE_PAGE_TOKENS : 0;
            pin->open = false;
        }
    }
}

void esp_lease_forget_pins(const struct esp_lease_ctx *ctx, struct esp_job *job)
{
    for (uint32_t i = 0; i < job->n_pins; i++) {
        if (job->pins[i].open) {
            esp_tree_pin_return(ctx->tree, job->pins[i].n_reserved);
            job->pins[i].open = false;
        }
    }
}

static void keep(const struct esp_lease_ctx *ctx, struct esp_node_id node, bool comes_back)
{
    if (ctx->store != NULL) {
        esp_keep_add(ctx->store, node, comes_back ? ESP_CLASS_RETURN : ESP_CLASS_NORMAL);
    }
}

static void end_turn(const struct esp_lease_ctx *ctx, struct esp_seq *seq, bool comes_back)
{
    const struct esp_job *job = seq->job;
    uint32_t n_prompt = seq->n_prompt / ESP_TREE_PAGE_TOKENS;
    n_prompt = n_prompt < seq->n_node ? n_prompt : seq->n_node;
    seq->turn = (struct esp_tree_turn){
        .node = seq->node,
        .turn = n_prompt == 0 ? ESP_NODE_NONE : esp_tree_page_node(ctx->tree, seq->pages[n_prompt - 1]),
        .session = job->session,
        .n_head = job->n_head,
        .comes_back = comes_back,
    };
    if (seq->turn.session == ESP_TREE_SESSION_NONE) {
        seq->turn.session = esp_tree_session(ctx->tree, seq->node);
    }
    keep(ctx, esp_tree_end_turn(ctx->tree, &seq->turn), comes_back);
}

void esp_lease_drop(const struct esp_lease_ctx *ctx, struct esp_seq *seq, enum esp_evict_class class)
{
    if (seq->n_pages > seq->n_node) {
        esp_tree_free_private(ctx->tree, seq->pages + seq->n_node, seq->n_pages - seq->n_node);
    }
    esp_keep_forget(ctx->store, seq);
    seq->turn.node = ESP_NODE_NONE;
    if (seq->n_node > 0 && class == ESP_CLASS_NORMAL) {
        esp_tree_release(ctx->tree, seq->node, ESP_CLASS_NORMAL);
    } else if (seq->n_node > 0) {
        end_turn(ctx, seq, class == ESP_CLASS_RETURN);
    }
    seq->n_pages = 0;
    seq->n_node = 0;
    seq->node = ESP_NODE_NONE;
    seq->n_computed = 0;
}

void esp_lease_correct(const struct esp_lease_ctx *ctx, struct esp_tree_turn *turn, bool comes_back)
{
    if (turn->comes_back == comes_back || !esp_tree_node_alive(ctx->tree, turn->node)) {
        return;
    }
    turn->comes_back = comes_back;
    turn->turn = esp_tree_node_alive(ctx->tree, turn->turn) ? turn->turn : ESP_NODE_NONE;
    esp_tree_lease(ctx->tree, turn->node, NULL);
    keep(ctx, esp_tree_end_turn(ctx->tree, turn), comes_back);
}
