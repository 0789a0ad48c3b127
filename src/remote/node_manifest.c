/* node_manifest.c - reading samples for clients, and pages of the manifest.
 *
 * docs/protocol.md has the layout of a page.  What an image's header says is found out once, by
 * packing the sample or by reading its file, and kept: twelve bytes a sample.
 */
#include <string.h>
#include <zstd.h>

#include <penstock/image.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "base/mem.h"
#include "engine/parcel.h"
#include "remote/node_impl.h"
#include "source/names.h"

enum {
    PAGE_HEAD = 24,
    RECORD_HEAD = 18,
    PAGE_TAIL = 4,
    LEVEL = 3, /* of zstd: its default */
    KNOWN = 7, /* the byte of a header that is 0 on the wire */
    HAS_HEADERS = 1,
    HAS_FIELDS = 2,
    FIELDS_BOUND = 1 + 4 * (PEN_FIELD_COUNT - 1),
};

static int64_t read_sample(const pen_node *node, const pen__served *served, int64_t id,
                           pen_field field, pen__room *file, pen_error *err)
{
    const int64_t len = pen_dataset_field_length(served->ds, id, field);
    if (len == PEN_ENOTFOUND)
        return pen__fail(err, PEN_ENOTFOUND, -1, "has no such field: %s", pen_field_name(field));
    if (len < 0)
        return pen__fail(err, PEN_EINVAL, -1, "no sample %lld: there are %lld", (long long)id,
                         (long long)pen_dataset_count(served->ds));
    if (len > node->opts.memory_bytes / 2)
        return pen__fail(err, PEN_EBUDGET, -1,
                         "has %lld bytes, and answers may take %lld of this node's memory",
                         (long long)len, (long long)node->opts.memory_bytes);
    if (pen__room_reserve(file, (size_t)len) != 0)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    return pen_dataset_field_read(served->ds, id, field, file->data, (size_t)len, err);
}

int64_t pen__served_read(const pen_node *node, const pen__served *served, int64_t id,
                         pen_field field, pen__room *file, pen_error *err)
{
    char key[PEN_KEY_MAX];
    pen__shown shown;
    const int64_t len = read_sample(node, served, id, field, file, err);
    const int64_t n = len < 0 ? pen_dataset_key(served->ds, id, key, sizeof key) : 0;
    if (n > 0)
        pen__fail_prefix(err, "sample '%s'", pen__show(&shown, key, (size_t)n));
    return len;
}

/* ---- headers ---- */

/* Sides have two bytes each, and an image that has larger ones is none: pen_image_probe and
 * pen__parcel_takes let no such thing through. */
_Static_assert(PEN_IMAGE_MAX_SIDE <= UINT16_MAX, "sides of images need more than two bytes");

static void write_header(const pen_image_info *info, uint8_t out[PEN__NODE_HEADER])
{
    const uint8_t flags = (uint8_t)((info->is_progressive ? 1 : 0) | (info->is_grey ? 2 : 0) |
                                    (info->is_animated ? 4 : 0));
    const uint8_t bytes[PEN__NODE_HEADER] = {
        (uint8_t)info->format,
        info->channels,
        info->bits,
        info->orientation,
        flags,
        info->sampling_h,
        info->sampling_v,
        1,
        (uint8_t)info->width,
        (uint8_t)(info->width >> 8),
        (uint8_t)info->height,
        (uint8_t)(info->height >> 8),
    };
    memcpy(out, bytes, sizeof bytes);
}

static void find_header(const pen_node *node, const pen__served *served, int64_t id,
                        pen__room *file, uint8_t out[PEN__NODE_HEADER])
{
    pen_image_info info;
    const int64_t len = pen__served_read(node, served, id, PEN_FIELD_IMAGE, file, NULL);
    memset(out, 0, PEN__NODE_HEADER);
    if (len >= 0 && pen_image_probe(file->data, (size_t)len, &info, NULL) == 0)
        write_header(&info, out);
    out[KNOWN] = len >= 0; /* a file that could not be read may be back another time */
}

/* Where the header of a sample is kept; NULL: there is no memory for that.  The lock is held. */
static uint8_t *kept_header(pen__served *served, int64_t id)
{
    if (!served->headers)
        served->headers = pen__calloc((size_t)pen_dataset_count(served->ds), PEN__NODE_HEADER);
    return served->headers ? served->headers + id * PEN__NODE_HEADER : NULL;
}

static void keep_header(pen__served *served, int64_t id, const uint8_t header[PEN__NODE_HEADER])
{
    pthread_mutex_lock(served->header_lock);
    uint8_t *kept = kept_header(served, id);
    if (kept)
        memcpy(kept, header, PEN__NODE_HEADER);
    pthread_mutex_unlock(served->header_lock);
}

/* False: it is not known; all 0 then. */
static bool look_up_header(pen__served *served, int64_t id, uint8_t out[PEN__NODE_HEADER])
{
    memset(out, 0, PEN__NODE_HEADER);
    pthread_mutex_lock(served->header_lock);
    const uint8_t *kept = kept_header(served, id);
    if (kept)
        memcpy(out, kept, PEN__NODE_HEADER);
    pthread_mutex_unlock(served->header_lock);
    return out[KNOWN];
}

