/* Entries hang in buckets; the oldest is found by looking at all, which happens only when something must go. */
#include "frontend/replay.h"

#include <pthread.h>
#include <string.h>
#include <xxhash.h>

#include "frontend/template.h"
#include "frontend/turn.h"

#define BUCKETS 1024u

struct entry {
    struct entry *next;
    struct esp_replay_key key;
    uint64_t used; /* a count of uses at the last one */
    size_t bytes;
    struct esp_replay_turn *turn;
};

struct esp_replay {
    pthread_mutex_t lock;
    size_t cap_bytes, bytes;
    uint64_t n_uses;
    struct entry *buckets[BUCKETS];
};

struct esp_replay *esp_replay_create(size_t cap_bytes)
{
    struct esp_replay *replay = esp_calloc(ESP_TAG_HTTP, 1, sizeof *replay);
    if (replay != NULL && pthread_mutex_init(&replay->lock, NULL) != 0) {
        esp_free(replay);
        return NULL;
    }
    if (replay != NULL) {
        replay->cap_bytes = cap_bytes;
    }
    return replay;
}

static void free_entry(struct entry *entry)
{
    esp_free(entry->turn);
    esp_free(entry);
}

void esp_replay_destroy(struct esp_replay *replay)
{
    if (replay == NULL) {
        return;
    }
    for (uint32_t idx = 0; idx < BUCKETS; idx++) {
        for (struct entry *entry = replay->buckets[idx], *next; entry != NULL; entry = next) {
            next = entry->next;
            free_entry(entry);
        }
    }
    pthread_mutex_destroy(&replay->lock);
    esp_free(replay);
}

/* ---- Keys --------------------------------------------------------------------------------------- */

static bool extend(struct esp_replay_key *key, struct esp_buf *buf)
{
    bool ok = esp_buf_add(buf, key, sizeof *key);
    if (ok) {
        XXH128_hash_t hash = XXH3_128bits(buf->data, buf->n);
        *key = (struct esp_replay_key){hash.low64, hash.high64};
    }
    esp_buf_finish(buf);
    return ok;
}

struct esp_replay_key esp_replay_begin(const char *salt, size_t n_bytes)
{
    XXH128_hash_t hash = XXH3_128bits(n_bytes == 0 ? "" : salt, n_bytes);
    return (struct esp_replay_key){hash.low64, hash.high64};
}

/* With its length, so that fields cannot run into each other. */
static void add_field(struct esp_buf *buf, const char *text, size_t n_bytes)
{
    while (n_bytes > 0 && strchr(" \n\t\r", text[n_bytes - 1]) != NULL) {
        n_bytes--;
    }
    while (n_bytes > 0 && strchr(" \n\t\r", text[0]) != NULL) {
        text++;
        n_bytes--;
    }
    esp_buf_add(buf, &n_bytes, sizeof n_bytes);
    esp_buf_add(buf, n_bytes == 0 ? "" : text, n_bytes);
}

static void add_value(struct esp_buf *buf, const json_t *value)
{
    size_t n = json_dumpb(value, NULL, 0, JSON_SORT_KEYS | JSON_COMPACT | JSON_ENCODE_ANY);
    char *at = esp_buf_reserve(buf, n);
    if (at != NULL) {
        buf->n += json_dumpb(value, at, n, JSON_SORT_KEYS | JSON_COMPACT | JSON_ENCODE_ANY);
    }
}

static void add_call(struct esp_buf *buf, const char *name, const char *text, size_t n_bytes)
{
    json_t *value = n_bytes == 0 ? json_object() : json_loadb(text, n_bytes, JSON_DECODE_ANY, NULL);
    add_field(buf, name, strlen(name));
    if (value != NULL) {
        add_value(buf, value);
    } else {
        add_field(buf, text, n_bytes);
    }
    json_decref(value);
}

static void add_content(struct esp_buf *buf, const json_t *content)
{
    struct esp_buf text;
    esp_buf_init(&text, ESP_TAG_HTTP, ESP_RENDER_BYTES_MAX);
    if (json_is_string(content)) {
        esp_buf_add(&text, json_string_value(content), json_string_length(content));
    }
    for (size_t idx = 0; idx < json_array_size(content); idx++) {
        const json_t *part = json_object_get(json_array_get(content, idx), "text");
        esp_buf_add(&text, json_is_string(part) ? json_string_value(part) : "", json_string_length(part));
    }
    add_field(buf, text.n == 0 ? "" : text.data, text.n);
    buf->failed = buf->failed || text.failed;
    esp_buf_finish(&text);
}

