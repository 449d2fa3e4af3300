/* Linear for F32, F16 and BF16 weights: one fma a weight and row, in order of the inputs.
 *
 * Each sum is one long chain; several panels or rows at a time keep the multipliers busy meanwhile.
 * Compiled once per level (kernels/cpu/vec.h). Thread: any, see kernels/cpu/level.h.
 */
#include "kernels/x86/tile.h"

#define N_ROWS_MAX 4
#define N_PANELS_MAX 4

ESP_VEC_INLINE v16 load_weights(const uint8_t *p, enum esp_type type)
{
    if (type == ESP_TYPE_F32) {
        return v16_load((const float *)(const void *)p);
    }
    const uint16_t *half = (const uint16_t *)(const void *)p;
    return type == ESP_TYPE_F16 ? v16_load_f16(half) : v16_load_bf16(half);
}

/* sums [n_panels][n_rows][16] */
ESP_VEC_INLINE void tile(enum esp_type type, const uint8_t *panel, size_t panel_bytes, const float *x, uint32_t n_in,
                         float *sums, const int n_panels, const int n_rows)
{
    const size_t step = (size_t)ESP_PANEL * (type == ESP_TYPE_F32 ? 4 : 2);
    v16 acc[N_PANELS_MAX * N_ROWS_MAX];
    ESP_UNROLL
    for (int i = 0; i < n_panels * n_rows; i++) {
        acc[i] = v16_set1(0);
    }
    for (uint32_t k = 0; k < n_in; k++) {
        ESP_UNROLL
        for (int p = 0; p < n_panels; p++) {
            v16 w = load_weights(panel + (size_t)p * panel_bytes + k * step, type);
            ESP_UNROLL
            for (int r = 0; r < n_rows; r++) {
                v16 b = v16_set1(x[(size_t)r * n_in + k]);
                acc[p * n_rows + r] = v16_fma(w, b, acc[p * n_rows + r]);
            }
        }
    }
    ESP_UNROLL
    for (int i = 0; i < n_panels * n_rows; i++) {
        v16_store(sums + 16 * i, acc[i]);
    }
}

ESP_VEC_INLINE void tile_of_type(enum esp_type type, const uint8_t *panel, size_t panel_bytes, const float *x,
                                 uint32_t n_in, float *sums, const int n_panels, const int n_rows)
{
    if (type == ESP_TYPE_F32) {
        tile(ESP_TYPE_F32, panel, panel_bytes, x, n_in, sums, n_panels, n_rows);
    } else if (type == ESP_TYPE_F16) {
        tile(ESP_TYPE_F16, panel, panel_bytes, x, n_in, sums, n_panels, n_rows);
    } else {
        tile(ESP_TYPE_BF16, panel, panel_bytes, x, n_in, sums, n_panels, n_rows);
    }
}

static void run_tile(const struct esp_linear_args *args, uint32_t weight_idx, uint32_t row, uint32_t n_rows,
                     uint32_t panel, uint32_t n_panels)
{
    const struct esp_weight *w = args->weight[weight_idx];
    const size_t bytes = esp_panel_shape(w->type, w->n_in).bytes;
    const uint8_t *data = (const uint8_t *)w->data + panel * bytes;
    const float *x = args->x + (size_t)row * w->n_in;
    _Alignas(64) float sums[N_PANELS_MAX * N_ROWS_MAX * 16];
    if (n_panels == 4 && n_rows == 4) {
        tile_of_type(w->type, data, bytes, x, w->n_in, sums, 4, 4);
    } else if (n_panels == 4) {
        tile_of_type(w->type, data, bytes, x, w->n_in, sums, 4, 1);
    } else if (n_rows == 4) {
        tile_of_type(w->type, data, bytes, x, w->n_in, sums, 1, 4);
    } else {
        tile_of_type(w->type, data, bytes, x, w->n_in, sums, 1, 1);
    }
    for (uint32_t p = 0; p < n_panels; p++) {
        for (uint32_t r = 0; r < n_rows; r++) {
            esp_tile_store(args, weight_idx, row + r, panel + p, sums + 16 * (p * n_rows + r));
        }
    }
}

static void linear_float(const struct esp_linear_args *args, uint32_t weight_idx, uint32_t panel, uint32_t panel_end)
{
    for (uint32_t n_panels; panel < panel_end; panel += n_panels) {
        n_panels = panel_end - panel >= 4 ? 4 : 1;
        uint32_t row = 0;
        for (; row + 4 <= args->n_rows; row += 4) {
            run_tile(args, weight_idx, row, 4, panel, n_panels);
        }
        for (; row < args->n_rows; row++) {
            run_tile(args, weight_idx, row, 1, panel, n_panels);
        }
    }
}

void ESP_LEVEL_NAME(esp_x86_linear)(const struct esp_linear_args *args, const struct esp_quant *quant,
                                    uint32_t weight_idx, uint32_t panel, uint32_t panel_end)
{
    if (esp_format(args->weight[weight_idx]->type)->group == 0) {
        linear_float(args, weight_idx, panel, panel_end);
    } else {
        ESP_LEVEL_NAME(esp_x86_linear_int)(args, quant, weight_idx, panel, panel_end);
    }
}
