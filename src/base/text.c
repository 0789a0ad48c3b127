/* text.c - growable strings. */
#include "base/text.h"

#include <locale.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/error.h>

#include "base/mem.h"

static bool reserve(pen__text *text, size_t more)
{
    if (text->failed)
        return false;
    if (text->len + more + 1 <= text->cap)
        return true;
    size_t cap = (text->len + more + 1) * 2;
    char *data = pen__realloc(text->data, cap);
    if (!data) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->cap = cap;
    return true;
}

static locale_t plain; /* made once, never freed */

static void make_plain(void)
{
    plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* The thread's locale, for the time being, is that of C: what is written here is read by
 * programs, what is read is written by them, and the user's may have 0,5 for 0.5.  0 if there is no
 * memory for it. */
static locale_t enter_plain(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_plain);
    return plain ? uselocale(plain) : (locale_t)0;
}

void pen__text_add(pen__text *text, const char *fmt, ...)
{
    const locale_t before = enter_plain();
    if (!before) {
        text->failed = true;
        return;
    }
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n >= 0 && reserve(text, (size_t)n)) {
        vsnprintf(text->data + text->len, (size_t)n + 1, fmt, again);
        text->len += (size_t)n;
    }
    va_end(again);
    uselocale(before);
}

double pen__text_number(const char *text, char **end)
{
    const locale_t before = enter_plain();
    *end = (char *)(uintptr_t)text;
    if (!before)
        return 0;
    const double number = strtod(text, end);
    uselocale(before);
    return number;
}

/* Length of the valid UTF-8 sequence at p, 0 if there is none. */
static size_t utf8_length(const unsigned char *p, size_t left)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (p[0] < 0x80)
        return 1;
    size_t n = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : p[0] >= 0xC0 ? 2 : 0;
    if (n == 0 || n > left)
        return 0;
    uint32_t code = p[0] & (0x7FU >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
        code = code << 6 | (p[i] & 0x3FU);
    }
    return code < least[n] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? 0 : n;
}

/* How many bytes stand in a JSON string as they are; up to some thousand. */
static size_t plain_length(const unsigned char *p, size_t left)
{
    size_t n = 0;
    while (n < left && n < 4096) {
        const size_t step = utf8_length(p + n, left - n);
        if (step == 0 || p[n] < 0x20 || p[n] == '"' || p[n] == '\\' || p[n] == 0x7F)
            break;
        n += step;
    }
    return n;
}

void pen__text_add_json(pen__text *text, const char *bytes, size_t len)
{
    pen__text_add(text, "\"");
    for (size_t i = 0; i < len;) {
        const size_t n_plain = plain_length((const unsigned char *)bytes + i, len - i);
        if (n_plain > 0) {
            pen__text_add(text, "%.*s", (int)n_plain, bytes + i);
            i += n_plain;
            continue;
        }
        const unsigned char c = (unsigned char)bytes[i++];
        pen__text_add(text, "\\u%04x", c < 0x80 ? c : 0xFFFD);
    }
    pen__text_add(text, "\"");
}

static const char hex_digits[] = "0123456789abcdef";

bool pen__text_is_utf8(const char *bytes, size_t len)
{
    for (size_t i = 0, n; i < len; i += n) {
        n = utf8_length((const unsigned char *)bytes + i, len - i);
        if (n == 0)
            return false;
    }
    return true;
}

void pen__text_add_hex(pen__text *text, const char *bytes, size_t len)
{
    char some[2 * 64];
    pen__text_add(text, "\"");
    for (size_t i = 0, n = 0; i < len; i++) {
        some[n++] = hex_digits[(unsigned char)bytes[i] >> 4];
        some[n++] = hex_digits[(unsigned char)bytes[i] & 15];
        if (n == sizeof some || i + 1 == len) {
            pen__text_add(text, "%.*s", (int)n, some);
            n = 0;
        }
    }
    pen__text_add(text, "\"");
}

static int hex_value(char digit)
{
    const char *found = digit ? strchr(hex_digits, digit) : NULL;
    return found ? (int)(found - hex_digits) : -1;
}

int64_t pen__text_from_hex(const char *hex, size_t len, char *dst, size_t dst_cap)
{
    if (len % 2 != 0)
        return PEN_EINVAL;
    if (len / 2 >= dst_cap)
        return PEN_ENOSPC;
    for (size_t i = 0; i < len; i += 2) {
        const int high = hex_value(hex[i]), low = hex_value(hex[i + 1]);
        if (high < 0 || low < 0)
            return PEN_EINVAL;
        dst[i / 2] = (char)(high << 4 | low);
    }
    dst[len / 2] = '\0';
    return (int64_t)(len / 2);
}

/* Every value but the first follows one of these. */
size_t pen__text_count_values(const char *text, size_t len)
{
    size_t n = 1;
    for (size_t i = 0; i < len; i++)
        n += (text[i] == ',') | (text[i] == '[') | (text[i] == '{');
    return n;
}

void pen__text_fini(pen__text *text)
{
    pen__free(text->data);
    memset(text, 0, sizeof *text);
}
