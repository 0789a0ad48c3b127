/* unpack.h - the client's side of parcels: from one that arrived to what a plan begins with.
 *
 * Nothing a parcel says is trusted.  The plan comes from the pipeline, the key and the image's
 * header; a payload has to fit it: pixels have the size that the plan says, a cut JPEG file
 * holds the window, a file that was coded has the length the dataset knows.
 */
#ifndef PEN_ENGINE_UNPACK_H
#define PEN_ENGINE_UNPACK_H

#include "codec/bytes.h"
#include "engine/parcel.h"
#include "engine/run.h"

typedef struct pen__unpacking {
    pen__parcel parcel;
    pen_image_info cut_info; /* of the payload: a cut JPEG file or the file itself */
    pen__input in;           /* complete after pen__unpack_open */
    size_t file_bytes;       /* at the front of the scratch memory: the file that was coded */
} pen__unpacking;

/* Check the parcel at src, and make the plan of what is left to do.  `raw_len` is the length of the
 * sample's file, as the dataset knows it.  The bytes may be written to until the sample is done.
 * plan->scratch_bytes and library_bytes count what unpacking takes as well.
 * 0, PEN_ECORRUPT, or what a probe or a draw says. */
int pen__unpack_plan(pen__unpacking *u, const pen_pipeline *pipe, const pen_key *key, uint8_t *src,
                     size_t len, size_t raw_len, pen_params *params, pen__plan *plan,
                     pen_error *err);

/* Make u->in ready; *scratch moves on to what pen__run may use.  `coder` is the thread's, or a
 * NULL that becomes it.  0, PEN_ECORRUPT, PEN_ENOMEM. */
int pen__unpack_open(pen__unpacking *u, pen__bytes_coder **coder, uint8_t **scratch,
                     pen_error *err);

/* Run a parcel into dst (pipe->shape.bytes) as pen_pipeline_run does a file.  Slow path, for
 * tests and tools: allocates what it needs. */
int pen__unpack_run(const pen_pipeline *pipe, const pen_key *key, uint8_t *src, size_t len,
                    size_t raw_len, void *dst, pen_error *err);

#endif
