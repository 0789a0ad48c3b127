/* decode_jpeg_memory.c - gives libjpeg all of an image's memory from one block.
 *
 * Why not libjpeg's own manager: it calls malloc several times an image, cannot be
 * told to fail in a test, and bounds nothing.  Here an image gets one block
 * whose size was computed from its header (pen__jpeg_bound), the block stays
 * from image to image, and a request beyond it is an error, so no file takes
 * more than the memory budget was told.
 *
 * Invariants:
 * - Only what jpeg_create_decompress allocated is in libjpeg's manager.  Whatever is
 *   asked for later lies in the block, also from JPOOL_PERMANENT (quantisation
 *   and Huffman tables): decode_jpeg.c forgets those tables after every image,
 *   because tables left behind would let a file without its own decode differently
 *   after another file.
 * - "Virtual" arrays, which libjpeg might swap to disk, are plain arrays.
 * - Rows of samples are padded and aligned to 64 bytes; libjpeg-turbo's SIMD code
 *   works on whole vectors and needs 32.
 */
#include "ops/decode_jpeg_memory.h"

#include <string.h>

#include <jerror.h>
#include <penstock/error.h>

#include "base/mem.h"

enum { ALIGNMENT = 64 };

/* libjpeg leaves these types to the memory manager. */
struct jvirt_barray_control {
    JBLOCKARRAY rows; /* NULL until realized */
    JDIMENSION n_rows, n_blocks;
    boolean pre_zero;
    struct jvirt_barray_control *next;
};

static pen__jpeg_memory *memory_of(j_common_ptr cinfo)
{
    return (pen__jpeg_memory *)cinfo->mem;
}

static size_t padded(size_t n_bytes)
{
    return (n_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void *take(j_common_ptr cinfo, int pool_id, size_t n_bytes)
{
    (void)pool_id;
    pen__jpeg_memory *memory = memory_of(cinfo);
    if (n_bytes > memory->limit || padded(n_bytes) > memory->limit - memory->used)
        ERREXIT1(cinfo, JERR_OUT_OF_MEMORY, 0);
    void *taken = memory->block + memory->used;
    memory->used += padded(n_bytes);
    return taken;
}

static JSAMPARRAY take_samples(j_common_ptr cinfo, int pool_id, JDIMENSION n_samples,
                               JDIMENSION n_rows)
{
    JSAMPARRAY rows = take(cinfo, pool_id, n_rows * sizeof *rows);
    for (JDIMENSION y = 0; y < n_rows; y++)
        rows[y] = take(cinfo, pool_id, n_samples * sizeof **rows);
    return rows;
}

static JBLOCKARRAY take_blocks(j_common_ptr cinfo, int pool_id, JDIMENSION n_blocks,
                               JDIMENSION n_rows)
{
    JBLOCKARRAY rows = take(cinfo, pool_id, n_rows * sizeof *rows);
    for (JDIMENSION y = 0; y < n_rows; y++)
        rows[y] = take(cinfo, pool_id, n_blocks * sizeof **rows);
    return rows;
}

/* Decompression has no virtual sample arrays unless it quantises colours. */
static jvirt_sarray_ptr request_samples(j_common_ptr cinfo, int pool_id, boolean pre_zero,
                                        JDIMENSION n_samples, JDIMENSION n_rows,
                                        JDIMENSION max_access)
{
    (void)pool_id, (void)pre_zero, (void)n_samples, (void)n_rows, (void)max_access;
    ERREXIT(cinfo, JERR_NOT_COMPILED);
    return NULL;
}

static JSAMPARRAY access_samples(j_common_ptr cinfo, jvirt_sarray_ptr array, JDIMENSION start,
                                 JDIMENSION n_rows, boolean writable)
{
    (void)array, (void)start, (void)n_rows, (void)writable;
    ERREXIT(cinfo, JERR_BAD_VIRTUAL_ACCESS);
    return NULL;
}

static jvirt_barray_ptr request_blocks(j_common_ptr cinfo, int pool_id, boolean pre_zero,
                                       JDIMENSION n_blocks, JDIMENSION n_rows,
                                       JDIMENSION max_access)
{
    (void)max_access;
    pen__jpeg_memory *memory = memory_of(cinfo);
    struct jvirt_barray_control *array = take(cinfo, pool_id, sizeof *array);
    *array = (struct jvirt_barray_control){NULL, n_rows, n_blocks, pre_zero, memory->coefficients};
    memory->coefficients = array;
    return array;
}

static void realize(j_common_ptr cinfo)
{
    struct jvirt_barray_control *array = memory_of(cinfo)->coefficients;
    for (; array; array = array->next) {
        if (array->rows)
            continue;
        array->rows = take_blocks(cinfo, JPOOL_IMAGE, array->n_blocks, array->n_rows);
        if (array->pre_zero)
            for (JDIMENSION y = 0; y < array->n_rows; y++)
                memset(array->rows[y], 0, array->n_blocks * sizeof(JBLOCK));
    }
}

static JBLOCKARRAY access_blocks(j_common_ptr cinfo, jvirt_barray_ptr array, JDIMENSION start,
                                 JDIMENSION n_rows, boolean writable)
{
    (void)writable;
    if (!array->rows || start > array->n_rows || n_rows > array->n_rows - start)
        ERREXIT(cinfo, JERR_BAD_VIRTUAL_ACCESS);
    return array->rows + start;
}

/* jpeg_abort calls this; the block is emptied by pen__jpeg_memory_reset. */
static void free_pool(j_common_ptr cinfo, int pool_id)
{
    (void)cinfo, (void)pool_id;
}

static void self_destruct(j_common_ptr cinfo)
{
    pen__jpeg_memory *memory = memory_of(cinfo);
    pen__jpeg_memory_reset(memory, 0);
    cinfo->mem = memory->library;
    cinfo->mem->self_destruct(cinfo);
}

void pen__jpeg_memory_init(pen__jpeg_memory *memory, struct jpeg_decompress_struct *cinfo)
{
    *memory = (pen__jpeg_memory){
        .calls = {.alloc_small = take,
                  .alloc_large = take,
                  .alloc_sarray = take_samples,
                  .alloc_barray = take_blocks,
                  .request_virt_sarray = request_samples,
                  .request_virt_barray = request_blocks,
                  .realize_virt_arrays = realize,
                  .access_virt_sarray = access_samples,
                  .access_virt_barray = access_blocks,
                  .free_pool = free_pool,
                  .self_destruct = self_destruct,
                  .max_memory_to_use = cinfo->mem->max_memory_to_use,
                  .max_alloc_chunk = cinfo->mem->max_alloc_chunk},
        .library = cinfo->mem,
    };
    cinfo->mem = &memory->calls;
}

int pen__jpeg_memory_reserve(pen__jpeg_memory *memory, size_t n_bytes)
{
    if (n_bytes > memory->cap) {
        pen__jpeg_memory_reset(memory, 0);
        memory->block = pen__aligned(ALIGNMENT, n_bytes);
        if (!memory->block)
            return PEN_ENOMEM;
        memory->cap = n_bytes;
    }
    memory->limit = n_bytes;
    return 0;
}

void pen__jpeg_memory_reset(pen__jpeg_memory *memory, size_t keep)
{
    memory->used = memory->limit = 0;
    memory->coefficients = NULL;
    if (memory->cap <= keep)
        return;
    pen__free(memory->block);
    memory->block = NULL;
    memory->cap = 0;
}
