/* intern.c - string numbering over one open-addressing table. */
#include "source/intern.h"

#include <string.h>
#include <xxhash.h>

#include <penstock/error.h>

#include "base/mem.h"
#include "source/grow.h"

/* The slot that holds `text`, or the free one where it belongs. */
static size_t slot_of(const pen__intern *table, const char *text, size_t len)
{
    size_t at = (size_t)XXH3_64bits(text, len) & (table->n_slots - 1);
    while (table->slots[at] != 0) {
        const pen__interned *item = &table->items[table->slots[at] - 1];
        if (item->len == len && memcmp(table->bytes + item->at, text, len) == 0)
            break;
        at = (at + 1) & (table->n_slots - 1);
    }
    return at;
}

/* Keep at least half of the slots free. */
static int make_room(pen__intern *table)
{
    if (table->n_slots >= 2 * (table->n + 1))
        return 0;
    uint32_t *old = table->slots;
    size_t n_new = 64;
    while (n_new < 4 * (table->n + 1))
        n_new *= 2;
    uint32_t *slots = pen__calloc(n_new, sizeof *slots);
    if (!slots)
        return PEN_ENOMEM;
    table->slots = slots;
    table->n_slots = n_new;
    for (size_t i = 0; i < table->n; i++)
        slots[slot_of(table, pen__intern_text(table, i), pen__intern_len(table, i))] =
            (uint32_t)i + 1;
    pen__free(old);
    return 0;
}

int64_t pen__intern_put(pen__intern *table, const char *text, size_t len)
{
    if (table->n >= UINT32_MAX - 1 || len >= UINT32_MAX || make_room(table) != 0)
        return PEN_ENOMEM;
    size_t slot = slot_of(table, text, len);
    if (table->slots[slot] != 0)
        return table->slots[slot] - 1;
    pen__interned *items = pen__grow(table->items, &table->cap, table->n + 1, sizeof *items);
    if (!items)
        return PEN_ENOMEM;
    table->items = items;
    char *bytes = pen__grow(table->bytes, &table->cap_bytes, table->n_bytes + len + 1, 1);
    if (!bytes)
        return PEN_ENOMEM;
    table->bytes = bytes;
    memcpy(bytes + table->n_bytes, text, len);
    bytes[table->n_bytes + len] = '\0';
    items[table->n] = (pen__interned){.at = table->n_bytes, .len = (uint32_t)len};
    table->n_bytes += len + 1;
    table->slots[slot] = (uint32_t)++table->n;
    return (int64_t)table->n - 1;
}

void pen__intern_freeze(pen__intern *table)
{
    pen__free(table->slots);
    table->slots = NULL;
    table->n_slots = 0;
    table->items = pen__trim(table->items, &table->cap, table->n, sizeof *table->items);
    table->bytes = pen__trim(table->bytes, &table->cap_bytes, table->n_bytes, 1);
}

void pen__intern_fini(pen__intern *table)
{
    pen__free(table->bytes);
    pen__free(table->items);
    pen__free(table->slots);
    memset(table, 0, sizeof *table);
}
