/* tar_walk.c - tar headers.
 *
 * Invariants: `at` is a multiple of 512 and at most the archive's size; a
 * member's data, padding included, ends within the archive before the member is
 * handed out.  Nothing that could drop data quietly is accepted: an archive may
 * end without its zero blocks only exactly after a member, and what follows the
 * zero blocks must be zero too, for concatenated archives look like that.
 */
#include "source/tar_walk.h"

#include <string.h>

#include "base/fail.h"
#include "source/fileio.h"
#include "source/index.h"
#include "source/names.h"

#define TAIL_BLOCKS 20 /* what tar pads an archive to */

/* POSIX.1-1988 header, with the fields used here. */
typedef struct header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8];
    char type;
    char linkname[100], magic[6], version[2], uname[32], gname[32], major[8], minor[8];
    char prefix[155], pad[12];
} header;
_Static_assert(sizeof(header) == PEN__BLOCK, "a tar header is one block");

void pen__tar_walk_init(pen__tar_walk *walk, const pen__tar_bytes *in)
{
    memset(walk, 0, sizeof *walk);
    walk->in = *in;
}

static int truncated(const pen__tar_walk *walk, uint64_t at, pen_error *err)
{
    return pen__fail(err, PEN_ECORRUPT, (int64_t)at,
                     "truncated tar: what begins at byte %llu runs past the end at %llu",
                     (unsigned long long)at, (unsigned long long)walk->in.size);
}

int pen__tar_bytes_at(pen__tar_walk *walk, uint64_t at, size_t n, const uint8_t **out,
                      pen_error *err)
{
    if (n > PEN__BLOCK || at > walk->in.size || n > walk->in.size - at)
        return truncated(walk, at, err);
    if (walk->in.mem) {
        *out = walk->in.mem + at;
        return 0;
    }
    if (at < walk->window_at || at + n > walk->window_at + walk->window_len) {
        walk->window_len = 0;
        int64_t got = pen__pread_full(walk->in.fd, walk->window, sizeof walk->window, at);
        if (got < 0)
            return pen__fail_errno(err, (int)-got, "read", "tar header");
        if ((size_t)got < n)
            return pen__fail(err, PEN_EIO, (int64_t)at, "the tar became shorter while it was read");
        walk->window_at = at;
        walk->window_len = (size_t)got;
    }
    *out = walk->window + (at - walk->window_at);
    return 0;
}

/* Octal digits, spaces in front, ended by a space, a NUL or the field's end;
 * or base 256 when the first bit is set.  Blank means 0. */
static bool parse_number(const char *field, size_t len, uint64_t *out)
{
    const uint8_t *p = (const uint8_t *)field, *end = p + len;
    uint64_t value = 0;
    if (*p & 0x80) {
        value = *p++ & 0x7F;
        for (; p < end; p++) {
            if (value >> 55 != 0) /* also every negative number */
                return false;
            value = value << 8 | *p;
        }
        *out = value;
        return true;
    }
    while (p < end && *p == ' ')
        p++;
    for (; p < end && *p != ' ' && *p != '\0'; p++) {
        if (*p < '0' || *p > '7')
            return false;
        value = value << 3 | (uint64_t)(*p - '0'); /* 12 digits fit */
    }
    *out = value;
    return true;
}

static bool is_zero(const uint8_t *block)
{
    for (size_t i = 0; i < PEN__BLOCK; i++)
        if (block[i] != 0)
            return false;
    return true;
}

/* The checksum is the sum of all bytes, its own field taken as spaces; some old
 * writers summed signed chars. */
static bool checksum_holds(const uint8_t *block)
{
    const header *h = (const header *)(const void *)block;
    uint64_t want;
    if (!parse_number(h->checksum, sizeof h->checksum, &want))
        return false;
    int64_t plain = 0, with_sign = 0;
    size_t from = offsetof(header, checksum), to = from + sizeof h->checksum;
    for (size_t i = 0; i < PEN__BLOCK; i++) {
        uint8_t byte = i >= from && i < to ? ' ' : block[i];
        plain += byte;
        with_sign += (int8_t)byte;
    }
    return (int64_t)want == plain || (int64_t)want == with_sign;
}

