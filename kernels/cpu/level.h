/* What one CPU level provides: the inner work of each operation on a range of rows or panels.
 *
 * The drivers (ops.c) check arguments, cut an operation into chunks and give them to the pool; a level
 * computes. `ref` is one level among the others, so that all are driven, threaded and tested alike.
 * A panel is 16 rows of a weight matrix. Thread: any; chunks of one operation do not overlap.
 */
#ifndef ESP_KERNELS_CPU_LEVEL_H
#define ESP_KERNELS_CPU_LEVEL_H

#include "kernels/ops.h"

#define ESP_PANEL 16
#define ESP_ROW_TILE 12 /* quantised inputs have room for whole tiles of rows */
#define ESP_ATTN_QUERIES 48 /* queries of one KV head that attention works on together */
#define ESP_QUANT_AMAX_MIN 0x1p-100f /* a group below this is quantised to zero */

/* The quantised input of a linear, and per weight what its kernel adds for each group of a row:
 * integer start values (−zero · sum) or, for types with a minimum, the floats d_x · sum. */
struct esp_quant {
    int8_t *q;    /* [n_rows, n_in] */
    float *d;     /* [n_rows, n_in / 32] */
    int32_t *s16; /* [n_rows, n_in / 16] */
    void *side[ESP_LINEAR_FAN_OUT]; /* [n_rows, n_in / group], 4 bytes each */
};

struct esp_sample_scratch {
    uint32_t *ids; /* [cap] tokens whose logit is changed, ascending */
    float *values; /* [cap] their changed logits */
    uint32_t cap;
    double *masses;   /* [2048] */
};

struct esp_cpu_level_ops {
    const char *name;
    uint32_t layout; /* of its packed weights */
    size_t (*weight_bytes)(enum esp_type type, uint32_t n_out, uint32_t n_in);
    void (*pack)(enum esp_type type, uint32_t n_out, uint32_t n_in, const void *src, void *dst, uint32_t panel,
                 uint32_t panel_end);
    void (*embed)(const struct esp_embed_args *args, uint32_t row, uint32_t row_end);
    void (*norm)(const struct esp_norm_args *args, uint32_t row, uint32_t row_end);
    void (*quantise)(const struct esp_linear_args *args, const struct esp_quant *quant, uint32_t row,
                     uint32_t row_end);
    void (*linear)(const struct esp_linear_args *args, const struct esp_quant *quant, uint32_t weight_idx,
                   uint32_t panel, uint32_t panel_end);
    void (*rope_kv)(const struct esp_rope_kv_args *args, uint32_t row, uint32_t row_end);
    /* The query heads of one KV head for rows [row, row_end). */
    void (*attn)(const struct esp_attn_args *args, uint32_t head_kv, uint32_t row, uint32_t row_end);
    void (*glu)(const struct esp_glu_args *args, uint32_t row, uint32_t row_end);
    void (*sample)(struct esp_sample_row *row, uint32_t n_vocab, const struct esp_sample_scratch *scratch);
};

extern const struct esp_cpu_level_ops esp_level_ref;

#endif
