/* Draws one token from a row of logits, in a few passes over blocks of 64 tokens (one mask word).
 *
 * No copy of the vocabulary is made: each pass loads a block, puts changed logits in their places and
 * −inf where the mask forbids. Allowed values are kept finite (NaN counts as the lowest), so an allowed
 * token is always above a forbidden one. top-k and top-p find the value at which they cut by counting
 * or weighing values in 2,048 buckets, three times with finer buckets, instead of sorting; a first cut
 * by value lets them look at few blocks. Sums are in f64 and in one fixed order.
 *
 *   key      31        21 20         10 9          0     the bits of the value, so turned that
 *           | level 0    | level 1     | level 2   |     greater keys are greater values
 *
 * Compiled once per level (vec.h). Thread: any; rows are independent.
 */
#include "kernels/cpu/sample_row.h"

#include <assert.h>
#include <float.h>
#include <math.h>

#include "kernels/cpu/sample_change.h"
#include "kernels/cpu/vec.h"
#include "runtime/base/rng.h"

#define BLOCK 64

struct view {
    const struct esp_sample_row *row;
    const struct esp_sample_scratch *scratch;
    uint32_t n_vocab, n_blocks, n_changed;
    float max, inv_t; /* weights are exp((x − max) · inv_t) */
    /* Kept: x > floor, or x == floor and id ≤ tie_id. */
    float floor;
    uint32_t tie_id;
};

/* Places changed logits into a block; *cursor walks the list along with the blocks. */
static void patch_block(const struct view *v, uint32_t base, uint32_t *cursor, uint64_t bits, float *out)
{
    const struct esp_sample_scratch *s = v->scratch;
    while (*cursor < v->n_changed && s->ids[*cursor] < base + BLOCK) {
        uint32_t i = s->ids[*cursor] - base;
        float x = s->values[(*cursor)++];
        x = x > -FLT_MAX ? x : -FLT_MAX;
        x = x < FLT_MAX ? x : FLT_MAX;
        out[i] = (bits >> i & 1) != 0 ? x : -INFINITY;
    }
}

/* Values of a block; returns the bits of allowed tokens. When none is allowed, out is not written. */
static uint64_t load_block(const struct view *v, uint32_t block, uint32_t *cursor, float *out)
{
    uint32_t base = block * BLOCK, n = v->n_vocab - base < BLOCK ? v->n_vocab - base : BLOCK;
    uint64_t bits = v->row->mask == NULL ? ~(uint64_t)0 : v->row->mask[block];
    bits = n < BLOCK ? bits & (((uint64_t)1 << n) - 1) : bits;
    if (bits == 0) {
        while (*cursor < v->n_changed && v->scratch->ids[*cursor] < base + BLOCK) {
            (*cursor)++;
        }
        return 0;
    }
    for (uint32_t i = 0; i < BLOCK; i += 16) {
        uint32_t n_here = n < i ? 0 : n - i;
        const float *logits = v->row->logits + base + i;
        v16 x = n_here >= 16 ? v16_load(logits) : v16_load_n(logits, n_here);
        x = v16_min(v16_max(x, v16_set1(-FLT_MAX)), v16_set1(FLT_MAX));
        v16_store(out + i, v16_select((uint32_t)(bits >> i) & 0xffff, x, v16_set1(-INFINITY)));
    }
    patch_block(v, base, cursor, bits, out);
    return bits;
}

static float block_max(const float *x)
{
    return v16_hmax(v16_max(v16_max(v16_load(x), v16_load(x + 16)), v16_max(v16_load(x + 32), v16_load(x + 48))));
}

/* Bits of values ≥ floor. */
static uint64_t at_least(const float *x, float floor)
{
    uint64_t less = 0;
    for (uint32_t i = 0; i < BLOCK; i += 16) {
        less |= (uint64_t)v16_less_bits(v16_load(x + i), v16_set1(floor)) << i;
    }
    return ~less;
}

