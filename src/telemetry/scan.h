/* scan.h - walk through text that somebody else wrote: lines, words, numbers.
 *
 * A pen__scan is a piece of a text, no NUL needed.  Nothing here reads outside it.
 * Numbers are doubles so that one value, NaN, can say "not told".
 */
#ifndef PEN_TELEMETRY_SCAN_H
#define PEN_TELEMETRY_SCAN_H

#include <stdbool.h>
#include <stddef.h>

/* Counts above this are refused: a double holds no larger one exactly, and no counter
 * of a real machine gets there. */
#define PEN__COUNT_MAX 9007199254740992.0 /* 2^53 */

typedef struct pen__scan {
    const char *at, *end;
} pen__scan;

pen__scan pen__scan_text(const char *text, size_t len);
/* Cut off the next line, without its end; false at the end of the text. */
bool pen__scan_line(pen__scan *text, pen__scan *line);
/* Cut off the next word, blanks skipped; false if there is none. */
bool pen__scan_word(pen__scan *line, pen__scan *word);
bool pen__scan_is(pen__scan word, const char *text);
bool pen__scan_starts(pen__scan word, const char *prefix);
/* The word without its first n bytes (all of them if it is shorter). */
pen__scan pen__scan_after(pen__scan word, size_t n);
/* A whole word as a number from 0 to PEN__COUNT_MAX, NaN for anything else. */
double pen__scan_count(pen__scan word);
/* The same with digits after a point allowed: "12.34". */
double pen__scan_decimal(pen__scan word);
/* The next word of a line as a count. */
double pen__scan_next(pen__scan *line);
/* The count after the word `key` in the first line that begins with it: "MemFree: 12 kB". */
double pen__scan_value(pen__scan text, const char *key);

#endif
