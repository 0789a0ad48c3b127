/* decode_jpeg.c - JPEG to pixels by libjpeg-turbo, whole or a window, exact and quick.
 *
 * Ordinary files are decoded by our own code, which is quicker (jpeg_window.c).  It gives
 * the same pixels or declines; what it declines comes here: unusual files, and
 * every damaged one.
 *
 * Settings are Pillow's: accurate integer IDCT, fancy upsampling, block smoothing, and
 * libjpeg's own guess at the colour space.  CMYK files are taken as inverted, as
 * Adobe writes them and Pillow assumes.
 *
 * A window.  Entropy coding has no random access, so rows above the window are
 * entropy-decoded and dropped (jpeg_skip_scanlines) and rows below never looked
 * at.  To the sides, jpeg_crop_scanline spares the IDCT and all that follows, in
 * whole iMCUs.  Cropping alone is not exact: fancy upsampling treats the
 * crop's edge as the image's edge.  So a few columns more than asked are decoded and
 * cut off again (MARGIN), which makes it exact; tests/c/test_decode_jpeg.c
 * compares it with full decodes over every subsampling.
 *
 * The end of data.  Pillow feeds libjpeg a source that suspends, and gives up when
 * it suspends with nothing left to feed.  Our source jumps out at the same moment.
 * Hence the same verdict: a file whose entropy-coded data run out is refused,
 * while one that is merely damaged inside, or ends after the last row of a
 * sequential file, gives the same pixels as in Pillow.  Damage below the
 * window is not seen: by design, as those bytes are never read.
 *
 * One known difference: a progressive file with scans missing is smoothed by
 * libjpeg, and before 3.0.1 libjpeg-turbo looks at the wrong rows where chroma is
 * subsampled vertically.  Such a file has the pixels of the library we run with.
 *
 * Errors leave libjpeg by longjmp to pen__jpeg_decode.  Nothing between there and
 * here owns anything: libjpeg's memory is one block (decode_jpeg_memory.c).
 */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

#include "base/mem.h"
#include "ops/decode_formats.h"
#include "ops/decode_jpeg_memory.h"
#include "ops/jpeg_window.h"

enum {
    /* Columns decoded beside the window.  Upsampling looks one chroma sample, at most
     * four pixels, to each side. */
    MARGIN = 4,
    /* Input is shown to libjpeg in slices, so that cancelling is noticed while it
     * skips rows.  Large, because near the end of a slice it decodes slowly. */
    SLICE_BYTES = 1 << 20,
    /* No encoder writes so many scans; a hostile file costs a pass over the image
     * for each. */
    MAX_SCANS = 500,
    ROWS_A_CALL = 4, /* libjpeg gives at most one row group, of 1 to 4 rows */
};

struct pen__jpeg {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    pen__jpeg_memory memory;
    pen__jpeg_window own; /* its scratch is `memory`, too: the two never work at once */
    bool use_own;
    size_t keep; /* bytes of `memory` and of the room for lanes kept between images */
    const pen__decode_job *job;
    bool has_all_rows; /* from here on the data may end */
    int code;          /* why we jumped */
    jmp_buf escape;
};

/* --- errors --- */

static pen__jpeg *jpeg_of(j_common_ptr cinfo)
{
    return cinfo->client_data;
}

static int64_t offset_now(const pen__jpeg *jpeg)
{
    return jpeg->source.next_input_byte ? jpeg->source.next_input_byte - jpeg->job->src : 0;
}

static _Noreturn void escape(pen__jpeg *jpeg, int code, int64_t offset, const char *text)
{
    jpeg->code = pen__fail(jpeg->job ? jpeg->job->err : NULL, code, offset, "JPEG: %s", text);
    longjmp(jpeg->escape, 1);
}

/* The source has nothing left. */
static _Noreturn void run_out(pen__jpeg *jpeg, const char *text)
{
    if (jpeg->has_all_rows)
        longjmp(jpeg->escape, 1);
    escape(jpeg, PEN_ECORRUPT, (int64_t)jpeg->job->len, text);
}

static int code_of(int libjpeg_message)
{
    switch (libjpeg_message) {
    case JERR_OUT_OF_MEMORY: /* more than pen__jpeg_bound: not a file we believe */
    case JERR_IMAGE_TOO_BIG:
    case JERR_WIDTH_OVERFLOW:
        return PEN_ELIMIT;
    case JERR_SOF_UNSUPPORTED:
    case JERR_BAD_PRECISION:
    case JERR_ARITH_NOTIMPL:
    case JERR_NOT_COMPILED:
    case JERR_NOTIMPL:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_CCIR601_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
        return PEN_EUNSUPPORTED;
    default:
        return PEN_ECORRUPT;
    }
}

