/* node_pipelines.c - pipelines by their hash; the one that was not used for longest is forgotten.
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

bool pen__pipelines_put(pen__pipelines *store, pen_pipeline *pipe)
{
    int i = find(store, pen_pipeline_hash(pipe));
    const bool is_new = i < 0;
    if (is_new && store->n < PEN__NODE_PIPELINES) {
        i = store->n++;
        store->all[i].pipe = pen_pipeline_ref(pipe);
    } else if (is_new) {
        i = 0;
        for (int k = 1; k < store->n; k++)
            if (store->all[k].used < store->all[i].used)
                i = k;
        pen_pipeline_unref(store->all[i].pipe); /* who uses it has a reference */
        store->all[i].pipe = pen_pipeline_ref(pipe);
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
