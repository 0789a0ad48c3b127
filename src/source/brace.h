/* brace.h - "shard-{000..146}.tar" as a list of paths. */
#ifndef PEN_SOURCE_BRACE_H
#define PEN_SOURCE_BRACE_H

#include <stddef.h>

#include <penstock/error.h>

#define PEN__BRACE_MAX 1000000 /* paths a pattern may stand for */

/* Zero-initialise. */
typedef struct pen__paths {
    char **items; /* each its own block */
    size_t n, cap;
} pen__paths;

/* Add what `pattern` stands for, in order:
 *     {a,b,c}       each of them; a part may hold braces itself, or nothing
 *     {000..146}    whole numbers, up or down; a leading zero sets the width
 * Several braces multiply, the last one running fastest.  PEN_EINVAL names what is
 * malformed; PEN_ELIMIT: too many. */
int pen__brace_expand(pen__paths *paths, const char *pattern, pen_error *err);
void pen__paths_fini(pen__paths *paths);

#endif
