/* Parts are made one after the other; only the last one can be open. */
#include "frontend/turn.h"

void esp_turn_init(struct esp_turn *turn, const struct esp_turn_sink *sink, void *ctx)
{
    *turn = (struct esp_turn){.sink = sink, .ctx = ctx};
}

void esp_turn_finish(struct esp_turn *turn)
{
    for (uint32_t idx = 0; idx < turn->n_parts; idx++) {
        esp_buf_finish(&turn->parts[idx]->text);
        esp_free(turn->parts[idx]);
    }
    esp_free(turn->parts);
    turn->parts = NULL;
    turn->n_parts = 0;
}

static struct esp_part *open_part(const struct esp_turn *turn)
{
    struct esp_part *last = turn->n_parts > 0 ? turn->parts[turn->n_parts - 1] : NULL;
    return last != NULL && !last->ended ? last : NULL;
}

static void end_part(struct esp_turn *turn)
{
    struct esp_part *part = open_part(turn);
    if (part != NULL) {
        part->ended = true;
        turn->sink->end(turn->ctx, part);
    }
}

static struct esp_part *begin_part(struct esp_turn *turn, enum esp_part_kind kind)
{
    end_part(turn);
    if (turn->parts == NULL) {
        turn->parts = esp_calloc(ESP_TAG_HTTP, ESP_PARTS_MAX, sizeof(struct esp_part *));
    }
    bool fine = turn->parts != NULL && turn->n_parts < ESP_PARTS_MAX;
    struct esp_part *part = fine ? esp_calloc(ESP_TAG_HTTP, 1, sizeof *part) : NULL;
    if (part == NULL) {
        turn->failed = true;
        return NULL;
    }
    part->kind = kind;
    part->index = turn->n_parts;
    part->call_index = kind == ESP_PART_CALL ? turn->n_calls++ : 0;
    esp_buf_init(&part->text, ESP_TAG_HTTP, ESP_PART_BYTES_MAX);
    turn->parts[turn->n_parts++] = part;
    turn->sink->begin(turn->ctx, part);
    return part;
}

void esp_turn_text(struct esp_turn *turn, const char *text, size_t n_bytes)
{
    if (n_bytes == 0 || turn->failed) {
        return;
    }
    struct esp_part *part = open_part(turn);
    if (part == NULL) {
        part = begin_part(turn, ESP_PART_TEXT);
    }
    if (part == NULL || !esp_buf_add(&part->text, text, n_bytes)) {
        turn->failed = true;
        return;
    }
    turn->sink->piece(turn->ctx, part, part->text.data + part->text.n - n_bytes, n_bytes);
}

void esp_turn_end(struct esp_turn *turn)
{
    end_part(turn);
}

void esp_turn_join(const struct esp_turn *turn, enum esp_part_kind kind, struct esp_buf *buf)
{
    for (uint32_t idx = 0; idx < turn->n_parts; idx++) {
        const struct esp_part *part = turn->parts[idx];
        if (part->kind == kind && part->text.n > 0) {
            esp_buf_add(buf, part->text.data, part->text.n);
        }
    }
}
