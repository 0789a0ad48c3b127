/* trail.c - the last minute, second by second. */
#include "engine/trail.h"

enum { ENTRIES = PEN__TRAIL_SECONDS + 1 };

static const int64_t SECOND = 1000000000;

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* What [from, to) has of a second. */
static int64_t overlap(int64_t second, int64_t from_ns, int64_t to_ns)
{
    return larger(0, smaller(to_ns, (second + 1) * SECOND) - larger(from_ns, second * SECOND));
}

void pen__trail_add(pen__trail *trail, int64_t from_ns, int64_t to_ns)
{
    if (atomic_load_explicit(&trail->first_ns, memory_order_relaxed) == 0)
        atomic_store_explicit(&trail->first_ns, from_ns, memory_order_relaxed);
    const int64_t last = to_ns / SECOND;
    for (int64_t s = larger(from_ns / SECOND, last - PEN__TRAIL_SECONDS); s <= last; s++) {
        const int i = (int)(s % ENTRIES);
        int64_t before = 0;
        if (atomic_load_explicit(&trail->entry[i].second, memory_order_relaxed) == s)
            before = atomic_load_explicit(&trail->entry[i].ns, memory_order_relaxed);
        atomic_store_explicit(&trail->entry[i].ns, before + overlap(s, from_ns, to_ns),
                              memory_order_relaxed);
        atomic_store_explicit(&trail->entry[i].second, s, memory_order_relaxed);
    }
}

int pen__trail_read(const pen__trail *trail, int64_t now_ns, int64_t open_since,
                    double share[PEN__TRAIL_SECONDS])
{
    int64_t first_ns = atomic_load_explicit(&trail->first_ns, memory_order_relaxed);
    if (first_ns == 0)
        first_ns = open_since;
    if (first_ns == 0)
        return 0;
    const int64_t now = now_ns / SECOND;
    int n = 0;
    /* The second it began in is not a whole one. */
    for (int64_t s = larger(now - PEN__TRAIL_SECONDS, first_ns / SECOND + 1); s < now; s++) {
        const int i = (int)(s % ENTRIES);
        int64_t ns = open_since ? overlap(s, open_since, now_ns) : 0;
        if (atomic_load_explicit(&trail->entry[i].second, memory_order_relaxed) == s)
            ns += atomic_load_explicit(&trail->entry[i].ns, memory_order_relaxed);
        share[n++] = (double)smaller(ns, SECOND) / (double)SECOND;
    }
    return n;
}
