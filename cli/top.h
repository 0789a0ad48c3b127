/* top.h - the parts of `penstock top`: asking a process, and drawing what it says.
 *
 * What comes over the wire is foreign: sizes are limited, whatever is missing or of another
 * type is "-", and text is made printable before it reaches a terminal.
 */
#ifndef PEN_CLI_TOP_H
#define PEN_CLI_TOP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { TOP_WHY_CAP = 512, TOP_WISHES_CAP = 1024 };

/* ---- top_fetch.c ---- */

/* Ask `target`, a process number or HOST:PORT, for its /status.json.  A new reference, or NULL
 * with the reason in `why`. */
json_t *top_fetch(const char *target, char why[TOP_WHY_CAP]);
/* Have a process turn knobs: "loader=0&workers=3&io=auto".  Its status afterwards, or NULL. */
json_t *top_turn(const char *target, const char *wishes, char why[TOP_WHY_CAP]);
/* The JSON in an HTTP response; NULL if it is none, or no status. */
json_t *top_parse(const char *response, size_t len, char why[TOP_WHY_CAP]);

/* ---- top_frame.c ---- */

typedef struct top_style {
    int columns;  /* bars are made to fit */
    bool is_utf8; /* blocks and sparklines; else # and digits */
} top_style;

/* Has a loader said anything newer than `before`?  Worker processes speak between batches only. */
bool top_has_moved(const json_t *status, const json_t *before);

/* One frame, all loaders, without control codes.  `before`: an earlier status, for rates, or
 * NULL: rates are since the first batch. */
void top_frame(FILE *out, const json_t *status, const json_t *before, top_style style);

#endif
