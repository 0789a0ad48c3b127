/* intern.h - distinct strings numbered 0, 1, 2, ... in the order they arrive.
 *
 * Directories, label texts and class names are kept this way: each text once,
 * in one block, and a 4-byte number wherever it is used.
 */
#ifndef PEN_SOURCE_INTERN_H
#define PEN_SOURCE_INTERN_H

#include <stddef.h>
#include <stdint.h>

typedef struct pen__interned {
    uint64_t at; /* in `bytes`, NUL-terminated */
    uint32_t len;
} pen__interned;

/* Zero-initialise. */
typedef struct pen__intern {
    char *bytes;
    size_t n_bytes, cap_bytes;
    pen__interned *items;
    size_t n, cap;
    uint32_t *slots; /* open addressing: 0 is free, else number + 1; a power of two of them */
    size_t n_slots;
} pen__intern;

/* The text's number, a new one if it has none yet, or PEN_ENOMEM. */
int64_t pen__intern_put(pen__intern *table, const char *text, size_t len);
/* Drop what only pen__intern_put needs, and spare room. */
void pen__intern_freeze(pen__intern *table);
void pen__intern_fini(pen__intern *table);

static inline size_t pen__intern_bytes(const pen__intern *table)
{
    return table->cap_bytes + table->cap * sizeof *table->items +
           table->n_slots * sizeof *table->slots;
}

static inline const char *pen__intern_text(const pen__intern *table, size_t number)
{
    return table->bytes + table->items[number].at;
}

static inline size_t pen__intern_len(const pen__intern *table, size_t number)
{
    return table->items[number].len;
}

#endif
