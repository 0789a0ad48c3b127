/* exif.c - finds the orientation tag in a TIFF directory that may be hostile.
 *
 * A TIFF block is a byte-order mark, the offset of the first directory, and
 * there a count and 12-byte entries (tag, type, count, value).  All reads go
 * through read_u16 and read_u32, which check the bounds; nothing is followed but the
 * one offset, so there is no way to loop.
 *
 * Like Pillow: the last entry of several wins, any integer type is accepted,
 * and an entry with several values is no orientation.
 */
#include "ops/exif.h"

#include <stdbool.h>
#include <string.h>

enum { TAG_ORIENTATION = 0x0112, ENTRY_BYTES = 12 };
enum { TYPE_BYTE = 1, TYPE_SHORT = 3, TYPE_LONG = 4, TYPE_SSHORT = 8, TYPE_SLONG = 9 };

typedef struct tiff {
    const uint8_t *data;
    size_t len;
    bool is_little;
} tiff;

/* Out of bounds reads as 0, which is no valid tag, count or orientation. */
static uint32_t read_u16(const tiff *t, size_t at)
{
    if (at > t->len || t->len - at < 2)
        return 0;
    const uint8_t *p = t->data + at;
    return t->is_little ? (uint32_t)(p[0] | p[1] << 8) : (uint32_t)(p[0] << 8 | p[1]);
}

static uint32_t read_u32(const tiff *t, size_t at)
{
    if (at > t->len || t->len - at < 4)
        return 0;
    uint32_t first = read_u16(t, at), second = read_u16(t, at + 2);
    return t->is_little ? first | second << 16 : first << 16 | second;
}

/* The value of a one-value entry lies in its last four bytes, left-justified. */
static uint32_t entry_value(const tiff *t, size_t entry)
{
    if (read_u32(t, entry + 4) != 1)
        return 0;
    switch (read_u16(t, entry + 2)) {
    case TYPE_BYTE:
        return t->data[entry + 8];
    case TYPE_SHORT:
    case TYPE_SSHORT:
        return read_u16(t, entry + 8);
    case TYPE_LONG:
    case TYPE_SLONG:
        return read_u32(t, entry + 8);
    default:
        return 0;
    }
}

static int sensible(uint32_t orientation)
{
    return orientation >= 1 && orientation <= 8 ? (int)orientation : 1;
}

static bool open_tiff(tiff *t, const uint8_t *data, size_t len)
{
    if (len >= 6 && memcmp(data, "Exif\0\0", 6) == 0) {
        data += 6;
        len -= 6;
    }
    if (len < 8)
        return false;
    *t = (tiff){data, len, data[0] == 'I'};
    bool is_marked = memcmp(data, "II", 2) == 0 || memcmp(data, "MM", 2) == 0;
    uint32_t magic = read_u16(t, 2); /* some writers swap the 42's bytes */
    return is_marked && (magic == 42 || magic == 42 << 8);
}

int pen__exif_orientation(const uint8_t *data, size_t len)
{
    tiff t;
    if (!open_tiff(&t, data, len))
        return 0;
    size_t directory = read_u32(&t, 4);
    uint32_t n_entries = read_u16(&t, directory);
    int orientation = 0;
    for (uint32_t i = 0; i < n_entries; i++) {
        size_t entry = directory + 2 + (size_t)i * ENTRY_BYTES;
        if (entry > t.len || t.len - entry < ENTRY_BYTES)
            break;
        if (read_u16(&t, entry) == TAG_ORIENTATION)
            orientation = sensible(entry_value(&t, entry));
    }
    return orientation;
}

int pen__xmp_orientation(const uint8_t *data, size_t len)
{
    static const char key[] = "tiff:Orientation";
    const size_t n_key = sizeof key - 1;
    const uint8_t *end = data + len, *at = data;
    while (at && (size_t)(end - at) > n_key) {
        at = memmem(at, (size_t)(end - at), key, n_key);
        if (!at)
            break;
        at += n_key;
        if (end - at >= 2 && *at == '>')
            at += 1;
        else if (end - at >= 3 && memcmp(at, "=\"", 2) == 0)
            at += 2;
        else
            continue;
        if (*at >= '0' && *at <= '9')
            return sensible((uint32_t)(*at - '0'));
    }
    return 0;
}
