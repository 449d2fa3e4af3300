/* How the small vector functions are inlined.
 *
 * They are static in every file, also where the compiler would rather share them: a shared copy could
 * be one with instructions that this CPU lacks. Thread: none, macros only.
 */
#ifndef ESP_KERNELS_CPU_INLINE_H
#define ESP_KERNELS_CPU_INLINE_H

#define ESP_VEC_INLINE static inline __attribute__((always_inline, unused))
#if defined(__clang__)
#define ESP_UNROLL _Pragma("clang loop unroll(full)")
#else
#define ESP_UNROLL _Pragma("GCC unroll 32")
#endif

#endif
