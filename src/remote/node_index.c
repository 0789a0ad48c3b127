/* node_index.c - the index of JPEG files that a node makes while it serves.
 *
 * The first time that something is made of a file, its marks are found (ops/jpeg_index.h), used,
 * and kept beside the dataset (source/sidecar.h), where loaders and later nodes on this machine
 * find them, too.  Threads that pack get and put entries without a lock.
 *
 * Writing the file may take seconds, so a thread of its own does it, now and then; at the end it is
 * done by whoever stops the node.  What cannot be written is no error.  Marks that there is no room
 * for are used once and not looked for again: without AVX-512 that would cost more than it saves.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "remote/node_impl.h"
#include "source/cachedir.h"
#include "source/source.h"

enum { BITS = 64 };

void pen__index_open(pen__served *served)
{
    if (served->ds->source->fetch || !pen__cache_takes_index())
        return;
    served->marks = pen__sidecar_open(served->ds, 0);
    if (served->marks)
        served->hopeless =
            pen__calloc((size_t)pen_dataset_count(served->ds) / BITS + 1, sizeof *served->hopeless);
}

void pen__index_close(pen__served *served)
{
    pen__sidecar_free(served->marks);
    pen__free(served->hopeless);
    served->marks = NULL;
    served->hopeless = NULL;
}

bool pen__index_wants(const pen__served *served, int64_t id)
{
    if (!served->marks)
        return false;
    return !served->hopeless ||
           !(atomic_load_explicit(&served->hopeless[id / BITS], memory_order_relaxed) >> id % BITS &
             1);
}

void pen__index_keep(pen__served *served, int64_t id, const pen__jpeg_indexed *found)
{
    bool is_in_vain = found->state == PEN__INDEX_HOPELESS;
    if (found->state == PEN__INDEX_MADE)
        is_in_vain = !pen__sidecar_put(served->marks, id, found->marks->bytes, found->n_bytes);
    if (is_in_vain && served->hopeless)
        atomic_fetch_or_explicit(&served->hopeless[id / BITS], UINT64_C(1) << id % BITS,
                                 memory_order_relaxed);
}

int64_t pen__index_count(const pen_node *node)
{
    int64_t n = 0;
    for (int i = 0; i < node->n_served; i++)
        if (node->served[i].marks)
            n += pen__sidecar_size_of(node->served[i].marks).n_blocks;
    return n;
}

void pen__index_save(pen_node *node)
{
    for (int i = 0; i < node->n_served; i++)
        if (node->served[i].marks)
            pen__sidecar_save(node->served[i].marks);
}

void pen__index_run(void *ctx, int index)
{
    (void)index;
    pen_node *node = ctx;
    pthread_mutex_lock(&node->lock);
    for (int64_t due = pen__now_ns() + node->save_ns; !node->is_closing;) {
        const int64_t now = pen__now_ns();
        if (now < due) {
            pen__watch_wait(node, due - now);
            continue;
        }
        pthread_mutex_unlock(&node->lock);
        pen__index_save(node);
        pthread_mutex_lock(&node->lock);
        due = pen__now_ns() + node->save_ns;
    }
    pthread_mutex_unlock(&node->lock);
}