/* After a zero block there is nothing more, or there should be. */
static int check_tail(pen__tar_walk *walk, pen_error *err)
{
    for (int i = 0; i < TAIL_BLOCKS && walk->in.size - walk->at >= PEN__BLOCK; i++) {
        const uint8_t *block;
        int rc = pen__tar_bytes_at(walk, walk->at, PEN__BLOCK, &block, err);
        if (rc != 0)
            return rc;
        if (!is_zero(block))
            return pen__fail(err, PEN_ECORRUPT, (int64_t)walk->at,
                             "data after the end of the tar, at byte %llu: archives that were "
                             "concatenated must be separate shards",
                             (unsigned long long)walk->at);
        walk->at += PEN__BLOCK;
    }
    return 0;
}

static int bad_pax(uint64_t at, const char *what, pen_error *err)
{
    return pen__fail(err, PEN_ECORRUPT, (int64_t)at, "bad pax header at byte %llu: %s",
                     (unsigned long long)at, what);
}

static bool parse_decimal(const uint8_t *p, size_t len, uint64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < len; i++) {
        if (p[i] < '0' || p[i] > '9' || *out > (INT64_MAX - 9) / 10)
            return false;
        *out = *out * 10 + (uint64_t)(p[i] - '0');
    }
    return len > 0;
}

/* Copy a long name of `len` bytes, which may be longer than a block. */
static int take_name(pen__tar_walk *walk, uint64_t at, uint64_t len, pen_error *err)
{
    if (len >= sizeof walk->extended_name)
        return pen__fail(err, PEN_ELIMIT, (int64_t)at, "a member name of %llu bytes at byte %llu",
                         (unsigned long long)len, (unsigned long long)at);
    for (size_t done = 0; done < len;) {
        size_t n = len - done < PEN__BLOCK ? (size_t)len - done : PEN__BLOCK;
        const uint8_t *bytes = NULL;
        int rc = pen__tar_bytes_at(walk, at + done, n, &bytes, err);
        if (rc != 0)
            return rc;
        memcpy(walk->extended_name + done, bytes, n);
        done += n;
    }
    walk->extended_len = (size_t)len;
    walk->has_name = true;
    return 0;
}

/* One record's key and where its value is. */
static int take_pax_value(pen__tar_walk *walk, const char *key, size_t key_len, uint64_t at,
                          uint64_t len, pen_error *err)
{
    const uint8_t *bytes;
    if (key_len == 4 && memcmp(key, "path", 4) == 0)
        return take_name(walk, at, len, err);
    if (key_len >= 10 && memcmp(key, "GNU.sparse", 10) == 0)
        return pen__fail(err, PEN_EUNSUPPORTED, (int64_t)at,
                         "a sparse file at byte %llu: write the tar without --sparse",
                         (unsigned long long)at);
    if (key_len != 4 || memcmp(key, "size", 4) != 0)
        return 0;
    if (len > 20)
        return bad_pax(at, "a size of more than 20 digits", err);
    int rc = pen__tar_bytes_at(walk, at, (size_t)len, &bytes, err);
    if (rc != 0)
        return rc;
    if (!parse_decimal(bytes, (size_t)len, &walk->extended_size))
        return bad_pax(at, "a size that is no number", err);
    walk->has_size = true;
    return 0;
}

