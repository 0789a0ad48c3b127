/* remote_asked.c - see remote_asked.h. */
#include "remote/remote_asked.h"

#include <string.h>

#include "base/crc32c.h"
#include "remote/remote_http.h"

enum { DIGITS = 8 };

pen__asked pen__asked_begin(const char *url, const char *body, size_t len)
{
    const char *host = strstr(url, "://"), *target = host ? strchr(host + 3, '/') : NULL;
    const uint32_t sum = target ? pen__crc32c(0, target, strlen(target)) : 0;
    return (pen__asked){.sent = pen__crc32c(sum, body, len)};
}

/* Exactly eight of 0-9 a-f. */
static bool parse(const char *text, size_t len, uint32_t *out)
{
    static const char digits[] = "0123456789abcdef";
    uint32_t value = 0;
    if (len != DIGITS)
        return false;
    for (size_t i = 0; i < len; i++) {
        const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
        if (!digit)
            return false;
        value = value << 4 | (uint32_t)(digit - digits);
    }
    *out = value;
    return true;
}

void pen__asked_hear(pen__asked *asked, const char *line, size_t len)
{
    static const char status[] = "HTTP/";
    const char *value;
    if (len >= sizeof status - 1 && memcmp(line, status, sizeof status - 1) == 0)
        asked->is_told = false; /* another head: that before it was no answer yet */
    const int64_t n = pen__http_value(line, len, PEN__ASKED_HEADER ":", &value);
    if (n >= 0)
        asked->is_told = parse(value, (size_t)n, &asked->told);
}

pen__asked_verdict pen__asked_judge(const pen__asked *asked)
{
    if (!asked->is_told)
        return PEN__ASKED_UNTOLD;
    return asked->told == asked->sent ? PEN__ASKED_THIS : PEN__ASKED_SOMETHING_ELSE;
}

const char *pen__asked_words(pen__asked_verdict verdict)
{
    return verdict == PEN__ASKED_UNTOLD
               ? "its answer does not say what it was asked: is it of an older version?"
               : "what it was asked was damaged on its way: its answer is of something else";
}
