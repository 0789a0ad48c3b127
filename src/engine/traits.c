/* traits.c - ratios in a byte each. */
#include "engine/traits.h"

#include <math.h>

#include "base/mem.h"

/* A byte b, 1 to 255, stands for exp((b - 128) * step): from a twentieth to twenty times. */
enum { NEUTRAL = 128, LEAST = 1, MOST = 255 };
static const double step = 3.0 / 127;

int pen__traits_init(pen__traits *traits, int64_t n)
{
    traits->n = n;
    traits->words = pen__calloc((size_t)(n > 0 ? n : 1), sizeof *traits->words);
    return traits->words ? 0 : PEN_ENOMEM;
}

void pen__traits_fini(pen__traits *traits)
{
    pen__free((void *)traits->words);
    *traits = (pen__traits){0};
}

uint32_t pen__traits_word(const pen__traits *traits, int64_t sample)
{
    if (!traits->words || sample < 0 || sample >= traits->n)
        return 0;
    return atomic_load_explicit(&traits->words[sample], memory_order_relaxed);
}

static int byte_of(uint32_t word, pen__trait trait)
{
    return (int)(word >> 8 * trait & 0xFF);
}

double pen__traits_factor(const pen__traits *traits, int64_t sample, pen__trait trait)
{
    const int byte = byte_of(pen__traits_word(traits, sample), trait);
    const double half = 0.5; /* the other half is what others are like */
    return byte ? exp(half * (byte - NEUTRAL) * step) : 1;
}

void pen__traits_note(pen__traits *traits, int64_t sample, pen__trait trait, double ratio)
{
    if (!(ratio > 0) || isinf(ratio) || !traits->words || sample < 0 || sample >= traits->n)
        return;
    const uint32_t word = pen__traits_word(traits, sample);
    const int before = byte_of(word, trait);
    double now = fmin(fmax(NEUTRAL + log(ratio) / step, LEAST), MOST);
    if (before)
        now = (now + before) / 2;
    /* Two that come at once: one of them is lost, and comes again. */
    const uint32_t cleared = word & ~(UINT32_C(0xFF) << 8 * trait);
    atomic_store_explicit(&traits->words[sample], cleared | (uint32_t)lrint(now) << 8 * trait,
                          memory_order_relaxed);
}

void pen__traits_restore(pen__traits *traits, int64_t sample, uint32_t word)
{
    if (traits->words && sample >= 0 && sample < traits->n && word >> 8 * PEN__TRAIT_COUNT == 0 &&
        pen__traits_word(traits, sample) == 0)
        atomic_store_explicit(&traits->words[sample], word, memory_order_relaxed);
}