/* "27 path=some/long/name.jpg\n": the length counts itself.  *next: the record after. */
static int read_pax_record(pen__tar_walk *walk, uint64_t at, uint64_t end, uint64_t *next,
                           pen_error *err)
{
    const uint8_t *p;
    char text[96];
    size_t n = end - at < sizeof text ? (size_t)(end - at) : sizeof text, digits = 0;
    int rc = pen__tar_bytes_at(walk, at, n, &p, err);
    if (rc != 0)
        return rc;
    memcpy(text, p, n); /* the window moves below */
    while (digits < n && text[digits] >= '0' && text[digits] <= '9')
        digits++;
    uint64_t len;
    if (digits == n || text[digits] != ' ' || !parse_decimal((uint8_t *)text, digits, &len) ||
        len > end - at || len < digits + 3)
        return bad_pax(at, "a record with a bad length", err);
    rc = pen__tar_bytes_at(walk, at + len - 1, 1, &p, err);
    if (rc != 0)
        return rc;
    if (*p != '\n')
        return bad_pax(at, "a record that does not end in a line feed", err);
    *next = at + len;
    const char *key = text + digits + 1;
    size_t left = n - digits - 1;
    const char *equals = memchr(key, '=', left);
    if (!equals || (uint64_t)(equals - text) + 1 >= len)
        return len > n ? 0 : bad_pax(at, "a record without '='", err); /* a long key: not ours */
    uint64_t value_at = at + (uint64_t)(equals - text) + 1;
    return take_pax_value(walk, key, (size_t)(equals - key), value_at, *next - 1 - value_at, err);
}

static int read_pax(pen__tar_walk *walk, uint64_t at, uint64_t size, pen_error *err)
{
    int rc = 0;
    for (uint64_t next = 0, end = at + size; rc == 0 && at < end; at = next)
        rc = read_pax_record(walk, at, end, &next, err);
    return rc;
}

/* A header for all members that follow: a comment as a rule, never a name. */
static int read_global_pax(pen__tar_walk *walk, uint64_t at, uint64_t size, pen_error *err)
{
    if (walk->has_name || walk->has_size)
        return bad_pax(at, "a global one between a member and its own", err);
    int rc = read_pax(walk, at, size, err);
    if (rc == 0 && (walk->has_name || walk->has_size))
        return bad_pax(at, "one name or size for all members", err);
    return rc;
}

/* A GNU long name: its body up to the first NUL. */
static int read_long_name(pen__tar_walk *walk, uint64_t at, uint64_t size, pen_error *err)
{
    if (size == 0)
        return pen__fail(err, PEN_ECORRUPT, (int64_t)at, "an empty long name at byte %llu",
                         (unsigned long long)at);
    int rc = take_name(walk, at, size, err);
    if (rc == 0)
        walk->extended_len = strnlen(walk->extended_name, walk->extended_len);
    return rc;
}

/* Where the member's name is: what extended headers said, or the header's own. */
static int read_name(pen__tar_walk *walk, const header *h, uint64_t at, pen_error *err)
{
    char plain[sizeof h->prefix + 1 + sizeof h->name];
    const char *name = walk->extended_name, *why = "";
    size_t len = walk->extended_len;
    if (!walk->has_name) {
        bool has_prefix = memcmp(h->magic, "ustar\0", 6) == 0 && h->prefix[0] != '\0';
        len = has_prefix ? strnlen(h->prefix, sizeof h->prefix) : 0;
        memcpy(plain, h->prefix, len);
        if (len > 0)
            plain[len++] = '/';
        size_t own = strnlen(h->name, sizeof h->name);
        memcpy(plain + len, h->name, own);
        len += own;
        name = plain;
    }
    int64_t n = pen__path_clean(name, len, false, walk->name, sizeof walk->name, &why);
    if (n >= 0)
        return (int)n;
    pen__shown shown;
    return pen__fail(err, n == PEN_ELIMIT ? PEN_ELIMIT : PEN_ECORRUPT, (int64_t)at,
                     "refused: the name '%s' at byte %llu %s", pen__show(&shown, name, len),
                     (unsigned long long)at, why);
}

/* Before ustar had a type for them, directories were files whose name ends in a slash. */
static bool names_a_directory(const pen__tar_walk *walk, const header *h)
{
    const char *name = walk->has_name ? walk->extended_name : h->name;
    size_t len = walk->has_name ? walk->extended_len : strnlen(h->name, sizeof h->name);
    return len > 0 && name[len - 1] == '/';
}

static const char *refused_type(char type)
{
    switch (type) {
    case '1':
        return "a hard link (write the tar with --hard-dereference)";
    case '2':
        return "a symbolic link (write the tar with --dereference)";
    case '3':
    case '4':
        return "a device";
    case '6':
        return "a FIFO";
    case 'S':
        return "a sparse file (write the tar without --sparse)";
    default:
        return "of a type this reader does not know";
    }
}

