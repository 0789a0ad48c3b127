/* index_keys.c - keys: unique, ordered, searchable, and hashed into an identity.
 *
 * A key is the directory and the first stem_len bytes of the file name.  No name
 * holds a slash, so two samples can share a key only within one directory.  Ids
 * follow file names and keys follow stems, and the two orders differ ("a-b.jpg"
 * sorts before "a.jpg", but "a" before "a-b"), hence the permutation by_key.
 */
#include "source/index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/fail.h"
#include "base/little_endian.h"
#include "base/mem.h"
#include "source/names.h"

static int compare_entries_by_key(const pen__index *index, const pen__entry *x, const pen__entry *y)
{
    if (x->dir != y->dir)
        return x->dir < y->dir ? -1 : 1;
    return pen__bytes_compare(pen__index_name(index, x), pen__index_key_part(index, x),
                              pen__index_name(index, y), pen__index_key_part(index, y));
}

static int compare_ids(const void *a, const void *b, void *ctx)
{
    const pen__index *index = ctx;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const pen__entry *a_entry = &index->entries[x], *b_entry = &index->entries[y];
    int order = compare_entries_by_key(index, a_entry, b_entry);
    if (order == 0)
        order = strcmp(pen__index_name(index, a_entry), pen__index_name(index, b_entry));
    return order ? order : (x > y) - (x < y);
}

/* Names that all end alike are nearly always in key order already: look first. */
static void sort_by_key(pen__index *index)
{
    for (size_t i = 0; i < index->n; i++)
        index->by_key[i] = (uint32_t)i;
    for (size_t i = 1; i < index->n; i++)
        if (compare_ids(&index->by_key[i - 1], &index->by_key[i], index) > 0) {
            qsort_r(index->by_key, index->n, sizeof *index->by_key, compare_ids, index);
            return;
        }
}

static bool same_key(const pen__index *index, size_t i, size_t j)
{
    return compare_entries_by_key(index, &index->entries[index->by_key[i]],
                                  &index->entries[index->by_key[j]]) == 0;
}

int64_t pen__index_keys(pen__index *index, uint32_t *a, uint32_t *b, pen_error *err)
{
    if (!index->by_key)
        index->by_key = pen__calloc(index->n, sizeof *index->by_key);
    if (!index->by_key)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory while ordering %zu keys", index->n);
    sort_by_key(index);
    int64_t n_repeated = 0;
    for (size_t i = 1; i < index->n; i++) {
        if (!same_key(index, i - 1, i))
            continue;
        if (n_repeated++ == 0) {
            *a = index->by_key[i - 1];
            *b = index->by_key[i];
        }
    }
    return n_repeated;
}

int pen__index_keys_as_added(pen__index *index, pen_error *err)
{
    uint32_t a, b;
    int rc = pen__index_sort_dirs(index, err);
    int64_t n_repeated = rc ? rc : pen__index_keys(index, &a, &b, err);
    return n_repeated < 0 ? (int)n_repeated : 0;
}

static const char *name_by_key(const pen__index *index, size_t i)
{
    return pen__index_name(index, &index->entries[index->by_key[i]]);
}

/* Where different files share a key, let them keep their extension; true if there were any.
 * Equal keys stand in order of name, so a run of them is one file if its ends are.  Marks
 * must not change keys that are still to be compared: two passes. */
static bool lengthen_collisions(pen__index *index)
{
    bool found = false;
    for (size_t first = 0, end; first < index->n; first = end) {
        for (end = first + 1; end < index->n && same_key(index, end - 1, end);)
            end++;
        if (strcmp(name_by_key(index, first), name_by_key(index, end - 1)) == 0)
            continue;
        found = true;
        for (size_t i = first; i < end; i++)
            index->entries[index->by_key[i]].flags |= PEN__REPEATED;
    }
    for (size_t i = 0; i < index->n; i++)
        if (index->entries[i].flags & PEN__REPEATED)
            index->entries[i].flags |= PEN__FULL_NAME;
    return found;
}

/* A key with its extension may meet the stem of a third file ("a.jpg" and "a.png"
 * beside "a.jpg.png"), so this repeats until no files collide; every round settles
 * at least one name for good, and whole names of different files differ. */
int pen__index_unique_keys(pen__index *index, pen_error *err)
{
    uint32_t a, b;
    int64_t n_repeated;
    do
        n_repeated = pen__index_keys(index, &a, &b, err);
    while (n_repeated > 0 && lengthen_collisions(index));
    return n_repeated < 0 ? (int)n_repeated : 0;
}

/* Every part has its length in front or is of fixed size, so no two lists of
 * samples give the same bytes. */
int pen__index_digest(const pen__index *index, char out[PEN__DIGEST_TEXT], pen_error *err)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory while hashing");
    static const char domain[] = "penstock dataset 2";
    uint8_t record[24];
    char key[PEN_KEY_MAX];
    XXH3_128bits_reset(state);
    XXH3_128bits_update(state, domain, sizeof domain);
    pen__le_put(record, index->n, 8);
    XXH3_128bits_update(state, record, 8);
    for (size_t i = 0; i < index->n; i++) {
        const pen__entry *entry = &index->entries[index->by_key[i]];
        size_t len = pen__index_path(index, entry, pen__index_key_part(index, entry), key);
        pen__le_put(record, len, 4);
        pen__le_put(record + 4, entry->length, 8);
        pen__le_put(record + 12, (uint32_t)entry->label, 4);
        pen__le_put(record + 16, index->by_key[i], 8); /* ids follow names, which keys leave out */
        XXH3_128bits_update(state, record, sizeof record);
        XXH3_128bits_update(state, key, len);
    }
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    snprintf(out, PEN__DIGEST_TEXT, "%016llx%016llx", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
    return 0;
}

static int64_t find_dir(const pen__intern *dirs, const char *dir, size_t len)
{
    size_t lo = 0, hi = dirs->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int order =
            pen__dir_compare(dir, len, pen__intern_text(dirs, mid), pen__intern_len(dirs, mid));
        if (order == 0)
            return (int64_t)mid;
        if (order < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return PEN_ENOTFOUND;
}

/* <0, 0, >0: (dir, part) against the key of `entry`. */
static int compare_key(const pen__index *index, int64_t dir, const char *part, size_t len,
                       const pen__entry *entry)
{
    if (dir != entry->dir)
        return dir < entry->dir ? -1 : 1;
    return pen__bytes_compare(part, len, pen__index_name(index, entry),
                              pen__index_key_part(index, entry));
}

int64_t pen__index_find(const pen__index *index, const char *key, size_t len)
{
    size_t leaf = pen__leaf_start(key, len);
    int64_t dir = find_dir(&index->dirs, key, leaf > 0 ? leaf - 1 : 0);
    if (dir < 0 || leaf == 1) /* "/x" has no directory, and "x" is another key */
        return PEN_ENOTFOUND;
    size_t lo = 0, hi = index->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        uint32_t id = index->by_key[mid];
        if (compare_key(index, dir, key + leaf, len - leaf, &index->entries[id]) > 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    bool is_found = lo < index->n && compare_key(index, dir, key + leaf, len - leaf,
                                                 &index->entries[index->by_key[lo]]) == 0;
    return is_found ? (int64_t)index->by_key[lo] : PEN_ENOTFOUND;
}
