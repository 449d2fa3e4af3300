/* Normal forms and character classes over sorted tables.
 *
 *   text → decode → decompose fully → collect [starter, marks…] → order marks by class → (compose) → encode
 *
 * One segment (a starter and what combines with it) is in memory at a time. Hangul is computed, as the
 * Unicode Standard (chapter 3.12) gives it. Thread: any; all state is on the caller's stack and heap.
 */
#include "runtime/unicode.h"

#include <string.h>

#include "runtime/base/utf8.h"
#include "runtime/unicode_tables.h"

#define HANGUL_S 0xAC00u
#define HANGUL_L 0x1100u
#define HANGUL_V 0x1161u
#define HANGUL_T 0x11A7u
#define HANGUL_N_L 19u
#define HANGUL_N_V 21u
#define HANGUL_N_T 28u
#define HANGUL_N_S (HANGUL_N_L * HANGUL_N_V * HANGUL_N_T)
#define RUN_INSERT_MAX 32u /* longer runs of marks are ordered by counting */
#define DECOMPOSE_DEPTH 8u

struct mark {
    uint32_t cp, class;
};

/* One segment on its way through. */
struct segment {
    struct mark *marks; /* [n], [0] may be the starter */
    struct mark *spare; /* [room] for counting */
    size_t n, room;
    bool compose;
    struct esp_buf *out;
};

