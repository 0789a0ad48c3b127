/* scan.c - lines, words and numbers of foreign text. */
#include "telemetry/scan.h"

#include <math.h>
#include <string.h>

pen__scan pen__scan_text(const char *text, size_t len)
{
    return (pen__scan){text, text + len};
}

static size_t length(pen__scan piece)
{
    return (size_t)(piece.end - piece.at);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

bool pen__scan_line(pen__scan *text, pen__scan *line)
{
    if (text->at == text->end)
        return false;
    const char *end = memchr(text->at, '\n', length(*text));
    *line = (pen__scan){text->at, end ? end : text->end};
    text->at = end ? end + 1 : text->end;
    return true;
}

bool pen__scan_word(pen__scan *line, pen__scan *word)
{
    while (line->at < line->end && is_blank(*line->at))
        line->at++;
    word->at = line->at;
    while (line->at < line->end && !is_blank(*line->at))
        line->at++;
    word->end = line->at;
    return word->at < word->end;
}

bool pen__scan_starts(pen__scan word, const char *prefix)
{
    size_t n = strlen(prefix);
    return length(word) >= n && memcmp(word.at, prefix, n) == 0;
}

bool pen__scan_is(pen__scan word, const char *text)
{
    return length(word) == strlen(text) && pen__scan_starts(word, text);
}

pen__scan pen__scan_after(pen__scan word, size_t n)
{
    word.at += n < length(word) ? n : length(word);
    return word;
}

double pen__scan_count(pen__scan word)
{
    double value = 0; /* exact: it stops before it would round */
    if (word.at == word.end)
        return NAN;
    for (const char *p = word.at; p < word.end; p++) {
        if (*p < '0' || *p > '9')
            return NAN;
        value = value * 10 + (*p - '0');
        if (value > PEN__COUNT_MAX)
            return NAN;
    }
    return value;
}

double pen__scan_decimal(pen__scan word)
{
    const char *point = length(word) > 0 ? memchr(word.at, '.', length(word)) : NULL;
    if (!point)
        return pen__scan_count(word);
    pen__scan digits = {point + 1, word.end};
    double fraction = pen__scan_count(digits);
    for (size_t i = 0; i < length(digits); i++)
        fraction /= 10;
    return pen__scan_count((pen__scan){word.at, point}) + fraction;
}

double pen__scan_next(pen__scan *line)
{
    pen__scan word;
    return pen__scan_word(line, &word) ? pen__scan_count(word) : NAN;
}

double pen__scan_value(pen__scan text, const char *key)
{
    pen__scan line, word;
    while (pen__scan_line(&text, &line))
        if (pen__scan_word(&line, &word) && pen__scan_is(word, key))
            return pen__scan_next(&line);
    return NAN;
}
