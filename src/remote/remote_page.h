/* remote_page.h - a page of a remote dataset's manifest: which samples there are.
 *
 * Little endian: "PENM", u32 version, u64 first id, u32 n, u32 flags (bit 0: headers, bit 1:
 * fields), then n records: u64 length, i64 label, u16 length of the key, 12 bytes of image header
 * and fields if flags say so, the key; and u32 CRC-32C over all before it.  Fields: u8 mask (1 <<
 * pen_field), and for each of them u32 length; those that nobody knows are passed over.
 */
#ifndef PEN_REMOTE_REMOTE_PAGE_H
#define PEN_REMOTE_REMOTE_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/dataset.h>

typedef struct pen__page_record {
    uint32_t length;
    int32_t label;
    const char *key; /* no NUL in it nor behind it */
    size_t key_len;
    const uint8_t *header; /* 12 bytes, or NULL */
    unsigned fields;       /* 1 << pen_field of each beside the image */
    uint32_t field_length[PEN_FIELD_COUNT];
} pen__page_record;

/* A record's header as a number of engine/headers.h; 0: the server does not know it, or it is none
 * that an image could have. */
uint64_t pen__page_header(const uint8_t header[12]);

/* Gets each record in turn; another answer than 0 ends the parsing with it. */
typedef int (*pen__page_sink)(void *ctx, const pen__page_record *record, pen_error *err);

/* Is it what was sent?  Whoever asks again gets another, if not. */
bool pen__page_is_intact(const uint8_t *src, size_t len);

/* Parse the page that begins with sample `first` and must hold `n` samples.  Never reads past
 * src+len, whatever the input.  PEN_ECORRUPT, or what the sink says. */
int pen__page_parse(const uint8_t *src, size_t len, uint64_t first, uint32_t n, pen__page_sink sink,
                    void *ctx, pen_error *err);

#endif
