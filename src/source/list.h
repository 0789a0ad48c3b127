/* list.h - a dataset of files that a program names. */
#ifndef PEN_SOURCE_LIST_H
#define PEN_SOURCE_LIST_H

#include <penstock/dataset.h>

/* What pen_dataset_from_list was given; all of it the caller's. */
typedef struct pen__list {
    const char *root;
    const char *const *paths; // (n)
    const int64_t *labels;    // (n), or NULL
    int64_t n;
    const char *const *classes; // (n_classes)
    int64_t n_classes;          /* 0: labels have no names */
} pen__list;

/* Fill the index, keys included, and the classes.  `opts` is complete. */
int pen__list_fill(pen_dataset *ds, const pen__list *list, const pen_dataset_opts *opts,
                   pen_error *err);

#endif
