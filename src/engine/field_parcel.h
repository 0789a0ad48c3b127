/* field_parcel.h - a field of a sample (cls, json, txt) as it crosses the network: a head and a
 * payload, which is the field's bytes as they are stored, or coded.
 *
 *      0  u8   version, form (parcel.h: raw, zstd, lz4, snappy), field (pen_field), 0
 *      4  u32  length of the field as it is stored, little endian
 *
 * Whoever asks knows the length beforehand: nothing that is sent can become more than that.
 */
#ifndef PEN_ENGINE_FIELD_PARCEL_H
#define PEN_ENGINE_FIELD_PARCEL_H

#include <stdatomic.h>

#include <penstock/dataset.h>

#include "engine/parcel.h"

enum {
    PEN__FIELD_HEAD = 8,
    PEN__FIELD_VERSION = 1,
    PEN__FIELD_TINY = 40, /* bytes up to which coding is not tried: frames alone take as many */
};

/* The forms that a field may have. */
#define PEN__FIELD_FORMS (1U << PEN__FORM_RAW | PEN__FORMS_CODED_BYTES)

/* Would coding be tried for `len` bytes? */
static inline bool pen__field_may_shrink(uint32_t forms, size_t len)
{
    return len > PEN__FIELD_TINY && forms & PEN__FORMS_CODED_BYTES;
}

/* Write the smallest form of the `len` bytes at src that `forms` allows to dst; raw where none is
 * smaller, also if it is not in `forms`.  dst has room for PEN__FIELD_HEAD + len bytes, scratch for
 * len, and may be NULL, as may `coder`: then it is raw.  Once `cancel`, which may be NULL, is true,
 * no more is tried.  Returns the bytes written. */
size_t pen__field_pack(pen__bytes_coder *coder, pen_field field, uint32_t forms, const uint8_t *src,
                       size_t len, uint8_t *dst, uint8_t *scratch, const atomic_bool *cancel);

/* What came: head, and all its bytes `len`.  Is it what was asked for?  The payload is not looked
 * at.  0 or PEN_ECORRUPT. */
int pen__field_check(const uint8_t head[PEN__FIELD_HEAD], size_t len, pen_field field,
                     uint32_t forms, size_t raw_len, pen_error *err);

/* Is the payload the field itself?  Of a head that was checked. */
static inline bool pen__field_is_raw(const uint8_t head[PEN__FIELD_HEAD])
{
    return head[1] == PEN__FORM_RAW;
}

/* The field from its payload, `len` bytes at src, which was checked and is not raw.  Never writes
 * past dst+raw_len nor reads past src+len, whatever the bytes.  0, PEN_ECORRUPT, PEN_ENOMEM. */
int pen__field_unpack(pen__bytes_coder *coder, const uint8_t head[PEN__FIELD_HEAD],
                      const uint8_t *src, size_t len, uint8_t *dst, size_t raw_len, pen_error *err);

#endif
