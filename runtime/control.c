/* Questions that are answered between two steps: flush, the tree as JSON, the logits or the vector of a prompt.
 *
 * The asker waits; without an engine thread (simulator) it answers itself. Thread: the asking half is
 * any, the answering half the engine's.
 */
#include <string.h>

#include "radix/dump.h"
#include "runtime/base/map.h"
#include "runtime/base/utf8.h"
#include "runtime/engine_impl.h"

#define DUMP_BYTES_MAX ((size_t)256 << 20)

void esp_engine_ask(struct esp_engine *engine, struct esp_question *question)
{
    if (!engine->threaded) {
        esp_engine_answer(engine, question);
        return;
    }
    esp_inbox_push(&engine->inbox, &question->msg);
    esp_inbox_wait_answer(&engine->inbox, &question->msg);
}

uint32_t esp_cache_flush(esp_engine *engine)
{
    struct esp_question question = {.msg.kind = ESP_MSG_FLUSH};
    esp_engine_ask(engine, &question);
    return question.n_flushed;
}

void esp_text_free(char *text)
{
    esp_free(text);
}

esp_status esp_cache_dump(esp_engine *engine, uint32_t limit, char **ret_text, struct esp_err *err)
{
    struct esp_buf text;
    esp_buf_init(&text, ESP_TAG_ENGINE, DUMP_BYTES_MAX);
    struct esp_question question = {.msg.kind = ESP_MSG_DUMP, .limit = limit, .text = &text};
    esp_engine_ask(engine, &question);
    if (text.failed || question.status != ESP_OK) {
        esp_buf_finish(&text);
        return esp_fail(err, ESP_ENOMEM, "no memory for the text of the tree");
    }
    *ret_text = text.data;
    return ESP_OK;
}

static esp_status check_tokens(const struct esp_engine *engine, const uint32_t *tokens, uint32_t n_tokens,
                               struct esp_err *err)
{
    uint32_t n_max = engine->limits.n_ctx < engine->limits.n_pool ? engine->limits.n_ctx : engine->limits.n_pool;
    if (n_tokens == 0) {
        return esp_fail(err, ESP_EINVAL, "no tokens");
    }
    if (n_tokens > n_max) {
        return esp_fail(err, ESP_ELIMIT, "%u tokens, but the context is %u", n_tokens, n_max);
    }
    for (uint32_t i = 0; i < n_tokens; i++) {
        if (tokens[i] >= engine->model->hp.n_vocab) {
            return esp_fail(err, ESP_EINVAL, "token %u at position %u is outside the vocabulary of %u", tokens[i], i,
                            engine->model->hp.n_vocab);
        }
    }
    return ESP_OK;
}

/* The question needs tokens, hidden, visit, ctx and err. */
static esp_status ask_rows(esp_engine *engine, struct esp_question *q)
{
    esp_status status = check_tokens(engine, q->tokens, q->n_tokens, q->err);
    if (status != ESP_OK) {
        return status;
    }
    q->msg.kind = ESP_MSG_ROWS;
    q->n_row = q->hidden ? engine->model->hp.n_embd : engine->model->hp.n_vocab;
    q->pages = esp_calloc(ESP_TAG_ENGINE, esp_pages_for(q->n_tokens), sizeof(struct esp_page_id));
    q->row = esp_calloc(ESP_TAG_ENGINE, q->n_row, sizeof(float));
    if (q->pages == NULL || q->row == NULL) {
        q->status = esp_fail(q->err, ESP_ENOMEM, "no memory for %u tokens", q->n_tokens);
    } else {
        esp_engine_ask(engine, q);
    }
    esp_free(q->pages);
    esp_free(q->row);
    return q->status;
}

esp_status esp_logits(esp_engine *engine, const uint32_t *tokens, uint32_t n_tokens,
                      bool (*visit)(void *ctx, uint32_t pos, const float *logits), void *ctx, struct esp_err *err)
{
    struct esp_question question = {.tokens = tokens, .n_tokens = n_tokens, .visit = visit, .ctx = ctx, .err = err};
    return ask_rows(engine, &question);
}

struct pool {
    enum esp_pooling pooling;
    uint32_t n_embd, n_tokens;
    double *sum; /* [n_embd] */
};

/* Rows come one by one in order of position, so the sum does not depend on how they were computed. */
static bool add_row(void *ctx, uint32_t pos, const float *row)
{
    struct pool *pool = ctx;
    bool counts = pool->pooling == ESP_POOL_MEAN || pos + 1 == pool->n_tokens;
    for (uint32_t i = 0; i < pool->n_embd && counts; i++) {
        pool->sum[i] += (double)row[i];
    }
    return true;
}

