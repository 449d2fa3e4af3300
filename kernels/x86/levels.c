/* The tables of the x86 levels. Plain C: any x86-64 may read them. */
#include "kernels/cpu/sample_row.h"
#include "kernels/x86/panel.h"
#include "kernels/x86/x86.h"

const struct esp_cpu_level_ops esp_level_avx2 = {
    .name = "avx2",
    .layout = ESP_PANEL_LAYOUT,
    .weight_bytes = esp_panel_weight_bytes,
    .pack = esp_panel_pack,
    .embed = esp_panel_embed,
    .norm = esp_x86_norm_avx2,
    .quantise = esp_x86_quantise_avx2,
    .linear = esp_x86_linear_avx2,
    .rope_kv = esp_x86_rope_kv_avx2,
    .attn = esp_x86_attn_avx2,
    .glu = esp_x86_glu_avx2,
    .sample = esp_sample_row_avx2,
};

const struct esp_cpu_level_ops esp_level_avx512 = {
    .name = "avx512",
    .layout = ESP_PANEL_LAYOUT,
    .weight_bytes = esp_panel_weight_bytes,
    .pack = esp_panel_pack,
    .embed = esp_panel_embed,
    .norm = esp_x86_norm_avx512,
    .quantise = esp_x86_quantise_avx512,
    .linear = esp_x86_linear_avx512,
    .rope_kv = esp_x86_rope_kv_avx512,
    .attn = esp_x86_attn_avx512,
    .glu = esp_x86_glu_avx512,
    .sample = esp_sample_row_avx512,
};