static void on_error(j_common_ptr cinfo)
{
    pen__jpeg *jpeg = jpeg_of(cinfo);
    char text[JMSG_LENGTH_MAX];
    cinfo->err->format_message(cinfo, text);
    escape(jpeg, code_of(cinfo->err->msg_code), jpeg->job ? offset_now(jpeg) : -1, text);
}

/* Warnings (corrupt data that decodes to something) do not stop Pillow either. */
static void on_message(j_common_ptr cinfo, int level)
{
    (void)level;
    cinfo->err->num_warnings += level < 0;
}

static void stay_silent(j_common_ptr cinfo)
{
    (void)cinfo;
}

static void on_progress(j_common_ptr cinfo)
{
    pen__jpeg *jpeg = jpeg_of(cinfo);
    if (pen__job_cancelled(jpeg->job))
        escape(jpeg, PEN_ECANCELED, -1, "cancelled");
    if (jpeg->cinfo.input_scan_number > MAX_SCANS)
        escape(jpeg, PEN_ELIMIT, offset_now(jpeg), "too many scans");
}

/* --- the source: job->src, a slice at a time --- */

static void show_slice(pen__jpeg *jpeg, size_t at)
{
    size_t left = jpeg->job->len - at;
    jpeg->source.next_input_byte = jpeg->job->src + at;
    jpeg->source.bytes_in_buffer = left < SLICE_BYTES ? left : SLICE_BYTES;
}

static size_t slice_end(const pen__jpeg *jpeg)
{
    return (size_t)offset_now(jpeg) + jpeg->source.bytes_in_buffer;
}

/* Nothing: after a stream of tables only, the next header is read from where it ended. */
static void start_source(j_decompress_ptr cinfo)
{
    (void)cinfo;
}

static boolean next_slice(j_decompress_ptr cinfo)
{
    pen__jpeg *jpeg = jpeg_of((j_common_ptr)cinfo);
    size_t at = slice_end(jpeg);
    if (at >= jpeg->job->len)
        run_out(jpeg, "the data end too early");
    if (pen__job_cancelled(jpeg->job))
        escape(jpeg, PEN_ECANCELED, -1, "cancelled");
    show_slice(jpeg, at);
    return TRUE;
}

static void skip_input(j_decompress_ptr cinfo, long n_bytes)
{
    pen__jpeg *jpeg = jpeg_of((j_common_ptr)cinfo);
    if (n_bytes <= 0)
        return;
    size_t at = (size_t)offset_now(jpeg);
    if ((size_t)n_bytes > jpeg->job->len - at)
        run_out(jpeg, "the data end inside a segment");
    show_slice(jpeg, at + (size_t)n_bytes);
}

static void end_source(j_decompress_ptr cinfo)
{
    (void)cinfo;
}

/* --- life --- */

static void connect(pen__jpeg *jpeg)
{
    struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    pen__jpeg_memory_init(&jpeg->memory, cinfo);
    jpeg->source = (struct jpeg_source_mgr){.init_source = start_source,
                                            .fill_input_buffer = next_slice,
                                            .skip_input_data = skip_input,
                                            .resync_to_restart = jpeg_resync_to_restart,
                                            .term_source = end_source};
    cinfo->src = &jpeg->source;
    jpeg->progress.progress_monitor = on_progress;
    cinfo->progress = &jpeg->progress;
}

int pen__jpeg_create(pen__jpeg **out)
{
    *out = NULL;
    pen__jpeg *jpeg = pen__calloc(1, sizeof *jpeg);
    if (!jpeg)
        return PEN_ENOMEM;
    jpeg->cinfo.err = jpeg_std_error(&jpeg->errors);
    jpeg->errors.error_exit = on_error;
    jpeg->errors.emit_message = on_message;
    jpeg->errors.output_message = stay_silent;
    jpeg->cinfo.client_data = jpeg;
    if (setjmp(jpeg->escape)) { /* only memory can be missing here */
        jpeg_destroy_decompress(&jpeg->cinfo);
        pen__free(jpeg);
        return PEN_ENOMEM;
    }
    jpeg_create_decompress(&jpeg->cinfo);
    connect(jpeg);
    jpeg->keep = PEN__DECODER_KEEPS;
    const char *wish = getenv("PENSTOCK_JPEG");
    jpeg->use_own = !wish || strcmp(wish, "libjpeg") != 0;
    *out = jpeg;
    return 0;
}