static bool in_ranges(const struct esp_unicode_range *ranges, unsigned n, uint32_t cp)
{
    unsigned low = 0, high = n;
    while (low < high) {
        unsigned mid = (low + high) / 2;
        if (cp > ranges[mid].last) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < n && cp >= ranges[low].first;
}

bool esp_unicode_is_mark(uint32_t cp)
{
    return cp >= 0x300 && in_ranges(esp_unicode_marks, esp_unicode_marks_n, cp);
}

bool esp_unicode_is_punctuation(uint32_t cp)
{
    return in_ranges(esp_unicode_puncts, esp_unicode_puncts_n, cp);
}

bool esp_unicode_is_control(uint32_t cp)
{
    return in_ranges(esp_unicode_controls, esp_unicode_controls_n, cp);
}

bool esp_unicode_is_space(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || cp == ' ' || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F ||
           cp == 0x3000;
}

uint32_t esp_unicode_lower(uint32_t cp)
{
    if (cp < 0x80) {
        return cp >= 'A' && cp <= 'Z' ? cp + 32 : cp;
    }
    unsigned low = 0, high = esp_unicode_lowers_n;
    while (low < high) {
        unsigned mid = (low + high) / 2;
        if (cp > esp_unicode_lowers[mid].last) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    if (low == esp_unicode_lowers_n || cp < esp_unicode_lowers[low].first) {
        return cp;
    }
    const struct esp_unicode_lower *row = &esp_unicode_lowers[low];
    return (cp - row->first) % row->step == 0 ? (uint32_t)((int32_t)cp + row->delta) : cp;
}

static uint32_t combining_class(uint32_t cp)
{
    if (cp < 0x300) {
        return 0;
    }
    unsigned low = 0, high = esp_unicode_combining_n;
    while (low < high) {
        unsigned mid = (low + high) / 2;
        if (cp > esp_unicode_combining[mid].last) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    bool found = low < esp_unicode_combining_n && cp >= esp_unicode_combining[low].first;
    return found ? esp_unicode_combining[low].value : 0;
}

static const struct esp_unicode_pair *find_decomposition(uint32_t cp)
{
    unsigned low = 0, high = esp_unicode_decompose_n;
    while (low < high) {
        unsigned mid = (low + high) / 2;
        if (cp > esp_unicode_decompose[mid].cp) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    bool found = low < esp_unicode_decompose_n && esp_unicode_decompose[low].cp == cp;
    return found ? &esp_unicode_decompose[low] : NULL;
}

static uint32_t compose_hangul(uint32_t first, uint32_t second)
{
    if (first - HANGUL_L < HANGUL_N_L && second - HANGUL_V < HANGUL_N_V) {
        return HANGUL_S + ((first - HANGUL_L) * HANGUL_N_V + (second - HANGUL_V)) * HANGUL_N_T;
    }
    bool is_lv = first - HANGUL_S < HANGUL_N_S && (first - HANGUL_S) % HANGUL_N_T == 0;
    return is_lv && second - HANGUL_T - 1 < HANGUL_N_T - 1 ? first + (second - HANGUL_T) : 0;
}

/* The character that the pair makes, or 0. */
static uint32_t compose_pair(uint32_t first, uint32_t second)
{
    uint32_t hangul = compose_hangul(first, second);
    if (hangul != 0) {
        return hangul;
    }
    unsigned low = 0, high = esp_unicode_compose_n;
    while (low < high) {
        unsigned mid = (low + high) / 2;
        const struct esp_unicode_pair *row = &esp_unicode_decompose[esp_unicode_compose[mid]];
        if (first > row->first || (first == row->first && second > row->second)) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    if (low == esp_unicode_compose_n) {
        return 0;
    }
    const struct esp_unicode_pair *row = &esp_unicode_decompose[esp_unicode_compose[low]];
    return row->first == first && row->second == second ? row->cp : 0;
}

/* Stable by class; the starter, if there is one, has class 0 and stays in front. */
static void order_marks(struct segment *segment)
{
    struct mark *marks = segment->marks;
    if (segment->n <= RUN_INSERT_MAX) {
        for (size_t idx = 1; idx < segment->n; idx++) {
            struct mark mark = marks[idx];
            size_t to = idx;
            for (; to > 0 && marks[to - 1].class > mark.class; to--) {
                marks[to] = marks[to - 1];
            }
            marks[to] = mark;
        }
        return;
    }
    size_t starts[257] = {0};
    for (size_t idx = 0; idx < segment->n; idx++) {
        starts[marks[idx].class + 1]++;
    }
    for (size_t value = 1; value < 257; value++) {
        starts[value] += starts[value - 1];
    }
    for (size_t idx = 0; idx < segment->n; idx++) {
        segment->spare[starts[marks[idx].class]++] = marks[idx];
    }
    memcpy(marks, segment->spare, segment->n * sizeof *marks);
}

/* Joins marks to the starter in front where nothing of the same or a higher class stands between. */
static void compose_segment(struct segment *segment)
{
    struct mark *marks = segment->marks;
    if (segment->n < 2 || marks[0].class != 0) {
        return;
    }
    size_t to = 1;
    uint32_t last_class = 0;
    for (size_t idx = 1; idx < segment->n; idx++) {
        bool blocked = last_class != 0 && last_class >= marks[idx].class;
        uint32_t made = blocked ? 0 : compose_pair(marks[0].cp, marks[idx].cp);
        if (made != 0) {
            marks[0].cp = made;
        } else {
            last_class = marks[idx].class;
            marks[to++] = marks[idx];
        }
    }
    segment->n = to;
}

static void write_segment(struct segment *segment)
{
    for (size_t idx = 0; idx < segment->n; idx++) {
        char bytes[4];
        int n = esp_utf8_encode(segment->marks[idx].cp, bytes);
        esp_buf_add(segment->out, bytes, (size_t)n);
    }
    segment->n = 0;
}

static bool append_mark(struct segment *segment, uint32_t cp, uint32_t class)
{
    if (segment->n == segment->room) {
        size_t room = segment->room == 0 ? 64 : segment->room * 2;
        struct mark *marks = esp_realloc(ESP_TAG_VOCAB, segment->marks, room * sizeof *marks);
        if (marks == NULL) {
            return false;
        }
        segment->marks = marks;
        struct mark *spare = esp_realloc(ESP_TAG_VOCAB, segment->spare, room * sizeof *spare);
        if (spare == NULL) {
            return false;
        }
        segment->spare = spare;
        segment->room = room;
    }
    segment->marks[segment->n++] = (struct mark){cp, class};
    return true;
}

/* Takes one fully decomposed character. A starter ends the segment before it, unless the two compose. */
static bool take_char(struct segment *segment, uint32_t cp)
{
    uint32_t class = combining_class(cp);
    if (class != 0) {
        return append_mark(segment, cp, class);
    }
    order_marks(segment);
    if (segment->compose) {
        compose_segment(segment);
        uint32_t made = segment->n == 1 ? compose_pair(segment->marks[0].cp, cp) : 0;
        if (made != 0) {
            segment->marks[0].cp = made;
            return true;
        }
    }
    write_segment(segment);
    return append_mark(segment, cp, 0);
}

static bool take_decomposed(struct segment *segment, uint32_t cp)
{
    if (cp - HANGUL_S < HANGUL_N_S) {
        uint32_t idx = cp - HANGUL_S;
        uint32_t tail = HANGUL_T + idx % HANGUL_N_T;
        return take_char(segment, HANGUL_L + idx / (HANGUL_N_V * HANGUL_N_T)) &&
               take_char(segment, HANGUL_V + idx % (HANGUL_N_V * HANGUL_N_T) / HANGUL_N_T) &&
               (tail == HANGUL_T || take_char(segment, tail));
    }
    /* Only the first character of a pair decomposes further (a property of the data, which a test checks). */
    uint32_t seconds[DECOMPOSE_DEPTH];
    size_t n_seconds = 0;
    const struct esp_unicode_pair *row = cp < 0xC0 ? NULL : find_decomposition(cp);
    for (; row != NULL && n_seconds < DECOMPOSE_DEPTH; row = find_decomposition(cp)) {
        cp = row->first;
        if (row->second != 0) {
            seconds[n_seconds++] = row->second;
        }
    }
    bool ok = take_char(segment, cp);
    while (ok && n_seconds > 0) {
        ok = take_char(segment, seconds[--n_seconds]);
    }
    return ok;
}

esp_status esp_unicode_normalize(const char *text, size_t n_bytes, bool compose, struct esp_buf *out)
{
    struct segment segment = {.compose = compose, .out = out};
    esp_status status = ESP_OK;
    for (size_t at = 0; at < n_bytes && status == ESP_OK;) {
        uint32_t cp;
        int n = esp_utf8_decode(text + at, n_bytes - at, &cp);
        if (n <= 0) {
            status = ESP_EINVAL;
        } else if (!take_decomposed(&segment, cp)) {
            status = ESP_ENOMEM;
        }
        at += n > 0 ? (size_t)n : 0;
    }
    if (status == ESP_OK) {
        order_marks(&segment);
        if (compose) {
            compose_segment(&segment);
        }
        write_segment(&segment);
        status = out->failed ? ESP_ENOMEM : ESP_OK;
    }
    esp_free(segment.marks);
    esp_free(segment.spare);
    return status;
}