esp_status esp_embed(esp_engine *engine, const uint32_t *tokens, uint32_t n_tokens, enum esp_pooling pooling,
                     float *ret_vector, struct esp_err *err)
{
    struct pool pool = {.pooling = pooling, .n_embd = engine->model->hp.n_embd, .n_tokens = n_tokens};
    struct esp_question question = {
        .tokens = tokens, .n_tokens = n_tokens, .hidden = true, .visit = add_row, .ctx = &pool, .err = err};
    pool.sum = esp_calloc(ESP_TAG_ENGINE, pool.n_embd, sizeof *pool.sum);
    if (pool.sum == NULL) {
        return esp_fail(err, ESP_ENOMEM, "no memory for %u numbers", pool.n_embd);
    }
    esp_status status = ask_rows(engine, &question);
    for (uint32_t i = 0; i < pool.n_embd && status == ESP_OK; i++) {
        ret_vector[i] = (float)(pool.sum[i] / (pooling == ESP_POOL_MEAN ? n_tokens : 1));
    }
    esp_free(pool.sum);
    return status;
}

/* Runs rows [from, from + n) and visits what came out; *ret_stop when the visitor has had enough. */
static esp_status run_rows(struct esp_engine *engine, struct esp_question *q, uint32_t from, uint32_t n, bool *ret_stop)
{
    struct esp_model *model = engine->model;
    const float *rows;
    esp_batch_fill_alone(&engine->arrays, q->tokens, q->pages, from, n);
    engine->arrays.batch.hidden = q->hidden;
    esp_status status = esp_forward_run(engine->forward, &engine->arrays.batch, &rows);
    for (uint32_t i = 0; i < n && status == ESP_OK && !*ret_stop; i++) {
        status = model->ops->download(model->dev, q->row, rows + (size_t)i * q->n_row, q->n_row * sizeof(float));
        status = status == ESP_OK ? model->ops->wait(model->dev) : status;
        *ret_stop = status == ESP_OK && !q->visit(q->ctx, from + i, q->row);
    }
    return status;
}

static void answer_rows(struct esp_engine *engine, struct esp_question *q)
{
    uint32_t n_pages = esp_pages_for(q->n_tokens);
    /* Between two steps no page is pending, so with nobody running every page can be had. */
    while (esp_tree_alloc(engine->tree, n_pages, q->pages) != ESP_OK) {
        if (!esp_sched_preempt(&engine->sched)) {
            q->status = esp_fail(q->err, ESP_EINTERNAL, "%u pages are not to be had in an idle pool", n_pages);
            return;
        }
    }
    bool stop = false;
    uint32_t n_run = engine->sched.config.n_batch_max;
    for (uint32_t from = 0; from < q->n_tokens && q->status == ESP_OK && !stop; from += n_run) {
        uint32_t left = q->n_tokens - from;
        q->status = run_rows(engine, q, from, left < n_run ? left : n_run, &stop);
    }
    if (q->status != ESP_OK) {
        esp_fail(q->err, q->status, "the device failed (%s)", esp_status_name(q->status));
    }
    esp_tree_free_private(engine->tree, q->pages, n_pages);
}

/* ---- The tree as JSON -------------------------------------------------------------------------- */

struct dump {
    const struct esp_engine *engine;
    struct esp_buf *buf;
    uint32_t n, limit;
    struct esp_map ns_pages; /* of a namespace → pages */
    bool truncated;
};

/* Bytes as the inside of a JSON string; what is not UTF-8 becomes U+FFFD. */
static void add_escaped(struct esp_buf *buf, const char *text, size_t n_bytes)
{
    for (size_t at = 0; at < n_bytes;) {
        uint32_t cp;
        int n = esp_utf8_decode(text + at, n_bytes - at, &cp);
        if (n <= 0) {
            esp_buf_str(buf, "\xef\xbf\xbd");
            at++;
            continue;
        }
        if (cp == '"' || cp == '\\') {
            esp_buf_printf(buf, "\\%c", (char)cp);
        } else if (cp < 0x20) {
            esp_buf_printf(buf, "\\u%04x", cp);
        } else {
            esp_buf_add(buf, text + at, (size_t)n);
        }
        at += (size_t)n;
    }
}

