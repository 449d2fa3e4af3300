/* The CPU device: its level, its pool, its scratch, and the memory it has given out.
 *
 * Thread: the one that opened it (the engine's); the pool's workers see chunks only.
 */
#ifndef ESP_KERNELS_CPU_DEV_H
#define ESP_KERNELS_CPU_DEV_H

#include "kernels/cpu/level.h"
#include "kernels/cpu/pool.h"

#define ESP_SAMPLE_BIAS_MAX 4096 /* biases of one row, besides a history of n_ctx_max */

struct esp_dev_block; /* memory given out by alloc */

struct esp_dev {
    struct esp_dev_config config;
    const struct esp_cpu_level_ops *level;
    struct esp_pool *pool;
    struct esp_dev_block *blocks;
    bool sealed;
    void *scratch; /* everything below lies in it */
    struct esp_quant quant;
    struct esp_sample_scratch *samples; /* [n_threads] */
};


esp_status esp_cpu_embed(struct esp_dev *dev, const struct esp_embed_args *args);
esp_status esp_cpu_norm(struct esp_dev *dev, const struct esp_norm_args *args);
esp_status esp_cpu_linear(struct esp_dev *dev, const struct esp_linear_args *args);
esp_status esp_cpu_rope_table(struct esp_dev *dev, const struct esp_rope_table_args *args);
esp_status esp_cpu_rope_kv(struct esp_dev *dev, const struct esp_rope_kv_args *args);
esp_status esp_cpu_attn(struct esp_dev *dev, const struct esp_attn_args *args);
esp_status esp_cpu_glu(struct esp_dev *dev, const struct esp_glu_args *args);
esp_status esp_cpu_copy_pages(struct esp_dev *dev, const struct esp_copy_pages_args *args);
esp_status esp_cpu_sample(struct esp_dev *dev, struct esp_sample_args *args);

#endif