/* What one header is: extended headers are taken in, files become *out.
 * Returns 1 for a file, 0 for anything to be passed over. */
static int take_header(pen__tar_walk *walk, const header *h, pen__tar_member *out, pen_error *err)
{
    switch (h->type) {
    case 'L':
        return read_long_name(walk, out->data_at, out->size, err);
    case 'K': /* the target of a link, which is refused when it comes */
        return 0;
    case 'x':
        return read_pax(walk, out->data_at, out->size, err);
    case 'g':
        return read_global_pax(walk, out->data_at, out->size, err);
    case 'V': /* volume label */
        return 0;
    }
    bool is_file = h->type == '0' || h->type == '\0' || h->type == '7';
    if (h->type == '5' || (is_file && names_a_directory(walk, h))) {
        walk->has_name = walk->has_size = false;
        return 0;
    }
    int len = read_name(walk, h, out->header_at, err);
    walk->has_name = walk->has_size = false;
    if (len < 0)
        return len;
    pen__shown shown;
    if (!is_file)
        return pen__fail(err, PEN_EUNSUPPORTED, (int64_t)out->header_at,
                         "refused: '%s' at byte %llu is %s",
                         pen__show(&shown, walk->name, (size_t)len),
                         (unsigned long long)out->header_at, refused_type(h->type));
    out->name = walk->name;
    out->name_len = (size_t)len;
    return 1;
}

/* Size and extent of the member whose header is at walk->at; moves on past it. */
static int measure(pen__tar_walk *walk, const header *h, pen__tar_member *out, pen_error *err)
{
    uint64_t at = walk->at, size;
    if (!parse_number(h->size, sizeof h->size, &size))
        return pen__fail(err, PEN_ECORRUPT, (int64_t)at, "a size out of range at byte %llu",
                         (unsigned long long)at);
    bool is_extended = h->type == 'L' || h->type == 'K' || h->type == 'x' || h->type == 'g';
    if (walk->has_size && !is_extended)
        size = walk->extended_size;
    bool has_body = h->type < '1' || h->type > '6' || is_extended; /* links, devices, dirs: none */
    if (!has_body)
        size = 0;
    uint64_t left = walk->in.size - at - PEN__BLOCK;
    if (size > left || (size + PEN__BLOCK - 1) / PEN__BLOCK * PEN__BLOCK > left)
        return truncated(walk, at, err);
    out->header_at = at;
    out->data_at = at + PEN__BLOCK;
    out->size = size;
    walk->at = out->data_at + (size + PEN__BLOCK - 1) / PEN__BLOCK * PEN__BLOCK;
    return 0;
}

/* A header block, checked.  1: there is one, 0: the archive ends. */
static int read_header(pen__tar_walk *walk, header *out, pen_error *err)
{
    if (walk->at == walk->in.size && walk->at > 0 && !walk->has_name && !walk->has_size)
        return 0;
    const uint8_t *block;
    int rc = pen__tar_bytes_at(walk, walk->at, PEN__BLOCK, &block, err);
    if (rc != 0)
        return rc;
    if (is_zero(block)) {
        if (walk->has_name || walk->has_size)
            return truncated(walk, walk->at, err);
        return check_tail(walk, err);
    }
    if (!checksum_holds(block))
        return pen__fail(err, PEN_ECORRUPT, (int64_t)walk->at, "%s at byte %llu",
                         walk->at ? "a wrong header checksum" : "not a tar: no valid header",
                         (unsigned long long)walk->at);
    memcpy(out, block, sizeof *out);
    return 1;
}

int pen__tar_next(pen__tar_walk *walk, pen__tar_member *out, pen_error *err)
{
    for (;;) {
        header h;
        int rc = read_header(walk, &h, err);
        if (rc <= 0)
            return rc;
        rc = measure(walk, &h, out, err);
        if (rc == 0)
            rc = take_header(walk, &h, out, err);
        if (rc != 0)
            return rc;
    }
}
