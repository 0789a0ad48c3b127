/* ranking.c - see ranking.h. */
#include "engine/ranking.h"

#include <math.h>

static const double first_log2 = 14;        /* 16 KB/s: worth less than any network */
static const double ranks_a_double = 4;     /* 96 of them reach to 275 GB/s */
static const double growth = 1 + 1.0 / 512; /* of weights: half of all are the last 350 samples */
static const double most_weight = 1e6;

static int rank_of(double worth)
{
    const double at = (log2(fmax(worth, 1)) - first_log2) * ranks_a_double;
    return at < 0 ? 0 : at >= PEN__RANKS - 1 ? PEN__RANKS - 1 : (int)at;
}

static void scale(pen__ranking *r, double factor)
{
    r->weight *= factor;
    r->n_samples *= factor;
    r->raw_bytes *= factor;
    for (int i = 0; i < PEN__RANKS; i++) {
        r->n[i] *= factor;
        r->saved_bytes[i] *= factor;
        r->cpu_s[i] *= factor;
    }
}

void pen__ranking_add(pen__ranking *r, double raw_bytes, const pen__offer *offers, int n)
{
    r->weight = r->weight > 0 ? r->weight * growth : 1;
    if (r->weight > most_weight)
        scale(r, 1 / most_weight);
    r->n_samples += r->weight;
    r->raw_bytes += r->weight * raw_bytes;
    for (int i = 0; i < n; i++) {
        const int at = rank_of(pen__offer_worth(&offers[i]));
        r->n[at] += r->weight;
        r->saved_bytes[at] += r->weight * offers[i].saved_bytes;
        r->cpu_s[at] += r->weight * offers[i].cpu_s;
    }
}

static double count(const pen__ranking *r)
{
    double n = 0;
    for (int i = 0; i < PEN__RANKS; i++)
        n += r->n[i];
    return n;
}

double pen__ranking_threshold(const pen__ranking *r, double share)
{
    double left = share * count(r);
    if (share >= 1)
        return 0;
    if (!(share > 0))
        return INFINITY;
    for (int i = PEN__RANKS - 1; i >= 0; i--) {
        if (r->n[i] > left) /* in the middle of this rank */
            return exp2(first_log2 + (i + 1 - left / r->n[i]) / ranks_a_double);
        left -= r->n[i];
    }
    return 0;
}

pen__gain pen__ranking_gain(const pen__ranking *r, double share)
{
    double left = fmin(share, 1) * count(r);
    pen__gain gain = {0, 0};
    for (int i = PEN__RANKS - 1; i >= 0 && left > 0; i--) {
        const double part = r->n[i] > left ? left / r->n[i] : 1;
        gain.saved_bytes += part * r->saved_bytes[i];
        gain.cpu_s += part * r->cpu_s[i];
        left -= r->n[i];
    }
    if (r->n_samples > 0) {
        gain.saved_bytes /= r->n_samples;
        gain.cpu_s /= r->n_samples;
    }
    return gain;
}

double pen__ranking_raw_bytes(const pen__ranking *r)
{
    return r->n_samples > 0 ? r->raw_bytes / r->n_samples : NAN;
}
