/* describe.h - a pipeline as one line of canonical JSON. */
#ifndef PEN_ENGINE_DESCRIBE_H
#define PEN_ENGINE_DESCRIBE_H

#include "engine/pipeline.h"

/* Everything that can change a byte of the output, and nothing else; the
 * pipeline's hash is taken over it.  The caller frees; NULL without memory. */
char *pen__describe(const pen_pipeline *pipe);

#endif