void pen__jpeg_free(pen__jpeg *jpeg)
{
    if (!jpeg)
        return;
    jpeg_destroy_decompress(&jpeg->cinfo);
    pen__free(jpeg->own.room);
    pen__free(jpeg->own.count_tables);
    pen__free(jpeg);
}

void pen__jpeg_set_keep(pen__jpeg *jpeg, size_t n_bytes)
{
    jpeg->keep = n_bytes;
}

/* Room for lanes, once, if half of what may be kept has room for it, and if it also has for them,
 * tables for guessing.  It does without where there is none. */
static void make_room(pen__jpeg *jpeg)
{
    pen__jpeg_window *own = &jpeg->own;
    size_t most = jpeg->keep / 2, n_room = sizeof *own->room, n_tables = sizeof *own->count_tables;
    if (!own->room && n_room <= most && pen__jpeg_stretches_are_possible())
        own->room = pen__aligned(64, n_room);
    if (!own->room || own->count_tables || n_room + n_tables > most)
        return;
    own->count_tables = pen__aligned(64, n_tables);
    if (own->count_tables)
        memset(own->count_tables, 0, n_tables);
}

/* What may be kept of `memory`. */
static size_t rest_to_keep(const pen__jpeg *jpeg)
{
    size_t taken = jpeg->own.room ? sizeof *jpeg->own.room : 0;
    taken += jpeg->own.count_tables ? sizeof *jpeg->own.count_tables : 0;
    return jpeg->keep > taken ? jpeg->keep - taken : 0;
}

void pen__jpeg_use_own(pen__jpeg *jpeg, bool use_own)
{
    jpeg->use_own = use_own;
}

pen__jpeg_counts pen__jpeg_counts_of(const pen__jpeg *jpeg)
{
    return jpeg->own.counts;
}

_Static_assert((int)PEN__DECODE_MARKS_MAX == PEN__JPEG_MARKS_MAX, "two names of one limit");

void pen__jpeg_give_marks(pen__jpeg *jpeg, const void *entry, size_t len)
{
    jpeg->own.known = entry;
    jpeg->own.n_known = len;
    jpeg->own.gathers = true;
    jpeg->own.n_found = 0;
}

void pen__jpeg_give_stamp(pen__jpeg *jpeg, uint64_t stamp, bool is_partial)
{
    jpeg->own.stamp = stamp;
    jpeg->own.is_partial = is_partial;
}

size_t pen__jpeg_take_marks(const pen__jpeg *jpeg, const void **entry)
{
    *entry = jpeg->own.marks.bytes;
    return jpeg->own.n_found;
}

/* Ready for the next image.  Tables do not survive: a file that leaves out its own
 * must not inherit those of the file before. */
static void forget_image(pen__jpeg *jpeg)
{
    struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    jpeg_abort_decompress(cinfo);
    memset(cinfo->quant_tbl_ptrs, 0, sizeof cinfo->quant_tbl_ptrs);
    memset(cinfo->dc_huff_tbl_ptrs, 0, sizeof cinfo->dc_huff_tbl_ptrs);
    memset(cinfo->ac_huff_tbl_ptrs, 0, sizeof cinfo->ac_huff_tbl_ptrs);
    pen__jpeg_memory_reset(&jpeg->memory, rest_to_keep(jpeg));
    jpeg->source.next_input_byte = NULL;
    jpeg->source.bytes_in_buffer = 0;
    jpeg->job = NULL;
}

/* --- memory --- */

/* What libjpeg-turbo takes, every component counted as if at full resolution with
 * the tallest row groups: sample rows of the main buffer (a row group of 4 rows, 8 + 2
 * times) and of the upsampler (4), our strip (4 rows of up to 4 channels), and,
 * where scans are many, all coefficients (2 bytes each).  The rest are tables.
 * Our own decoder's scratch is the same block, so the larger of the two counts; its Huffman tables
 * live in struct pen__jpeg, and what lanes need is apart (make_room). */
