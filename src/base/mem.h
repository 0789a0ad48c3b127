/* mem.h - the one place memory comes from.
 *
 * Everything the library allocates goes through here, so that tests can count
 * what is alive and make the n-th allocation fail.  A script bans bare malloc.
 */
#ifndef PEN_BASE_MEM_H
#define PEN_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

/* An address sanitizer guards the ends of what comes from the allocator, and of nothing else: then
 * pages come from there, too. */
#if defined(__SANITIZE_ADDRESS__)
#define PEN__MEM_IS_GUARDED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PEN__MEM_IS_GUARDED 1
#endif
#endif

void *pen__malloc(size_t n_bytes);
void *pen__calloc(size_t n_items, size_t item_bytes);
/* NULL on failure, the old block stays valid. */
void *pen__realloc(void *block, size_t n_bytes);
/* `alignment` a power of two.  Free with pen__free. */
void *pen__aligned(size_t alignment, size_t n_bytes);
void pen__free(void *block);
/* Whole pages, which go back to the system when they are freed: for large blocks that come and go,
 * of which an allocator would keep as many as there ever were.  Aligned to a page. */
void *pen__pages(size_t n_bytes);
void pen__pages_free(void *block, size_t n_bytes);
char *pen__strdup(const char *text);
/* Give what is free back to the system.  Takes a moment. */
void pen__mem_trim(void);

/* What parts of one block are aligned to: a line of the cache, and any vector. */
enum { PEN__ALIGN = 64 };

static inline size_t pen__align_up(size_t n_bytes)
{
    return (n_bytes + PEN__ALIGN - 1) & ~(size_t)(PEN__ALIGN - 1);
}

static inline size_t pen__max_bytes(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Blocks alive now, over all threads. */
int64_t pen__mem_live(void);
/* Allocations made so far, failed ones included. */
int64_t pen__mem_count(void);
/* Tests: let the n-th allocation from now (1 = the next) fail; 0 switches it off. */
void pen__mem_fail_at(int64_t n);

#endif
