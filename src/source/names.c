/* names.c - extensions, safe paths, labels as text. */
#include "source/names.h"

#include <string.h>
#include <strings.h>

bool pen__is_image_extension(const char *extension, size_t len)
{
    static const char *const known[] = {"jpg", "jpeg", "png", "webp"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strlen(known[i]) == len && strncasecmp(known[i], extension, len) == 0)
            return true;
    return false;
}

size_t pen__stem_length(const char *name, size_t len)
{
    for (size_t i = len; i > 1; i--)
        if (name[i - 1] == '.')
            return i - 1;
    return len;
}

size_t pen__leaf_start(const char *path, size_t len)
{
    while (len > 0 && path[len - 1] != '/')
        len--;
    return len;
}

size_t pen__path_stem(const char *path, size_t len)
{
    size_t leaf = pen__leaf_start(path, len);
    return leaf + pen__stem_length(path + leaf, len - leaf);
}

static int64_t refuse(int code, const char **why, const char *reason)
{
    *why = reason;
    return code;
}

int64_t pen__path_clean(const char *path, size_t len, bool outside, char *dst, size_t dst_cap,
                        const char **why)
{
    if (memchr(path, '\0', len))
        return refuse(PEN_EINVAL, why, "contains a NUL byte");
    if (len >= dst_cap)
        return refuse(PEN_ELIMIT, why, "is too long");
    if (len > 0 && path[0] == '/' && !outside)
        return refuse(PEN_EINVAL, why, "is absolute (allow_outside permits it)");
    size_t n = 0;
    if (len > 0 && path[0] == '/')
        dst[n++] = '/';
    for (size_t at = 0; at < len;) {
        const char *slash = memchr(path + at, '/', len - at);
        size_t part = slash ? (size_t)(slash - path) - at : len - at;
        const char *from = path + at;
        at += part + 1;
        if (part == 0 || (part == 1 && from[0] == '.'))
            continue;
        if (part == 2 && from[0] == '.' && from[1] == '.' && !outside)
            return refuse(PEN_EINVAL, why, "has a '..' component");
        if (n > 0 && dst[n - 1] != '/')
            dst[n++] = '/';
        memcpy(dst + n, from, part);
        n += part;
    }
    dst[n] = '\0';
    return n > 0 ? (int64_t)n : refuse(PEN_EINVAL, why, "is empty");
}

int pen__parse_label(const char *text, size_t len, int32_t *out)
{
    bool negative = len > 0 && text[0] == '-';
    size_t at = negative ? 1 : 0;
    if (at == len)
        return PEN_EINVAL;
    int64_t value = 0;
    for (; at < len; at++) {
        if (text[at] < '0' || text[at] > '9')
            return PEN_EINVAL;
        if (value <= INT32_MAX) /* beyond that only the verdict counts */
            value = value * 10 + (text[at] - '0');
    }
    if (value > (negative ? 1 : INT32_MAX))
        return PEN_ELIMIT;
    *out = (int32_t)(negative ? -value : value);
    return 0;
}

const char *pen__show(pen__shown *shown, const char *bytes, size_t len)
{
    size_t room = sizeof shown->text - 1, n = 0;
    if (len > room) { /* the end of a path says more than its beginning */
        memcpy(shown->text, "...", 3);
        n = 3;
        bytes += len - (room - 3);
        len = room - 3;
    }
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)bytes[i];
        shown->text[n++] = c < 0x20 || c == 0x7F ? '?' : bytes[i];
    }
    shown->text[n] = '\0';
    return shown->text;
}