size_t pen__jpeg_bound(const pen_image_info *info)
{
    enum { TABLE_BYTES = 96 << 10, ROWS = 4 * (8 + 2) + 4 + ROWS_A_CALL };
    size_t w_blocks = ((size_t)info->width + 7) / 8 + 4,
           h_blocks = ((size_t)info->height + 7) / 8 + 4;
    size_t row_bytes = w_blocks * 8 + 64, bytes = TABLE_BYTES;
    bytes += info->channels * ROWS * (row_bytes + sizeof(void *));
    if (info->is_progressive)
        bytes += info->channels * h_blocks * (w_blocks * sizeof(JBLOCK) + 64 + sizeof(void *));
    return bytes > pen__jpeg_window_bound(info) ? bytes : pen__jpeg_window_bound(info);
}

/* --- pixels --- */

static void start(pen__jpeg *jpeg)
{
    struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    const pen_image_info *info = jpeg->job->info;
    while (jpeg_read_header(cinfo, FALSE) == JPEG_HEADER_TABLES_ONLY)
        continue; /* tables in a stream of their own, then the image */
    if ((int32_t)cinfo->image_width != info->width ||
        (int32_t)cinfo->image_height != info->height || cinfo->num_components != info->channels)
        escape(jpeg, PEN_ECORRUPT, 0, "two frame headers that contradict");
    cinfo->out_color_space = info->is_grey         ? JCS_GRAYSCALE
                             : info->channels == 4 ? JCS_CMYK
                                                   : JCS_EXT_RGB;
    jpeg_start_decompress(cinfo);
}

/* Inverted CMYK to RGB, with Pillow's rounding of a division by 255; also in place. */
static void ink_to_light(const uint8_t *cmyk, uint8_t *rgb, int32_t n_pixels)
{
    for (int32_t i = 0; i < n_pixels; i++, cmyk += 4, rgb += 3)
        for (int c = 0; c < 3; c++) {
            int light = cmyk[3], ink = (255 - cmyk[c]) * light + 128;
            int dimmed = light - (((ink >> 8) + ink) >> 8);
            rgb[c] = (uint8_t)(dimmed < 0 ? 0 : dimmed);
        }
}

/* Rows that need no cutting go to their place at once. */
static void read_straight(pen__jpeg *jpeg)
{
    const pen__rect *window = &jpeg->job->window;
    size_t row_bytes = (size_t)window->w * (size_t)jpeg->cinfo.output_components;
    JSAMPROW rows[ROWS_A_CALL];
    for (int32_t y = 0; y < window->h;) {
        int32_t n = window->h - y < ROWS_A_CALL ? window->h - y : ROWS_A_CALL;
        for (int32_t i = 0; i < n; i++)
            rows[i] = jpeg->job->dst + (size_t)(y + i) * row_bytes;
        y += (int32_t)jpeg_read_scanlines(&jpeg->cinfo, rows, (JDIMENSION)n);
    }
}

/* Rows at *row, `left` bytes from the first wanted sample, cut to the window: to their place, or in
 * place and to the sink. */
static void pass_on(const pen__decode_job *job, bool is_ink, int32_t y, JSAMPARRAY rows,
                    size_t left, int32_t n_rows)
{
    size_t row_bytes = (size_t)job->window.w * (size_t)pen__decode_channels(job->info);
    for (int32_t i = 0; i < n_rows; i++) {
        uint8_t *from = rows[i] + left;
        uint8_t *to = job->sink ? from : job->dst + (size_t)(y + i) * row_bytes;
        if (is_ink)
            ink_to_light(from, to, job->window.w);
        else if (to != from)
            memcpy(to, from, row_bytes);
    }
    if (job->sink) /* decode_jpeg_memory.c lays rows at equal distances */
        job->sink->take(job->sink->ctx, y, rows[0] + left, (size_t)(rows[1] - rows[0]), n_rows);
}

/* Others go through a strip; `left` is the window's first column in it. */
static void read_and_cut(pen__jpeg *jpeg, size_t left)
{
    struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    int32_t height = jpeg->job->window.h;
    bool is_ink = cinfo->output_components == 4;
    JDIMENSION ch = (JDIMENSION)cinfo->output_components;
    JSAMPARRAY strip =
        cinfo->mem->alloc_sarray((j_common_ptr)cinfo, JPOOL_IMAGE,
                                 cinfo->output_width * ch + PEN__DECODE_SLACK, ROWS_A_CALL);
    for (int32_t y = 0; y < height;) {
        int32_t wanted = height - y < ROWS_A_CALL ? height - y : ROWS_A_CALL, n = 0;
        while (n < wanted)
            n += (int32_t)jpeg_read_scanlines(cinfo, strip + n, (JDIMENSION)(wanted - n));
        pass_on(jpeg->job, is_ink, y, strip, left * ch, n);
        y += n;
    }
}