/* Takes out the tokens that tie with the floor but come after tie_id. */
static uint64_t drop_ties(const struct view *v, uint32_t base, const float *x, uint64_t bits)
{
    uint64_t kept = bits;
    for (uint64_t rest = bits; rest != 0; rest &= rest - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(rest);
        if (x[i] == v->floor && base + i > v->tie_id) {
            kept &= ~((uint64_t)1 << i);
        }
    }
    return kept;
}

static uint64_t load_kept(const struct view *v, uint32_t block, uint32_t *cursor, float *out)
{
    uint64_t bits = load_block(v, block, cursor, out);
    if (bits == 0) {
        return 0;
    }
    bits &= at_least(out, v->floor);
    return bits != 0 && v->tie_id != UINT32_MAX ? drop_ties(v, block * BLOCK, out, bits) : bits;
}

/* The highest allowed value, the lowest id on a tie. */
static uint32_t find_best(const struct view *v, float *ret_max)
{
    float best = -INFINITY, x[BLOCK];
    uint32_t best_id = 0, cursor = 0;
    for (uint32_t block = 0; block < v->n_blocks; block++) {
        if (load_block(v, block, &cursor, x) == 0) {
            continue;
        }
        float high = block_max(x);
        if (high > best) {
            best = high;
            best_id = block * BLOCK;
            for (const float *at = x; *at != high; at++) {
                best_id++;
            }
        }
    }
    *ret_max = best;
    return best_id;
}

/* Replaces the values of a block by their weights, 0 where a bit is not set. */
static void weigh(const struct view *v, uint64_t bits, float *x)
{
    for (uint32_t i = 0; i < BLOCK; i += 16) {
        v16 y = v16_mul(v16_sub(v16_load(x + i), v16_set1(v->max)), v16_set1(v->inv_t));
        v16 w = v16_select((uint32_t)(bits >> i) & 0xffff, v16_exp(y), v16_set1(0));
        v16_store(x + i, w);
    }
}

