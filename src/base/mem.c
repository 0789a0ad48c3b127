/* mem.c - counting wrappers around the C allocator. */
#include "base/mem.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic int64_t live, count, fail_in;

static int must_fail(void)
{
    atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
    if (atomic_load_explicit(&fail_in, memory_order_relaxed) == 0)
        return 0;
    return atomic_fetch_sub(&fail_in, 1) == 1;
}

static void *counted(void *block)
{
    if (block)
        atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    return block;
}

void *pen__malloc(size_t n_bytes)
{
    return must_fail() ? NULL : counted(malloc(n_bytes ? n_bytes : 1));
}

void *pen__calloc(size_t n_items, size_t item_bytes)
{
    return must_fail() ? NULL : counted(calloc(n_items ? n_items : 1, item_bytes ? item_bytes : 1));
}

void *pen__realloc(void *block, size_t n_bytes)
{
    if (must_fail())
        return NULL;
    void *moved = realloc(block, n_bytes ? n_bytes : 1);
    return block ? moved : counted(moved);
}

void *pen__aligned(size_t alignment, size_t n_bytes)
{
    void *block = NULL;
    if (must_fail() || posix_memalign(&block, alignment, n_bytes ? n_bytes : 1) != 0)
        return NULL;
    return counted(block);
}

void pen__free(void *block)
{
    if (!block)
        return;
    atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    free(block);
}

#if defined(PEN__MEM_IS_GUARDED)
void *pen__pages(size_t n_bytes)
{
    return pen__aligned((size_t)sysconf(_SC_PAGESIZE), n_bytes);
}

void pen__pages_free(void *block, size_t n_bytes)
{
    (void)n_bytes;
    pen__free(block);
}
#else
void *pen__pages(size_t n_bytes)
{
    if (must_fail())
        return NULL;
    void *block = mmap(NULL, n_bytes ? n_bytes : 1, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return counted(block == MAP_FAILED ? NULL : block);
}

void pen__pages_free(void *block, size_t n_bytes)
{
    if (!block)
        return;
    atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    munmap(block, n_bytes ? n_bytes : 1);
}
#endif

char *pen__strdup(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = pen__malloc(n);
    return copy ? memcpy(copy, text, n) : NULL;
}

void pen__mem_trim(void)
{
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
}

int64_t pen__mem_live(void)
{
    return atomic_load(&live);
}

int64_t pen__mem_count(void)
{
    return atomic_load(&count);
}

void pen__mem_fail_at(int64_t n)
{
    atomic_store(&fail_in, n);
}
