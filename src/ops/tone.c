/* tone.c - ImageOps: each value looked up, or computed from itself alone.
 *
 * Autocontrast and equalize count a channel's values, make a table of 256 and go
 * through the pixels once more.  The others are one simple loop, which compilers
 * turn into vector code; they need no twin.
 */
#include "ops/tone.h"

#include <string.h>

typedef uint8_t table[256];
typedef int64_t counts[256];

void pen__invert(pen__image *im)
{
    size_t n = pen__image_bytes(im);
    for (size_t i = 0; i < n; i++)
        im->px[i] = (uint8_t)(255 - im->px[i]);
}

void pen__posterize(pen__image *im, int bits)
{
    size_t n = pen__image_bytes(im);
    uint8_t kept = (uint8_t)(0xFF00 >> bits);
    for (size_t i = 0; i < n; i++)
        im->px[i] &= kept;
}

void pen__solarize(pen__image *im, float threshold)
{
    int first = 0; /* the smallest value that is inverted, or 256 */
    while (first < 256 && (float)first < threshold)
        first++;
    size_t n = pen__image_bytes(im);
    for (size_t i = 0; i < n; i++) {
        uint8_t v = im->px[i];
        im->px[i] = v < first ? v : (uint8_t)(255 - v);
    }
}

/* ---- by histogram --------------------------------------------------------------- */

static void count_values(const pen__image *im, counts histogram[3])
{
    size_t n = pen__image_bytes(im);
    memset(histogram, 0, 3 * sizeof histogram[0]);
    if (im->ch == 1) {
        for (size_t i = 0; i < n; i++)
            histogram[0][im->px[i]]++;
        return;
    }
    for (size_t i = 0; i < n; i += 3)
        for (int c = 0; c < 3; c++)
            histogram[c][im->px[i + (size_t)c]]++;
}

static void look_up(pen__image *im, const table tables[3])
{
    size_t n = pen__image_bytes(im);
    if (im->ch == 1) {
        for (size_t i = 0; i < n; i++)
            im->px[i] = tables[0][im->px[i]];
        return;
    }
    for (size_t i = 0; i < n; i += 3)
        for (int c = 0; c < 3; c++)
            im->px[i + (size_t)c] = tables[c][im->px[i + (size_t)c]];
}

static void make_identity(table to)
{
    for (int v = 0; v < 256; v++)
        to[v] = (uint8_t)v;
}

/* The lowest and the highest value that occur; false where there are not two. */
static int find_ends(const counts n, int *lowest, int *highest)
{
    int lo = 0, hi = 255;
    while (lo < 255 && n[lo] == 0)
        lo++;
    while (hi > 0 && n[hi] == 0)
        hi--;
    *lowest = lo;
    *highest = hi;
    return lo < hi;
}

static void make_stretch(const counts n, table to)
{
    int lo, hi;
    make_identity(to);
    if (!find_ends(n, &lo, &hi))
        return;
    double scale = 255.0 / (hi - lo), offset = -lo * scale;
    for (int v = lo; v <= hi; v++) {
        int stretched = (int)(v * scale + offset);
        to[v] = (uint8_t)(stretched < 0 ? 0 : stretched > 255 ? 255 : stretched);
    }
}

static void make_flat(const counts n, table to)
{
    int lo, hi;
    make_identity(to);
    if (!find_ends(n, &lo, &hi))
        return;
    int64_t below_last = 0; /* pixels, without those of the highest value */
    for (int v = lo; v < hi; v++)
        below_last += n[v];
    int64_t step = below_last / 255;
    if (step == 0)
        return;
    int64_t passed = step / 2;
    for (int v = lo; v <= hi; v++) {
        int64_t level = passed / step;
        to[v] = (uint8_t)(level > 255 ? 255 : level);
        passed += n[v];
    }
}

static void map_by_histogram(pen__image *im, void (*make)(const counts, table))
{
    counts histogram[3];
    table tables[3];
    count_values(im, histogram);
    for (int c = 0; c < im->ch; c++)
        make(histogram[c], tables[c]);
    look_up(im, (const table *)tables);
}

void pen__autocontrast(pen__image *im)
{
    map_by_histogram(im, make_stretch);
}

void pen__equalize(pen__image *im)
{
    map_by_histogram(im, make_flat);
}
