/* node_pipelines.c - pipelines by their hash; the one that was not used for longest is forgotten.
 *
 * A client that has its part of all places gives way to itself: who puts pipelines without end does
 * not make a node forget those of others.
 */
#include <string.h>

#include "remote/node_impl.h"

static int find(const pen__pipelines *store, const char *hash)
{
    for (int i = 0; i < store->n; i++)
        if (strcmp(pen_pipeline_hash(store->all[i].pipe), hash) == 0)
            return i;
    return -1;
}

pen_pipeline *pen__pipelines_get(pen__pipelines *store, const char *hash)
{
    const int i = find(store, hash);
    if (i < 0)
        return NULL;
    store->all[i].used = ++store->clock;
    return pen_pipeline_ref(store->all[i].pipe);
}

static bool is_of(const pen__pipelines *store, int i, const uint8_t *owner)
{
    return !owner || memcmp(store->all[i].owner, owner, sizeof store->all[i].owner) == 0;
}

static int count(const pen__pipelines *store, const uint8_t *owner)
{
    int n = 0;
    for (int i = 0; i < store->n; i++)
        n += is_of(store, i, owner);
    return n;
}

/* The one not used for longest, of an owner's or (NULL) of all; there is one. */
static int find_oldest(const pen__pipelines *store, const uint8_t *owner)
{
    int oldest = -1;
    for (int i = 0; i < store->n; i++)
        if (is_of(store, i, owner) && (oldest < 0 || store->all[i].used < store->all[oldest].used))
            oldest = i;
    return oldest;
}

static int make_room(pen__pipelines *store, const uint8_t owner[16])
{
    const bool has_many = count(store, owner) >= PEN__NODE_PIPELINES_EACH;
    if (!has_many && store->n < PEN__NODE_PIPELINES)
        return store->n++;
    const int i = find_oldest(store, has_many ? owner : NULL);
    pen_pipeline_unref(store->all[i].pipe); /* who uses it has a reference */
    return i;
}

bool pen__pipelines_put(pen__pipelines *store, pen_pipeline *pipe, const uint8_t owner[16])
{
    int i = find(store, pen_pipeline_hash(pipe));
    const bool is_new = i < 0;
    if (is_new) {
        i = make_room(store, owner);
        store->all[i].pipe = pen_pipeline_ref(pipe);
        memcpy(store->all[i].owner, owner, sizeof store->all[i].owner);
    }
    store->all[i].used = ++store->clock;
    return is_new;
}

void pen__pipelines_fini(pen__pipelines *store)
{
    for (int i = 0; i < store->n; i++)
        pen_pipeline_unref(store->all[i].pipe);
    store->n = 0;
}
