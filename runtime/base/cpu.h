/* What this CPU can run, and a mask to pretend it can do less.
 *
 * Levels are ordered; a machine that has one has all below it. The mask is one of the few globals
 * of the project: tests set it to force each level, `--cpu-level` sets it for users.
 */
#ifndef ESP_BASE_CPU_H
#define ESP_BASE_CPU_H

enum esp_cpu_level {
    ESP_CPU_SCALAR, /* plain C: the reference */
    ESP_CPU_AVX2,   /* AVX2, FMA, F16C */
    ESP_CPU_AVX512, /* AVX-512 F, BW, VL, DQ and VNNI */
    ESP_CPU_LEVELS
};

enum esp_cpu_level esp_cpu_level(void);              /* best level, at most the mask */
void esp_cpu_level_mask(enum esp_cpu_level highest); /* ESP_CPU_LEVELS - 1 = no mask */
const char *esp_cpu_level_name(enum esp_cpu_level level); /* "scalar", "avx2", "avx512" */
int esp_cpu_count(void);                             /* CPUs this process may run on, at least 1 */

#endif
