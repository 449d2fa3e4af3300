/* Builds the list of changed logits: history is sorted and counted, biases are merged in.
 *
 * Heap sort, because it needs no memory and has no bad case. Thread: any.
 */
#include "kernels/cpu/sample_change.h"

#include <assert.h>
#include <string.h>

static void sift_down(uint32_t *ids, uint32_t at, uint32_t n)
{
    for (uint32_t child = 2 * at + 1; child < n; at = child, child = 2 * at + 1) {
        child += child + 1 < n && ids[child + 1] > ids[child];
        if (ids[at] >= ids[child]) {
            return;
        }
        uint32_t id = ids[at];
        ids[at] = ids[child];
        ids[child] = id;
    }
}

static void sort_ids(uint32_t *ids, uint32_t n)
{
    for (uint32_t at = n / 2; at-- > 0;) {
        sift_down(ids, at, n);
    }
    for (uint32_t end = n; end-- > 1;) {
        uint32_t id = ids[0];
        ids[0] = ids[end];
        ids[end] = id;
        sift_down(ids, 0, end);
    }
}

static uint32_t add_history(const struct esp_sample_row *row, uint32_t n_vocab, const struct esp_sample_scratch *s)
{
    uint32_t n = 0, n_changed = 0;
    for (uint32_t i = 0; i < row->n_history; i++) {
        if (row->history[i] < n_vocab) {
            s->ids[n++] = row->history[i];
        }
    }
    sort_ids(s->ids, n);
    for (uint32_t i = 0, next; i < n; i = next) {
        uint32_t id = s->ids[i];
        for (next = i + 1; next < n && s->ids[next] == id; next++) {
        }
        float logit = row->logits[id];
        logit = logit > 0 ? logit / row->repetition_penalty : logit * row->repetition_penalty;
        logit = logit - row->presence_penalty;
        logit = logit - row->frequency_penalty * (float)(next - i);
        s->ids[n_changed] = id;
        s->values[n_changed++] = logit;
    }
    return n_changed;
}

/* The place of id in the ascending list: where it is or where it belongs. */
static uint32_t find_place(const uint32_t *ids, uint32_t n, uint32_t id)
{
    uint32_t lo = 0;
    while (n > 0) {
        uint32_t half = n / 2;
        if (ids[lo + half] < id) {
            lo += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return lo;
}

uint32_t esp_sample_changes(const struct esp_sample_row *row, uint32_t n_vocab, const struct esp_sample_scratch *s)
{
    assert((uint64_t)row->n_history + row->n_bias <= s->cap);
    uint32_t n = 0;
    if (row->repetition_penalty != 1 || row->presence_penalty != 0 || row->frequency_penalty != 0) {
        n = add_history(row, n_vocab, s);
    }
    for (uint32_t i = 0; i < row->n_bias; i++) {
        uint32_t id = row->bias_ids[i];
        if (id >= n_vocab) {
            continue;
        }
        uint32_t at = find_place(s->ids, n, id);
        if (at == n || s->ids[at] != id) {
            memmove(s->ids + at + 1, s->ids + at, (n - at) * sizeof *s->ids);
            memmove(s->values + at + 1, s->values + at, (n - at) * sizeof *s->values);
            s->ids[at] = id;
            s->values[at] = row->logits[id];
            n++;
        }
        s->values[at] = s->values[at] + row->bias[i];
    }
    return n;
}
