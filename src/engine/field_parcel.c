/* field_parcel.c - see field_parcel.h. */
#include "engine/field_parcel.h"

#include <string.h>

#include "base/fail.h"
#include "base/little_endian.h"

static void write_head(uint8_t *dst, pen__form form, pen_field field, size_t len)
{
    dst[0] = PEN__FIELD_VERSION;
    dst[1] = (uint8_t)form;
    dst[2] = (uint8_t)field;
    dst[3] = 0;
    pen__le_put(dst + 4, len, 4);
}

static bool is_cancelled(const atomic_bool *cancel)
{
    return cancel && atomic_load_explicit(cancel, memory_order_relaxed);
}

size_t pen__field_pack(pen__bytes_coder *coder, pen_field field, uint32_t forms, const uint8_t *src,
                       size_t len, uint8_t *dst, uint8_t *scratch, const atomic_bool *cancel)
{
    pen__form best = PEN__FORM_RAW;
    size_t least = len;
    const bool may_shrink = coder && scratch && pen__field_may_shrink(forms, len);
    for (int form = 0; may_shrink && form < PEN__FORM_COUNT && !is_cancelled(cancel); form++) {
        pen__bytes_codec codec;
        if (!(forms >> form & 1) || !pen__form_codec((pen__form)form, &codec))
            continue;
        const size_t n = pen__bytes_encode(coder, codec, src, len, scratch, least - 1);
        if (n == 0)
            continue;
        memcpy(dst + PEN__FIELD_HEAD, scratch, n);
        best = (pen__form)form;
        least = n;
    }
    if (best == PEN__FORM_RAW && len > 0)
        memcpy(dst + PEN__FIELD_HEAD, src, len);
    write_head(dst, best, field, len);
    return PEN__FIELD_HEAD + least;
}

int pen__field_check(const uint8_t head[PEN__FIELD_HEAD], size_t len, pen_field field,
                     uint32_t forms, size_t raw_len, pen_error *err)
{
    const size_t n = len - PEN__FIELD_HEAD;
    const uint32_t says = pen__le32(head + 4);
    const bool is_raw = pen__field_is_raw(head); /* what a server can always send */
    if (len < PEN__FIELD_HEAD || head[0] != PEN__FIELD_VERSION || head[3] != 0)
        return pen__fail(err, PEN_ECORRUPT, 0, "a field that does not begin like one");
    if (head[2] != (uint8_t)field)
        return pen__fail(err, PEN_ECORRUPT, 2, "another field than the one asked for");
    if (says != raw_len)
        return pen__fail(err, PEN_ECORRUPT, 4,
                         "the field has %u bytes there and %zu in the manifest", says, raw_len);
    if (head[1] >= PEN__FORM_COUNT || !(is_raw || (forms & PEN__FIELD_FORMS) >> head[1] & 1))
        return pen__fail(err, PEN_ECORRUPT, 1, "the field came in a form that was not asked for");
    if (is_raw ? n != raw_len : n == 0 || n >= raw_len)
        return pen__fail(err, PEN_ECORRUPT, -1, "a field of %zu bytes came in %zu", raw_len, n);
    return 0;
}

int pen__field_unpack(pen__bytes_coder *coder, const uint8_t head[PEN__FIELD_HEAD],
                      const uint8_t *src, size_t len, uint8_t *dst, size_t raw_len, pen_error *err)
{
    pen__bytes_codec codec;
    if (!pen__form_codec((pen__form)head[1], &codec))
        return pen__fail(err, PEN_ECORRUPT, 1, "a field in a form that is none");
    return pen__bytes_decode(coder, codec, src, len, dst, raw_len, err);
}
