/* cpu.c - CPU feature detection with a switch for tests. */
#include "base/cpu.h"

#include <penstock/version.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static pthread_once_t once = PTHREAD_ONCE_INIT;
static unsigned detected;
static _Atomic unsigned mask = ~0U;

static void detect(void)
{
#if defined(__x86_64__)
    unsigned a, b, c = 0, d; /* F16C by hand: not every compiler's builtin knows its name */
    bool has_f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c)
        detected |= PEN__CPU_AVX2;
    if (detected && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi"))
        detected |= PEN__CPU_AVX512;
#endif
    const char *wish = getenv("PENSTOCK_CPU");
    if (wish && strcmp(wish, "scalar") == 0)
        detected = 0;
    if (wish && strcmp(wish, "avx2") == 0)
        detected &= PEN__CPU_AVX2;
}

unsigned pen__cpu_flags(void)
{
    pthread_once(&once, detect);
    return detected & atomic_load_explicit(&mask, memory_order_relaxed);
}

void pen__cpu_mask(unsigned allowed)
{
    atomic_store(&mask, allowed);
}

const char *pen_cpu_level(void)
{
    if (pen__cpu_flags() & PEN__CPU_AVX512)
        return "avx512";
    return pen__cpu_flags() & PEN__CPU_AVX2 ? "avx2" : "scalar";
}
