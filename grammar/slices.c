/* Making and keeping slices. See slices.h.
 *
 * Each token is described once: the set of its ASCII bytes, its length in characters, and whether it is
 * whole UTF-8. A class is then one pass over the descriptions.
 */
#include "grammar/slices.h"

#include <pthread.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/utf8.h"

struct about {
    uint64_t ascii[2];
    uint32_t token;
    uint16_t n_chars;
    uint8_t high, whole; /* has bytes above 0x7F; is whole characters */
};

struct slice {
    struct esp_class class;
    uint64_t used_at; /* clock of uses, 0 = empty */
    uint64_t *bits;
    uint32_t *ids; /* shorter tokens first */
    uint32_t *at;  /* [n_chars_max + 1]: tokens with at most so many characters */
    uint32_t n_ids;
};

struct esp_slices {
    pthread_mutex_t lock;
    struct about *abouts; /* [n] */
    uint32_t *found;      /* [n], scratch: places of tokens that belong to a class */
    uint32_t n, n_chars_max;
    uint64_t clock;
    struct slice slices[ESP_SLICES_MAX];
};

static struct about describe(const uint8_t *bytes, uint32_t n, uint32_t token)
{
    struct about about = {.token = token, .whole = true};
    for (uint32_t at = 0; at < n;) {
        uint32_t cp;
        int used = bytes[at] < 0x80 ? 1 : esp_utf8_decode((const char *)bytes + at, n - at, &cp);
        if (bytes[at] < 0x80) {
            about.ascii[bytes[at] >> 6] |= (uint64_t)1 << (bytes[at] & 63);
        } else {
            about.high = true;
        }
        about.whole = about.whole && used > 0;
        at += used > 0 ? (uint32_t)used : 1;
        about.n_chars++;
    }
    return about;
}

esp_status esp_slices_create(const struct esp_trie *trie, struct esp_slices **ret_slices)
{
    struct esp_slices *s = esp_calloc(ESP_TAG_GRAMMAR, 1, sizeof *s);
    if (s == NULL) {
        return ESP_ENOMEM;
    }
    pthread_mutex_init(&s->lock, NULL);
    s->abouts = esp_calloc(ESP_TAG_GRAMMAR, (size_t)trie->n_tokens + 1, sizeof *s->abouts);
    s->found = esp_calloc(ESP_TAG_GRAMMAR, (size_t)trie->n_tokens + 1, sizeof *s->found);
    if (s->abouts == NULL || s->found == NULL) {
        esp_slices_destroy(s);
        return ESP_ENOMEM;
    }
    for (uint32_t idx = 0; idx < trie->all.n_order; idx++) {
        uint32_t token = trie->all.order[idx], n;
        const uint8_t *bytes = esp_trie_token(trie, token, &n);
        struct about about = describe(bytes, n, token);
        s->abouts[s->n++] = about;
        s->n_chars_max = about.n_chars > s->n_chars_max ? about.n_chars : s->n_chars_max;
    }
    *ret_slices = s;
    return ESP_OK;
}

static void drop(struct slice *slice)
{
    esp_free(slice->bits);
    esp_free(slice->ids);
    esp_free(slice->at);
    *slice = (struct slice){.used_at = 0};
}

void esp_slices_destroy(struct esp_slices *slices)
{
    if (slices == NULL) {
        return;
    }
    for (uint32_t idx = 0; idx < ESP_SLICES_MAX; idx++) {
        drop(&slices->slices[idx]);
    }
    esp_free(slices->abouts);
    esp_free(slices->found);
    pthread_mutex_destroy(&slices->lock);
    esp_free(slices);
}

static bool belongs(const struct about *about, const struct esp_class *class)
{
    return ((about->ascii[0] & ~class->ascii[0]) | (about->ascii[1] & ~class->ascii[1])) == 0 &&
           (!about->high || (class->utf8 && about->whole));
}

static esp_status make(struct esp_slices *s, const struct esp_class *class, size_t words, struct slice *slice)
{
    uint32_t n_lengths = s->n_chars_max + 2;
    slice->bits = esp_calloc(ESP_TAG_GRAMMAR, words, sizeof *slice->bits);
    slice->at = esp_calloc(ESP_TAG_GRAMMAR, n_lengths, sizeof *slice->at);
    if (slice->bits == NULL || slice->at == NULL) {
        return ESP_ENOMEM;
    }
    for (uint32_t idx = 0; idx < s->n; idx++) {
        if (belongs(&s->abouts[idx], class)) {
            esp_mask_set(slice->bits, s->abouts[idx].token);
            slice->at[s->abouts[idx].n_chars + 1]++;
            s->found[slice->n_ids++] = idx;
        }
    }
    slice->ids = esp_malloc(ESP_TAG_GRAMMAR, ((size_t)slice->n_ids + 1) * sizeof *slice->ids);
    if (slice->ids == NULL) {
        return ESP_ENOMEM;
    }
    for (uint32_t n = 1; n < n_lengths; n++) {
        slice->at[n] += slice->at[n - 1];
    }
    /* at[n] is where tokens of n characters begin, and after this pass where they end. */
    for (uint32_t idx = 0; idx < slice->n_ids; idx++) {
        const struct about *about = &s->abouts[s->found[idx]];
        slice->ids[slice->at[about->n_chars]++] = about->token;
    }
    slice->class = *class;
    return ESP_OK;
}

/* The slice of a class, made in the place of the one used least recently. NULL when out of memory. */
static struct slice *find(struct esp_slices *s, const struct esp_class *class, size_t words)
{
    struct slice *oldest = &s->slices[0];
    for (uint32_t idx = 0; idx < ESP_SLICES_MAX; idx++) {
        struct slice *slice = &s->slices[idx];
        if (slice->used_at != 0 && memcmp(slice->class.ascii, class->ascii, sizeof class->ascii) == 0 &&
            slice->class.utf8 == class->utf8) {
            slice->used_at = ++s->clock;
            return slice;
        }
        oldest = slice->used_at < oldest->used_at ? slice : oldest;
    }
    drop(oldest);
    if (make(s, class, words, oldest) != ESP_OK) {
        drop(oldest);
        return NULL;
    }
    oldest->used_at = ++s->clock;
    return oldest;
}

esp_status esp_slices_take(const struct esp_trie *trie, const struct esp_class *class, uint32_t n_chars, uint64_t *mask)
{
    struct esp_slices *s = trie->classes;
    size_t words = esp_mask_words(trie->n_tokens);
    esp_status status = ESP_OK;
    pthread_mutex_lock(&s->lock);
    const struct slice *slice = find(s, class, words);
    if (slice == NULL) {
        status = ESP_ENOMEM;
    } else {
        uint32_t n = n_chars >= s->n_chars_max ? slice->n_ids : slice->at[n_chars];
        if (n <= slice->n_ids / 2) {
            memset(mask, 0, words * sizeof *mask);
            for (uint32_t idx = 0; idx < n; idx++) {
                esp_mask_set(mask, slice->ids[idx]);
            }
        } else {
            memcpy(mask, slice->bits, words * sizeof *mask);
            for (uint32_t idx = n; idx < slice->n_ids; idx++) {
                mask[slice->ids[idx] / 64] &= ~((uint64_t)1 << (slice->ids[idx] % 64));
            }
        }
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}