static double add_weights(const float *w)
{
    double sums[8] = {0};
    for (uint32_t i = 0; i < BLOCK; i += 16) {
        v16_add_to_f64(v16_load(w + i), sums);
    }
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

static double kept_weight(const struct view *v)
{
    double total = 0;
    float x[BLOCK];
    uint32_t cursor = 0;
    for (uint32_t block = 0; block < v->n_blocks; block++) {
        uint64_t bits = load_kept(v, block, &cursor, x);
        if (bits != 0) {
            weigh(v, bits, x);
            total += add_weights(x);
        }
    }
    return total;
}

static uint32_t kept_count(const struct view *v)
{
    uint32_t n = 0, cursor = 0;
    float x[BLOCK];
    for (uint32_t block = 0; block < v->n_blocks; block++) {
        n += (uint32_t)__builtin_popcountll(load_kept(v, block, &cursor, x));
    }
    return n;
}

/* Equal values have equal keys: −0 counts as +0. */
static uint32_t key_of(float value)
{
    value = value + 0.0f;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

static float value_of(uint32_t key)
{
    uint32_t bits = key >> 31 != 0 ? key & 0x7fffffffu : ~key;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

struct cut {
    bool by_weight; /* else by count */
    double target;  /* keep from the top until this much is reached */
    double above;   /* what lies above the bucket in question */
    uint32_t prefix;
    uint32_t shift, width; /* of this level's digit of the key */
};

/* Sums what falls into each bucket of this level below the prefix found so far. */
static void fill_buckets(const struct view *v, const struct cut *cut, double *masses)
{
    uint32_t cursor = 0, upper = cut->shift + cut->width;
    float x[BLOCK], w[BLOCK];
    for (uint32_t block = 0; block < v->n_blocks; block++) {
        uint64_t bits = load_kept(v, block, &cursor, x);
        if (bits != 0 && cut->by_weight) {
            memcpy(w, x, sizeof w);
            weigh(v, bits, w);
        }
        for (; bits != 0; bits &= bits - 1) {
            uint32_t i = (uint32_t)__builtin_ctzll(bits), key = key_of(x[i]);
            if (upper == 32 || key >> upper == cut->prefix) {
                masses[key >> cut->shift & ((1u << cut->width) - 1)] += cut->by_weight ? (double)w[i] : 1;
            }
        }
    }
}

/* The id of the last tie that is kept: ties are taken in order of id until the target is reached. */
static uint32_t last_tie(const struct view *v, const struct cut *cut, float floor)
{
    double sum = cut->above, each = 1;
    uint32_t cursor = 0;
    float x[BLOCK];
    if (cut->by_weight) {
        each = (double)esp_expf((floor - v->max) * v->inv_t);
    }
    for (uint32_t block = 0; block < v->n_blocks; block++) {
        for (uint64_t bits = load_kept(v, block, &cursor, x); bits != 0; bits &= bits - 1) {
            uint32_t i = (uint32_t)__builtin_ctzll(bits);
            if (x[i] != floor) {
                continue;
            }
            sum += each;
            if (sum >= cut->target) {
                return block * BLOCK + i;
            }
        }
    }
    return UINT32_MAX;
}

/* Narrows what is kept to the fewest best tokens that reach the target; at least one. */
static void apply_cut(struct view *v, struct cut *cut)
{
    double *masses = v->scratch->masses;
    static const uint32_t shifts[] = {21, 10, 0}, widths[] = {11, 11, 10};
    for (int level = 0; level < 3; level++) {
        cut->shift = shifts[level];
        cut->width = widths[level];
        memset(masses, 0, 2048 * sizeof *masses);
        fill_buckets(v, cut, masses);
        uint32_t bucket = 1u << cut->width, lowest = 0;
        bool reached = false;
        while (bucket-- > 0 && !reached) {
            if (masses[bucket] == 0) {
                continue;
            }
            lowest = bucket;
            reached = cut->above + masses[bucket] >= cut->target;
            cut->above += reached ? 0 : masses[bucket];
        }
        if (!reached && level == 0) {
            return; /* everything together does not exceed the target */
        }
        if (!reached) {
            cut->above -= masses[lowest]; /* rounding: the sums of a finer level fell short */
        }
        cut->prefix = cut->prefix << cut->width | lowest;
    }
    float floor = value_of(cut->prefix);
    v->tie_id = last_tie(v, cut, floor);
    v->floor = floor;
}

/* Weights of tokens far below the best are tiny and they are many: a cut looks at those near the
 * best alone when they suffice. Changes the work, never the result. */
static void apply_cut_near_best(struct view *v, struct cut *cut)
{
    static const float widths[] = {4, 10, 20};
    float floor = v->floor;
    for (int i = 0; i < 3 && v->tie_id == UINT32_MAX; i++) {
        float near = v->max - (cut->by_weight ? widths[i] / v->inv_t : widths[i]);
        if (!(near > floor)) {
            break;
        }
        v->floor = near;
        if ((cut->by_weight ? kept_weight(v) : (double)kept_count(v)) >= cut->target) {
            apply_cut(v, cut);
            return;
        }
        v->floor = floor;
    }
    apply_cut(v, cut);
}

/* Walks the kept tokens in order of id until their weights pass u of the whole. */
static uint32_t draw(const struct view *v, double u)
{
    double target = u * kept_weight(v), before = 0;
    uint32_t cursor = 0, last = 0;
    float x[BLOCK];
    for (uint32_t block = 0; block < v->n_blocks; block++) {
        uint64_t bits = load_kept(v, block, &cursor, x);
        if (bits == 0) {
            continue;
        }
        weigh(v, bits, x);
        double sum = add_weights(x), partial = before;
        bool here = before + sum > target;
        for (; bits != 0; bits &= bits - 1) {
            uint32_t i = (uint32_t)__builtin_ctzll(bits);
            partial += (double)x[i];
            if (x[i] > 0) {
                last = block * BLOCK + i;
            }
            if (here && partial > target) {
                return last;
            }
        }
        if (here) {
            return last; /* rounding: the terms one by one fell short of their sum */
        }
        before += sum;
    }
    return last;
}

static uint32_t sample_random(struct view *v, uint32_t best_id)
{
    const struct esp_sample_row *row = v->row;
    v->inv_t = 1.0f / row->temperature;
    if (!(v->inv_t < FLT_MAX)) {
        return best_id;
    }
    if (row->top_k != 0 && row->top_k < v->n_vocab) {
        struct cut cut = {.target = row->top_k};
        apply_cut_near_best(v, &cut);
    }
    if (row->top_p < 1) {
        struct cut cut = {.by_weight = true, .target = (double)row->top_p * kept_weight(v)};
        apply_cut_near_best(v, &cut);
    }
    if (row->min_p > 0) {
        /* exp(y) ≥ min_p, as y ≥ ln min_p; the best token always stays */
        float floor = v->max + logf(row->min_p < 1 ? row->min_p : 1) * row->temperature;
        if (floor > v->floor) {
            v->floor = floor < v->max ? floor : v->max;
            v->tie_id = UINT32_MAX;
        }
    }
    return draw(v, esp_rng_unit(esp_rng_at(row->seed, row->pos)));
}

/* Puts a token into the list of the best, better first, lower id first on a tie. */
static void insert_top(struct esp_sample_row *row, uint32_t *n_top, uint32_t id, float x)
{
    uint32_t at = *n_top;
    while (at > 0 && row->top_logprob[at - 1] < x) {
        at--;
    }
    if (at == row->n_top) {
        return;
    }
    *n_top += *n_top < row->n_top;
    for (uint32_t i = *n_top - 1; i > at; i--) {
        row->top_logprob[i] = row->top_logprob[i - 1];
        row->top_id[i] = row->top_id[i - 1];
    }
    row->top_logprob[at] = x;
    row->top_id[at] = id;
}

static void report(const struct view *v, struct esp_sample_row *row, double log_total)
{
    uint32_t n_top = 0, cursor = 0;
    float x[BLOCK], lowest = -INFINITY;
    for (uint32_t block = 0; block < v->n_blocks; block++) {
        uint64_t bits = load_block(v, block, &cursor, x);
        if (row->token / BLOCK == block) {
            row->logprob = (float)((double)(x[row->token % BLOCK] - v->max) - log_total);
        }
        bits = bits == 0 || row->n_top == 0 ? 0 : bits & at_least(x, lowest);
        for (; bits != 0; bits &= bits - 1) {
            uint32_t i = (uint32_t)__builtin_ctzll(bits);
            insert_top(row, &n_top, block * BLOCK + i, x[i]);
        }
        lowest = n_top != 0 && n_top == row->n_top ? row->top_logprob[n_top - 1] : -INFINITY;
    }
    for (uint32_t i = 0; i < row->n_top; i++) {
        bool there = i < n_top;
        row->top_id[i] = there ? row->top_id[i] : 0;
        row->top_logprob[i] = there ? (float)((double)(row->top_logprob[i] - v->max) - log_total) : -INFINITY;
    }
}

void ESP_LEVEL_NAME(esp_sample_row)(struct esp_sample_row *row, uint32_t n_vocab,
                                    const struct esp_sample_scratch *scratch)
{
    assert(n_vocab > 0 && row->n_top <= 20);
    struct view v = {
        .row = row,
        .scratch = scratch,
        .n_vocab = n_vocab,
        .n_blocks = (n_vocab + BLOCK - 1) / BLOCK,
        .n_changed = esp_sample_changes(row, n_vocab, scratch),
        .inv_t = 1,
        .floor = -FLT_MAX,
        .tie_id = UINT32_MAX,
    };
    uint32_t best_id = find_best(&v, &v.max);
    double log_total = row->want_logprob || row->n_top != 0 ? log(kept_weight(&v)) : 0;
    row->token = row->temperature > 0 ? sample_random(&v, best_id) : best_id;
    row->logprob = 0;
    if (row->want_logprob || row->n_top != 0) {
        v.inv_t = 1;
        report(&v, row, log_total);
    }
}