/* A progressive file that lacks some of its scans is smoothed across blocks, and a
 * crop would be smoothed differently at its edges. */
static bool is_smoothed(const struct jpeg_decompress_struct *cinfo)
{
    if (!cinfo->progressive_mode || !cinfo->coef_bits)
        return false;
    for (int c = 0; c < cinfo->num_components; c++)
        for (int k = 0; k < DCTSIZE2; k++)
            if (cinfo->coef_bits[c][k] != 0) /* not known to its last bit */
                return true;
    return false;
}

/* Rows above the window, by way of a scratch row where they cannot be skipped. */
static void pass_over_rows(struct jpeg_decompress_struct *cinfo, JDIMENSION n_rows)
{
    if (!is_smoothed(cinfo)) {
        jpeg_skip_scanlines(cinfo, n_rows);
        return;
    }
    JDIMENSION n_samples = cinfo->output_width * (JDIMENSION)cinfo->output_components;
    JSAMPARRAY row = cinfo->mem->alloc_sarray((j_common_ptr)cinfo, JPOOL_IMAGE, n_samples, 1);
    while (cinfo->output_scanline < n_rows)
        jpeg_read_scanlines(cinfo, row, 1);
}

static void read_window(pen__jpeg *jpeg)
{
    struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    const pen__rect *window = &jpeg->job->window;
    JDIMENSION x = (JDIMENSION)window->x, end = x + (JDIMENSION)window->w;
    JDIMENSION first = x > MARGIN ? x - MARGIN : 0;
    JDIMENSION last = end + MARGIN < cinfo->output_width ? end + MARGIN : cinfo->output_width;
    JDIMENSION width = last - first;
    if (is_smoothed(cinfo))
        first = 0;
    else if (width < cinfo->output_width)
        jpeg_crop_scanline(cinfo, &first, &width); /* moves `first` down to an iMCU */
    if (window->y > 0)
        pass_over_rows(cinfo, (JDIMENSION)window->y);
    bool needs_no_cut = cinfo->output_width == (JDIMENSION)window->w;
    if (needs_no_cut && cinfo->output_components != 4 && !jpeg->job->sink)
        read_straight(jpeg);
    else
        read_and_cut(jpeg, x - first);
}

/* Pillow reads on to the end marker and refuses a file with nonsense in its place. */
static void check_tail(pen__jpeg *jpeg)
{
    if (jpeg->cinfo.output_scanline < jpeg->cinfo.output_height)
        return;
    jpeg->has_all_rows = true;
    jpeg_finish_decompress(&jpeg->cinfo);
}

static int decode_by_library(pen__jpeg *jpeg, const pen__decode_job *job)
{
    jpeg->job = job;
    jpeg->code = 0;
    jpeg->has_all_rows = false;
    show_slice(jpeg, 0);
    if (setjmp(jpeg->escape) == 0) {
        start(jpeg);
        read_window(jpeg);
        check_tail(jpeg);
    }
    forget_image(jpeg);
    return jpeg->code;
}

int pen__jpeg_decode(pen__jpeg *jpeg, const pen__decode_job *job)
{
    const pen_image_info *info = job->info;
    if (info->bits != 8)
        return pen__fail(job->err, PEN_EUNSUPPORTED, -1, "JPEG: %d bits a sample", info->bits);
    if (info->channels != 1 && info->channels != 3 && info->channels != 4)
        return pen__fail(job->err, PEN_EUNSUPPORTED, -1, "JPEG: %d components", info->channels);
    if (pen__jpeg_memory_reserve(&jpeg->memory, pen__jpeg_bound(info)) < 0)
        return pen__fail(job->err, PEN_ENOMEM, -1, "JPEG: out of memory");
    int rc = PEN__JPEG_DECLINED;
    if (jpeg->use_own) {
        make_room(jpeg);
        rc = pen__jpeg_window_decode(&jpeg->own, job, jpeg->memory.block);
    }
    const bool is_partial = jpeg->own.is_partial;
    jpeg->own.n_known = 0;
    jpeg->own.stamp = 0;
    jpeg->own.gathers = jpeg->own.is_partial = false;
    if (rc == PEN__JPEG_DECLINED && !is_partial)
        return decode_by_library(jpeg, job);
    pen__jpeg_memory_reset(&jpeg->memory, rest_to_keep(jpeg));
    return rc == PEN__JPEG_DECLINED ? PEN_AGAIN : rc;
}