static void add_text(const struct dump *dump, const uint32_t *tokens)
{
    char text[4096];
    int64_t n_bytes = 0;
    if (dump->engine->vocab != NULL) {
        n_bytes = esp_detokenize(dump->engine->vocab, tokens, ESP_TREE_PAGE_TOKENS, true, text, sizeof text);
    }
    n_bytes = n_bytes > (int64_t)sizeof text ? (int64_t)sizeof text : n_bytes;
    esp_buf_str(dump->buf, ",\"text\":\"");
    add_escaped(dump->buf, text, n_bytes > 0 ? (size_t)n_bytes : 0);
    esp_buf_char(dump->buf, '"');
}

static bool dump_node(void *ctx, const struct esp_node_view *node)
{
    struct dump *dump = ctx;
    struct esp_buf *buf = dump->buf;
    uint32_t n_pages = esp_map_get(&dump->ns_pages, node->ns.v);
    if (esp_map_put(&dump->ns_pages, node->ns.v, n_pages == ESP_MAP_NONE ? 1 : n_pages + 1) != ESP_OK) {
        buf->failed = true;
        return false;
    }
    if (dump->n == dump->limit) {
        dump->truncated = true;
        return true; /* the namespaces are counted to the end */
    }
    esp_buf_printf(buf, "%s{\"id\":%u,\"parent\":", dump->n++ == 0 ? "" : ",", node->id.v);
    if (node->parent.v == UINT32_MAX) {
        esp_buf_str(buf, "null,\"tokens\":[");
    } else {
        esp_buf_printf(buf, "%u,\"tokens\":[", node->parent.v);
    }
    for (int i = 0; i < ESP_TREE_PAGE_TOKENS; i++) {
        esp_buf_printf(buf, "%s%u", i == 0 ? "" : ",", node->tokens[i]);
    }
    esp_buf_char(buf, ']');
    add_text(dump, node->tokens);
    esp_buf_printf(buf, ",\"namespace\":%u,\"page\":%u,\"depth\":%u,\"refs\":%u", node->ns.v, node->page.v, node->depth,
                   node->refs);
    esp_buf_printf(buf, ",\"class\":\"%s\",\"age_s\":%.3f,\"state\":\"%s\"}", esp_evict_class_name(node->class),
                   (double)node->age_ns * 1e-9, esp_page_state_name(node->state));
    return !buf->failed;
}

static void answer_dump(struct esp_engine *engine, struct esp_question *q)
{
    struct dump dump = {.engine = engine, .buf = q->text, .limit = q->limit};
    esp_map_init(&dump.ns_pages, ESP_TAG_ENGINE);
    struct esp_tree_stats stats;
    esp_tree_get_stats(engine->tree, &stats);
    esp_buf_str(q->text, "{\"pages\":{");
    for (int i = 0; i < ESP_PAGE_STATES; i++) {
        esp_buf_printf(q->text, "%s\"%s\":%u", i == 0 ? "" : ",", esp_page_state_name((enum esp_page_state)i),
                       stats.pages[i]);
    }
    esp_buf_str(q->text, "},\"nodes\":[");
    esp_tree_visit(engine->tree, dump_node, &dump);
    esp_buf_str(q->text, "],\"namespaces\":[");
    bool first = true;
    for (size_t i = 0; i < dump.ns_pages.room; i++) {
        if (dump.ns_pages.values[i] != ESP_MAP_NONE) {
            esp_buf_printf(q->text, "%s{\"id\":%llu,\"pages\":%u}", first ? "" : ",",
                           (unsigned long long)dump.ns_pages.keys[i], dump.ns_pages.values[i]);
            first = false;
        }
    }
    esp_buf_printf(q->text, "],\"truncated\":%s}", dump.truncated ? "true" : "false");
    esp_map_finish(&dump.ns_pages);
}

void esp_engine_answer(struct esp_engine *engine, struct esp_question *question)
{
    switch (question->msg.kind) {
    case ESP_MSG_FLUSH:
        question->n_flushed = esp_tree_flush(engine->tree);
        break;
    case ESP_MSG_DUMP:
        answer_dump(engine, question);
        break;
    case ESP_MSG_ROWS:
        answer_rows(engine, question);
        break;
    case ESP_MSG_EXPLAIN:
        esp_engine_explain(engine, question);
        break;
    default:
        question->status = ESP_EINTERNAL;
        break;
    }
    esp_engine_publish_stats(engine);
    esp_inbox_answer(&engine->inbox, &question->msg);
}
