/* CPU detection through the compiler's builtins. */
#include "runtime/base/cpu.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static _Atomic int level_mask = ESP_CPU_LEVELS - 1;

#if defined(__x86_64__)
/* F16C has no name in every compiler's builtin: CPUID leaf 1, ECX bit 29. */
static bool has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 29 & 1) != 0;
}
#endif

static enum esp_cpu_level detect(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) {
        return ESP_CPU_SCALAR;
    }
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512vnni")) {
        return ESP_CPU_AVX2;
    }
    return ESP_CPU_AVX512;
#else
    return ESP_CPU_SCALAR;
#endif
}

enum esp_cpu_level esp_cpu_level(void)
{
    enum esp_cpu_level best = detect();
    enum esp_cpu_level mask = (enum esp_cpu_level)atomic_load(&level_mask);
    return best < mask ? best : mask;
}

void esp_cpu_level_mask(enum esp_cpu_level highest)
{
    atomic_store(&level_mask, highest);
}

const char *esp_cpu_level_name(enum esp_cpu_level level)
{
    static const char *const names[ESP_CPU_LEVELS] = {"scalar", "avx2", "avx512"};
    return level < ESP_CPU_LEVELS ? names[level] : "unknown";
}

int esp_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return 1;
    }
    int n = CPU_COUNT(&set);
    return n < 1 ? 1 : n;
}