bool esp_replay_message(struct esp_replay_key *key, const json_t *message)
{
    struct esp_buf buf;
    const char *role = json_string_value(json_object_get(message, "role"));
    const json_t *calls = json_object_get(message, "tool_calls");
    esp_buf_init(&buf, ESP_TAG_HTTP, 2 * ESP_RENDER_BYTES_MAX);
    add_field(&buf, role == NULL ? "" : role, role == NULL ? 0 : strlen(role));
    add_content(&buf, json_object_get(message, "content"));
    for (size_t idx = 0; idx < json_array_size(calls); idx++) {
        const json_t *function = json_object_get(json_array_get(calls, idx), "function");
        const json_t *arguments = json_object_get(function, "arguments");
        const char *name = json_string_value(json_object_get(function, "name"));
        if (json_is_object(arguments)) {
            add_field(&buf, name == NULL ? "" : name, name == NULL ? 0 : strlen(name));
            add_value(&buf, arguments);
        } else {
            const char *text = json_string_value(arguments);
            add_call(&buf, name == NULL ? "" : name, text == NULL ? "" : text, json_string_length(arguments));
        }
    }
    return extend(key, &buf);
}

bool esp_replay_answer(struct esp_replay_key *key, const struct esp_turn *turn)
{
    struct esp_buf buf, text;
    esp_buf_init(&buf, ESP_TAG_HTTP, 2 * ESP_RENDER_BYTES_MAX);
    esp_buf_init(&text, ESP_TAG_HTTP, ESP_RENDER_BYTES_MAX);
    add_field(&buf, "assistant", 9);
    esp_turn_join(turn, ESP_PART_TEXT, &text);
    add_field(&buf, text.n == 0 ? "" : text.data, text.n);
    buf.failed = buf.failed || text.failed;
    esp_buf_finish(&text);
    for (uint32_t idx = 0; idx < turn->n_parts; idx++) {
        const struct esp_part *part = turn->parts[idx];
        if (part->kind == ESP_PART_CALL) {
            add_call(&buf, part->name, part->text.n == 0 ? "" : part->text.data, part->text.n);
        }
    }
    return extend(key, &buf);
}

/* ---- Entries ------------------------------------------------------------------------------------ */

static size_t turn_bytes(const struct esp_replay_turn *turn)
{
    return sizeof *turn + turn->n_ids * sizeof *turn->ids + turn->lead_bytes;
}

/* One block: the turn, its ids, its lead. */
static struct esp_replay_turn *copy_turn(const struct esp_replay_turn *turn)
{
    struct esp_replay_turn *copy = esp_malloc(ESP_TAG_HTTP, turn_bytes(turn));
    if (copy != NULL) {
        uint32_t *ids = (uint32_t *)(void *)(copy + 1);
        char *lead = (char *)(ids + turn->n_ids);
        memcpy(ids, turn->ids, turn->n_ids * sizeof *ids);
        memcpy(lead, turn->lead_bytes == 0 ? "" : turn->lead, turn->lead_bytes);
        *copy = *turn;
        copy->ids = ids;
        copy->lead = lead;
    }
    return copy;
}

static struct entry **find(struct esp_replay *replay, struct esp_replay_key key)
{
    struct entry **at = &replay->buckets[key.lo % BUCKETS];
    while (*at != NULL && ((*at)->key.lo != key.lo || (*at)->key.hi != key.hi)) {
        at = &(*at)->next;
    }
    return at;
}

static void drop(struct esp_replay *replay, struct entry **at)
{
    struct entry *entry = *at;
    *at = entry->next;
    replay->bytes -= entry->bytes;
    free_entry(entry);
}

static void drop_oldest(struct esp_replay *replay)
{
    struct entry **oldest = NULL;
    for (uint32_t idx = 0; idx < BUCKETS; idx++) {
        for (struct entry **at = &replay->buckets[idx]; *at != NULL; at = &(*at)->next) {
            oldest = oldest == NULL || (*at)->used < (*oldest)->used ? at : oldest;
        }
    }
    drop(replay, oldest);
}

void esp_replay_put(struct esp_replay *replay, struct esp_replay_key key, const struct esp_replay_turn *turn)
{
    struct entry *entry = esp_calloc(ESP_TAG_HTTP, 1, sizeof *entry);
    struct esp_replay_turn *copy = copy_turn(turn);
    size_t bytes = sizeof *entry + turn_bytes(turn);
    if (entry == NULL || copy == NULL || bytes > replay->cap_bytes) {
        esp_free(entry);
        esp_free(copy);
        return;
    }
    pthread_mutex_lock(&replay->lock);
    struct entry **at = find(replay, key);
    if (*at != NULL) {
        drop(replay, at);
    }
    while (replay->bytes + bytes > replay->cap_bytes) {
        drop_oldest(replay);
    }
    *entry = (struct entry){.key = key, .used = ++replay->n_uses, .bytes = bytes, .turn = copy};
    entry->next = replay->buckets[key.lo % BUCKETS];
    replay->buckets[key.lo % BUCKETS] = entry;
    replay->bytes += bytes;
    pthread_mutex_unlock(&replay->lock);
}

struct esp_replay_turn *esp_replay_get(struct esp_replay *replay, struct esp_replay_key key)
{
    pthread_mutex_lock(&replay->lock);
    struct entry *entry = *find(replay, key);
    struct esp_replay_turn *copy = NULL;
    if (entry != NULL) {
        entry->used = ++replay->n_uses;
        copy = copy_turn(entry->turn);
    }
    pthread_mutex_unlock(&replay->lock);
    return copy;
}
