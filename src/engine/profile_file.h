/* profile_file.h - what a loader has learned of a dataset that is elsewhere, kept from run to run.
 *
 * One file a dataset, named by the dataset's hash, in the cache directory beside the indexes: the
 * headers of images (8 bytes a sample), their traits (4), and what is typical of all.  Headers are
 * of use to every pipeline; the rest only to the one it was learned with.
 *
 * It only saves time.  Whatever it says, nothing but an estimate changes; a file that is damaged,
 * another dataset's or another version's is as good as none.
 */
#ifndef PEN_ENGINE_PROFILE_FILE_H
#define PEN_ENGINE_PROFILE_FILE_H

#include "engine/estimate.h"
#include "engine/headers.h"
#include "engine/traits.h"
#include "source/source.h"

/* What is typical of all samples. */
#define PEN__LEAST_DETAIL 0.01
#define PEN__MOST_DETAIL  8.0
typedef struct pen__typical {
    pen_image_info info;    /* of the last one */
    double bytes_per_pixel; /* of files, within the limits above */
    pen__corrections corrections;
} pen__typical;

typedef struct pen__learned {
    pen__headers *headers;
    pen__traits *traits;
    pen__typical *typical;
    const char *pipeline; /* its hash */
} pen__learned;

/* What was found. */
typedef enum pen__profile_use {
    PEN__PROFILE_NONE = 0, /* no profile of this dataset */
    PEN__PROFILE_HEADERS,  /* another pipeline's: of use are the headers */
    PEN__PROFILE_ALL,
} pen__profile_use;

/* Take over what the `len` bytes at src say of samples of which nothing is known, and of all
 * samples unless typical is NULL.  Never reads past src + len, whatever the input. */
pen__profile_use pen__profile_parse(const pen__learned *learned, const char *dataset,
                                    const uint8_t *src, size_t len);

/* The bytes of such a file, for the caller to free; NULL: no memory. */
uint8_t *pen__profile_write(const pen__learned *learned, const char *dataset, size_t *len);

/* Bytes of the file, and of memory while it is read or written. */
int64_t pen__profile_bytes(int64_t n_samples);

/* Begin with what the dataset's file says, if there is one. */
pen__profile_use pen__profile_load(const pen__learned *learned, const pen_dataset *ds);
/* Write it, and beside what is known here what others have written meanwhile: a new file that
 * takes the place of the old one.  0 or PEN_EIO, PEN_ENOMEM. */
int pen__profile_save(const pen__learned *learned, const pen_dataset *ds, pen_error *err);

#endif
