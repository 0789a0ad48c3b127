/* turning.h - knobs drawn at random, from the table of a loader: those added later, too. */
#ifndef PEN_TESTS_TURNING_H
#define PEN_TESTS_TURNING_H

#include "testing.h"

#include <math.h>
#include <penstock/penstock.h>

/* 0 to 1, without 1. */
static inline double chance(uint64_t *random)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (double)(*random >> 11) * 0x1p-53;
}

/* Mostly small numbers, where changes are large; else anywhere in the range, and its ends. */
static inline double draw_knob(uint64_t *random, const pen_knob_info *knob)
{
    const double how = chance(random), at = chance(random);
    if (how < 0.04)
        return at < 0.5 ? knob->min : knob->max;
    const double most = how < 0.9 ? fmin(knob->max, 12) : knob->max;
    if (!knob->is_integer)
        return knob->min + at * (most - knob->min);
    return fmin(knob->min + floor(at * (most - knob->min + 1)), knob->max);
}

/* Off, all to one stage, or any split. */
static inline void draw_shares(uint64_t *random, double share[4])
{
    const double how = chance(random);
    const int all = (int)(chance(random) * 4);
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += share[i] = how < 0.3 ? 0 : how < 0.5 ? i == all : pow(chance(random), 4) + 1e-6;
    for (int i = 0; i < 4 && sum > 0; i++)
        share[i] /= sum;
}

/* New values for most knobs; the others are NaN. */
static inline void draw_knobs(uint64_t *random, const pen_loader *loader, pen_knobs *knobs)
{
    double share[4];
    pen_knobs_init(knobs);
    draw_shares(random, share);
    for (int i = 0, n_shares = 0; i < PEN_KNOB_COUNT; i++) {
        pen_knob_info info;
        pen_loader_knob(loader, i, &info);
        const double to = draw_knob(random, &info);
        if (info.is_share)
            knobs->value[i] = share[n_shares++];
        else if (chance(random) < 0.6)
            knobs->value[i] = to;
    }
}

#endif
