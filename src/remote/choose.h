/* choose.h - what a storage node may do with a sample before it sends it. */
#ifndef PEN_REMOTE_CHOOSE_H
#define PEN_REMOTE_CHOOSE_H

#include <stdint.h>

#include <penstock/error.h>
#include <penstock/pipeline.h>

typedef enum pen__offload { PEN__OFFLOAD_NONE = 0, PEN__OFFLOAD_ALL } pen__offload;

/* What $PENSTOCK_OFFLOAD says: "none" or "all", the default.  PEN_EINVAL for anything else. */
int pen__offload_read(pen__offload *out, pen_error *err);

typedef struct pen__choice {
    int max_cut;    /* furthest cut, in operations of the line */
    uint32_t forms; /* mask of what may come: 1 << pen__form */
} pen__choice;

/* For the sample of this key.  `pipe` may be NULL: the stored file. */
pen__choice pen__choose(pen__offload offload, const pen_pipeline *pipe, const pen_key *key);

#endif
