/* offload.h - how much of a sample's journey a storage node makes.
 *
 * Only samples of remote datasets (penstock://...) are ever worked on elsewhere; for all others
 * this means nothing.  No choice changes a byte of the stream, only what crosses the network and
 * where the work is done.  docs/near-storage.md compares them.
 */
#ifndef PENSTOCK_OFFLOAD_H
#define PENSTOCK_OFFLOAD_H

#include <penstock/visibility.h>

/* X(enum, name, what a storage node does) */
#define PEN_OFFLOADS(X)                                                                      \
    X(DEFAULT, "default", "what PENSTOCK_OFFLOAD says; auto where it says nothing")          \
    X(AUTO, "auto", "whatever exact form is smallest, for the samples where that pays most") \
    X(NONE, "none", "nothing: files are sent as they are stored")                            \
    X(ALL, "all", "every operation on pixels, for every sample; plain pixels are sent")      \
    X(RESIZE, "resize", "decodes, crops and resizes every sample; plain pixels are sent")    \
    X(FASTFLOW, "fastflow", "all or none of it, by what the first samples would weigh")      \
    X(SOPHON, "sophon",                                                                      \
      "decodes, crops and resizes; sends plain pixels where they are fewer "                 \
      "bytes than the file, for the samples where that pays most")

typedef enum pen_offload {
#define PEN_OFFLOAD_ENUM(id, name, text) PEN_OFFLOAD_##id,
    PEN_OFFLOADS(PEN_OFFLOAD_ENUM)
#undef PEN_OFFLOAD_ENUM
        PEN_OFFLOAD_COUNT
} pen_offload;

/* What storage nodes may code under `auto`, the knob `codec`; each with those before it. */
typedef enum pen_codec {
    PEN_CODEC_NONE,  /* nothing: files, parts of JPEG files, plain pixels */
    PEN_CODEC_BYTES, /* files that are not compressed by themselves: zstd, lz4, snappy */
    PEN_CODEC_PIXELS /* pixels, without loss */
} pen_codec;

/* The one with a name, or -1. */
PEN_API int pen_offload_find(const char *name);
/* NULL for what is none. */
PEN_API const char *pen_offload_name(int offload);

#endif
