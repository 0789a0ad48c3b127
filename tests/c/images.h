/* images.h - pictures for the decoding tests, and plain encoders to make files of them.
 *
 * Encoders are thin wrappers of the libraries' writers; files come back in malloc'ed
 * memory that the test frees.  Nothing here is random between runs.
 */
#ifndef PEN_TESTS_IMAGES_H
#define PEN_TESTS_IMAGES_H

#include "testing.h"

#include <stdbool.h>

#include <jpeglib.h>

typedef struct file {
    uint8_t *data;
    size_t len;
} file;

/* xorshift: a stream of numbers that is the same on every machine. */
static inline uint32_t roll(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 32);
}

static inline int roll_between(uint64_t *state, int low, int high)
{
    return low + (int)(roll(state) % (uint32_t)(high - low + 1));
}

/* (h, w, ch): slopes with noise on top, so that every coding tool gets something to do. */
static inline uint8_t *make_picture(int w, int h, int ch, uint64_t seed)
{
    uint8_t *px = malloc((size_t)w * (size_t)h * (size_t)ch);
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int c = 0; c < ch; c++) {
                int slope = x * (5 + 3 * c) + y * (7 - 2 * c) + (x / 9 + y / 6) % 2 * 80;
                px[(y * w + x) * ch + c] = (uint8_t)(slope + (int)(roll(&state) % 40));
            }
    return px;
}

typedef struct jpeg_kind {
    const char *name;
    int channels;                                    /* 1, 3, 4 */
    int sampling[4];                                 /* 0xHV for each component */
    J_COLOR_SPACE as;                                /* the file's colour space */
    bool is_progressive, is_arithmetic, is_in_scans; /* in_scans: one component a scan */
    int restart_rows, restart_mcus;
    bool is_optimised; /* Huffman tables made for this picture */
} jpeg_kind;

#define COLOUR(name_, s, ...)                                                                   \
    {                                                                                           \
        .name = name_, .channels = 3, .sampling = {s, 0x11, 0x11}, .as = JCS_YCbCr, __VA_ARGS__ \
    }

/* Each sampling that our own decoder takes. */
static const jpeg_kind sampled_kinds[] = {
    {.name = "grey", .channels = 1, .sampling = {0x11}, .as = JCS_GRAYSCALE},
    COLOUR("4:4:4", 0x11, .is_optimised = true),
    COLOUR("4:2:2", 0x21, .is_optimised = false),
    COLOUR("4:4:0", 0x12, .is_optimised = true),
    COLOUR("4:2:0", 0x22, .is_optimised = false),
    COLOUR("4:2:0, optimised", 0x22, .is_optimised = true),
};
enum { N_SAMPLED_KINDS = sizeof sampled_kinds / sizeof sampled_kinds[0] };

/* Files of all kinds that our own decoder takes. */
static const jpeg_kind ordinary_kinds[] = {
    {.name = "grey", .channels = 1, .sampling = {0x11}, .as = JCS_GRAYSCALE},
    {.name = "grey, 2x2", .channels = 1, .sampling = {0x22}, .as = JCS_GRAYSCALE},
    {.name = "grey, 1x3, restarts",
     .channels = 1,
     .sampling = {0x13},
     .as = JCS_GRAYSCALE,
     .restart_mcus = 2},
    COLOUR("4:4:4", 0x11, .is_optimised = true),
    COLOUR("4:4:4, restarts", 0x11, .restart_mcus = 5),
    COLOUR("4:2:2", 0x21, .is_optimised = true),
    COLOUR("4:2:2, restarts", 0x21, .restart_mcus = 1),
    COLOUR("4:4:0", 0x12, .is_optimised = true),
    COLOUR("4:4:0, restarts", 0x12, .restart_rows = 1),
    COLOUR("4:2:0", 0x22, .is_optimised = true),
    COLOUR("4:2:0, plain tables", 0x22, .is_optimised = false),
    COLOUR("4:2:0, restarts", 0x22, .restart_mcus = 2),
};
enum { N_ORDINARY_KINDS = sizeof ordinary_kinds / sizeof ordinary_kinds[0] };

static inline void set_scans(struct jpeg_compress_struct *cinfo, jpeg_scan_info *scans)
{
    for (int c = 0; c < cinfo->num_components; c++)
        scans[c] = (jpeg_scan_info){.comps_in_scan = 1, .component_index = {c}, .Se = 63};
    cinfo->scan_info = scans;
    cinfo->num_scans = cinfo->num_components;
}

static inline file encode_jpeg(const jpeg_kind *kind, const uint8_t *px, int w, int h, int quality)
{
    struct jpeg_compress_struct cinfo;
    struct jpeg_error_mgr errors;
    jpeg_scan_info scans[4];
    unsigned long len = 0;
    file out = {0};
    cinfo.err = jpeg_std_error(&errors);
    jpeg_create_compress(&cinfo);
    jpeg_mem_dest(&cinfo, &out.data, &len);
    cinfo.image_width = (JDIMENSION)w;
    cinfo.image_height = (JDIMENSION)h;
    cinfo.input_components = kind->channels;
    cinfo.in_color_space = kind->channels == 1   ? JCS_GRAYSCALE
                           : kind->channels == 4 ? JCS_CMYK
                                                 : JCS_RGB;
    jpeg_set_defaults(&cinfo);
    jpeg_set_colorspace(&cinfo, kind->as);
    jpeg_set_quality(&cinfo, quality, TRUE);
    for (int c = 0; c < kind->channels; c++) {
        cinfo.comp_info[c].h_samp_factor = kind->sampling[c] >> 4;
        cinfo.comp_info[c].v_samp_factor = kind->sampling[c] & 15;
    }
    cinfo.arith_code = kind->is_arithmetic;
    cinfo.restart_in_rows = kind->restart_rows;
    cinfo.restart_interval = (unsigned)kind->restart_mcus;
    cinfo.optimize_coding = kind->is_optimised;
    if (kind->is_progressive)
        jpeg_simple_progression(&cinfo);
    else if (kind->is_in_scans)
        set_scans(&cinfo, scans);
    jpeg_start_compress(&cinfo, TRUE);
    for (int y = 0; y < h; y++) {
        JSAMPROW row = (JSAMPROW)(uintptr_t)(px + (size_t)y * (size_t)(w * kind->channels));
        jpeg_write_scanlines(&cinfo, &row, 1);
    }
    jpeg_finish_compress(&cinfo);
    jpeg_destroy_compress(&cinfo);
    out.len = len;
    return out;
}

#endif
