/* describe.h - a pipeline as one line of canonical JSON, and back. */
#ifndef PEN_ENGINE_DESCRIBE_H
#define PEN_ENGINE_DESCRIBE_H

#include "engine/pipeline.h"

/* Names by number, each list ends with NULL. */
extern const char *const pen__filter_names[], *const pen__padding_names[],
                                                  *const pen__scaling_names[],
                                                      *const pen__dtype_names[],
                                                          *const pen__layout_names[],
                                                              *const pen__augment_policy_names[];

/* Everything that can change a byte of the output, and nothing else; the
 * pipeline's hash is taken over it.  The caller frees; NULL without memory. */
char *pen__describe(const pen_pipeline *pipe);

enum { PEN__DESCRIPTION_MAX = 64 * 1024 };

/* The pipeline that `text` describes: pen__describe of it gives exactly these bytes.
 * Foreign bytes: at most PEN__DESCRIPTION_MAX of them; reads nothing past text+len.
 * PEN_EINVAL: no description, or not a canonical one; PEN_EUNSUPPORTED: of another numerics
 * version; PEN_ELIMIT, PEN_ENOMEM.  On success the caller owns *out. */
int pen__describe_read(pen_pipeline **out, const char *text, size_t len, pen_error *err);

#endif