static void get_header(const pen_node *node, pen__served *served, int64_t id,
                       pen__page_headers which, pen__room *file, uint8_t out[PEN__NODE_HEADER])
{
    if (!look_up_header(served, id, out) && which == PEN__PAGE_ALL) {
        find_header(node, served, id, file, out);
        keep_header(served, id, out);
    }
    out[KNOWN] = 0;
}

void pen__served_note(pen__served *served, int64_t id, const uint8_t *parcel, size_t len)
{
    pen__parcel p;
    uint8_t header[PEN__NODE_HEADER];
    if (pen__parcel_read(&p, parcel, len, NULL) != 0 || !pen__parcel_takes(&p.info))
        return; /* no image, or none that anybody would want to know of */
    write_header(&p.info, header);
    keep_header(served, id, header);
}

/* ---- pages ---- */

uint64_t pen__manifest_pages(const pen_dataset *ds)
{
    return ((uint64_t)pen_dataset_count(ds) + PEN__NODE_PAGE - 1) / PEN__NODE_PAGE;
}

/* Its records begin at `first`, and are n. */
static size_t page_bound(const pen_dataset *ds, int64_t first, int64_t n,
                         const pen__page_order *page)
{
    char key[PEN_KEY_MAX];
    size_t len = PAGE_HEAD + PAGE_TAIL;
    for (int64_t id = first; id < first + n; id++) {
        const int64_t key_len = pen_dataset_key(ds, id, key, sizeof key);
        len += RECORD_HEAD + (page->headers ? PEN__NODE_HEADER : 0) +
               (page->has_fields ? FIELDS_BOUND : 0) + (size_t)(key_len > 0 ? key_len : 0);
    }
    return len;
}

/* Which fields a sample has beside its image, and how long they are. */
static uint8_t *write_fields(const pen_dataset *ds, int64_t id, uint8_t *at)
{
    uint8_t *mask = at++;
    *mask = 0;
    for (int i = 1; i < PEN_FIELD_COUNT; i++) {
        const int64_t len = pen_dataset_field_length(ds, id, (pen_field)i);
        if (len < 0)
            continue;
        *mask |= (uint8_t)(1U << i);
        pen__le_put(at, (uint64_t)len, 4);
        at += 4;
    }
    return at;
}

static uint8_t *write_record(const pen_node *node, pen__served *served, int64_t id,
                             const pen__page_order *page, pen__room *file, uint8_t *at)
{
    char key[PEN_KEY_MAX];
    const int64_t key_len = pen_dataset_key(served->ds, id, key, sizeof key);
    const size_t n = (size_t)(key_len > 0 ? key_len : 0);
    pen__le_put(at, (uint64_t)pen_dataset_length(served->ds, id), 8);
    pen__le_put(at + 8, (uint64_t)pen_dataset_label(served->ds, id), 8);
    pen__le_put(at + 16, n, 2);
    at += RECORD_HEAD;
    if (page->headers) {
        get_header(node, served, id, page->headers, file, at);
        at += PEN__NODE_HEADER;
    }
    if (page->has_fields)
        at = write_fields(served->ds, id, at);
    memcpy(at, key, n);
    return at + n;
}

/* The page as zstd instead. */
static int64_t compress(pen__room *page, size_t len, pen_error *err)
{
    pen__room packed = {0};
    const int rc = pen__room_reserve(&packed, ZSTD_compressBound(len));
    const size_t n = rc ? 0 : ZSTD_compress(packed.data, packed.cap, page->data, len, LEVEL);
    pen__room_fini(page);
    *page = packed;
    return rc || ZSTD_isError(n) ? pen__fail(err, PEN_ENOMEM, -1, "out of memory") : (int64_t)n;
}

int64_t pen__manifest_write(const pen_node *node, pen__served *served, const pen__page_order *page,
                            const atomic_bool *cancel, pen__room *file, pen__room *out,
                            pen_error *err)
{
    pen__page_order now = *page;
    const int64_t first = (int64_t)page->number * PEN__NODE_PAGE,
                  left = pen_dataset_count(served->ds) - first,
                  n = left < PEN__NODE_PAGE ? left : PEN__NODE_PAGE;
    if (pen__room_reserve(out, page_bound(served->ds, first, n, page)) != 0)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    memcpy(out->data, "PENM", 4);
    pen__le_put(out->data + 4, 1, 4);
    pen__le_put(out->data + 8, (uint64_t)first, 8);
    pen__le_put(out->data + 16, (uint64_t)n, 4);
    pen__le_put(out->data + 20,
                (page->headers ? HAS_HEADERS : 0) | (page->has_fields ? HAS_FIELDS : 0), 4);
    uint8_t *at = out->data + PAGE_HEAD;
    for (int64_t id = first; id < first + n; id++) {
        if (now.headers == PEN__PAGE_ALL && atomic_load(cancel))
            now.headers = PEN__PAGE_KNOWN;
        at = write_record(node, served, id, &now, file, at);
    }
    const size_t len = (size_t)(at - out->data);
    pen__le_put(at, pen__crc32c(0, out->data, len), 4);
    return page->as_zstd ? compress(out, len + PAGE_TAIL, err) : (int64_t)(len + PAGE_TAIL);
}
