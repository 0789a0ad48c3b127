/* forms.c - what a sample weighs in each form in which it may cross the network.
 *
 *     make bench-forms ARGS='FOLDER [EPOCHS]'
 *
 * For every file of a dataset and some epochs, the window is drawn as a loader draws it for
 * RandomResizedCrop(224).  Printed are bytes as shares of the files', and processor time of one
 * thread for one sample, the smallest of some runs of each.  "Index" is with marks that say where
 * parts of JPEG files begin; what it takes to make those of a file is in the last line.  Each cut
 * and each coded crop is decoded again and compared.
 */
#include <penstock/penstock.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "codec/pixel_code.h"
#include "engine/plan.h"
#include "engine/run.h"
#include "ops/decode.h"
#include "ops/jpeg_cut.h"
#include "ops/jpeg_index.h"

enum { SIDE = 224, RUNS = 3, N_PIXELS = SIDE * SIDE * 3 };

typedef enum row { RAW, PIXELS, PIXELS_OR_RAW, CUT, CODED, CODED_CROP, BEST, N_ROWS } row;
typedef enum time_of {
    INDEXING,
    CUTTING,
    CUTTING_INDEXED,
    CROPPING,
    CROPPING_INDEXED,
    CODING,
    UNCODING,
    UNCUTTING,
    N_TIMES
} time_of;

typedef struct sample {
    uint8_t *file, *cut;
    size_t len, n_cut;
    pen_image_info info;
    pen__plan plan;
    pen_params params[PEN_PIPELINE_MAX_OPS];
    pen_key key;
    pen__rect kept;
    uint8_t marks[PEN__DECODE_MARKS_MAX];
    size_t n_marks;
} sample;

typedef struct bench {
    pen_pipeline *pipe;
    pen__decoder *dec;
    pen__jpeg_cutter *cutter;
    pen__jpeg_indexer *indexer;
    uint8_t *scratch, *pixels, *packed, *code, *again;
    size_t n_scratch;
    void *code_scratch;
    double bytes[N_ROWS], ms[N_TIMES], marks_bytes;
    int64_t n, n_cut, n_coded_wins, n_marked;
} bench;

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void die(const char *what, const pen_error *err)
{
    fprintf(stderr, "bench: %s: %s\n", what, err ? err->text : "");
    exit(1);
}

/* The crop of the file, or of its cut, through the pipeline. */
static void crop(bench *b, const sample *s, bool from_cut, uint8_t *dst)
{
    pen_error err;
    pen_image_info info = s->info;
    pen__plan plan = s->plan;
    if (from_cut) {
        info.width = s->kept.w;
        info.height = s->kept.h;
        plan.window.x -= s->kept.x;
        plan.window.y -= s->kept.y;
    }
    const pen__input in =
        pen__input_of_file(&plan, &info, from_cut ? s->cut : s->file, from_cut ? s->n_cut : s->len);
    if (pen__run(b->pipe, &plan, s->params, &s->key, b->dec, &in, b->scratch, dst, NULL, &err) != 0)
        die("decode", &err);
}

static void cut(bench *b, sample *s, bool has_index)
{
    int64_t n = pen__jpeg_cut(b->cutter, s->file, s->len, s->plan.window, s->marks,
                              has_index ? s->n_marks : 0, s->cut, s->len, &s->kept);
    s->n_cut = (size_t)n;
}

/* Marks of the whole file, as a storage node's index has them. */
static void index_file(bench *b, sample *s)
{
    const pen__jpeg_indexed found = pen__jpeg_index(b->indexer, s->file, s->len, NULL, 0);
    s->n_marks = found.n_bytes;
    if (found.marks)
        memcpy(s->marks, found.marks->bytes, s->n_marks);
}

/* --- what is timed --- */

static void run_once(bench *b, sample *s, time_of what, size_t *n_code)
{
    int ch = pen__decode_channels(&s->info);
    switch (what) {
    case INDEXING:
        index_file(b, s);
        return;
    case CUTTING:
    case CUTTING_INDEXED:
        cut(b, s, what == CUTTING_INDEXED);
        return;
    case CROPPING_INDEXED:
        pen__decoder_give_marks(b->dec, s->marks, s->n_marks);
        crop(b, s, false, b->pixels);
        return;
    case CROPPING:
        crop(b, s, false, b->pixels);
        return;
    case UNCUTTING:
        if (s->n_cut > 0)
            crop(b, s, true, b->again);
        return;
    case CODING:
        *n_code = (size_t)pen__pixels_encode(b->packed, SIDE, SIDE, ch, b->code_scratch, b->code,
                                             pen__pixels_bound(SIDE, SIDE, 3));
        return;
    default:
        if (pen__pixels_decode(b->code, *n_code, SIDE, SIDE, ch, b->code_scratch, b->again, NULL))
            die("coded pixels do not decode", NULL);
    }
}

static void time_it(bench *b, sample *s, time_of what, size_t *n_code)
{
    double best = 1e9;
    for (int i = 0; i < RUNS; i++) {
        double begin = cpu_ms();
        run_once(b, s, what, n_code);
        double ms = cpu_ms() - begin;
        best = ms < best ? ms : best;
    }
    b->ms[what] += best;
}

/* Grey files come out as three equal channels; on the wire they are one. */
static size_t pack(bench *b, const sample *s)
{
    int ch = pen__decode_channels(&s->info);
    for (int i = 0; i < SIDE * SIDE * ch; i++)
        b->packed[i] = b->pixels[ch == 1 ? 3 * i : i];
    return (size_t)(SIDE * SIDE * ch);
}

static double smaller(double x, double y)
{
    return x < y ? x : y;
}

static void measure(bench *b, sample *s)
{
    size_t n_code = 0;
    time_it(b, s, INDEXING, &n_code);
    time_it(b, s, CUTTING, &n_code);
    time_it(b, s, CUTTING_INDEXED, &n_code);
    time_it(b, s, CROPPING, &n_code);
    time_it(b, s, CROPPING_INDEXED, &n_code);
    time_it(b, s, UNCUTTING, &n_code);
    if (s->n_cut > 0 && memcmp(b->again, b->pixels, N_PIXELS) != 0)
        die("a cut decodes to other pixels", NULL);
    double n_packed = (double)pack(b, s), len = (double)s->len;
    time_it(b, s, CODING, &n_code);
    time_it(b, s, UNCODING, &n_code);
    if (memcmp(b->again, b->packed, (size_t)n_packed) != 0)
        die("coded pixels decode to others", NULL);
    double n_cut = s->n_cut > 0 ? smaller((double)s->n_cut, len) : len;
    b->n++;
    b->n_marked += s->n_marks > 0;
    b->marks_bytes += (double)s->n_marks;
    b->n_cut += s->n_cut > 0;
    b->n_coded_wins += (double)n_code < n_cut;
    b->bytes[RAW] += len;
    b->bytes[PIXELS] += n_packed;
    b->bytes[PIXELS_OR_RAW] += smaller(N_PIXELS, len);
    b->bytes[CUT] += n_cut;
    b->bytes[CODED] += (double)n_code;
    b->bytes[CODED_CROP] += N_PIXELS;
    b->bytes[BEST] += smaller((double)n_code, n_cut);
}

/* --- samples --- */

static bool plan_sample(bench *b, sample *s)
{
    pen_error err;
    if (pen_image_probe(s->file, s->len, &s->info, &err) != 0 ||
        pen_pipeline_draw(b->pipe, &s->key, &s->info, s->params, PEN_PIPELINE_MAX_OPS, &err) != 0)
        return false;
    pen__plan_build(&s->plan, b->pipe, &s->info, s->params);
    if (s->plan.scratch_bytes > b->n_scratch) {
        pen__free(b->scratch);
        b->n_scratch = s->plan.scratch_bytes;
        b->scratch = pen__aligned(64, b->n_scratch);
    }
    return b->scratch != NULL;
}

static void visit(bench *b, const pen_dataset *ds, int64_t id, int n_epochs)
{
    static sample s;
    pen_error err;
    int64_t len = pen_dataset_length(ds, id);
    s.file = malloc((size_t)len);
    s.cut = malloc((size_t)len);
    if (!s.file || !s.cut || pen_dataset_read(ds, id, s.file, (size_t)len, &err) != len)
        die("read", &err);
    s.len = (size_t)len;
    for (int epoch = 0; epoch < n_epochs; epoch++) {
        s.key = (pen_key){.seed = 1, .sample = id, .epoch = epoch};
        if (!plan_sample(b, &s))
            break;
        measure(b, &s);
    }
    free(s.file);
    free(s.cut);
}

static void print(const bench *b)
{
    double n = (double)b->n, raw = b->bytes[RAW];
    const double *ms = b->ms, *bytes = b->bytes;
    printf("%lld samples of %.0f bytes; cut: %lld of them, coded crop smaller: %lld\n",
           (long long)b->n, raw / n, (long long)b->n_cut, (long long)b->n_coded_wins);
    printf("form                        bytes/raw     storage ms   with index  compute ms\n");
    printf("raw                             1.000          0            0\n");
    printf("pixels, or raw if smaller       %.3f         %6.3f       %6.3f\n",
           bytes[PIXELS_OR_RAW] / raw, ms[CROPPING] / n, ms[CROPPING_INDEXED] / n);
    printf("cut                             %.3f         %6.3f       %6.3f      %6.3f\n",
           bytes[CUT] / raw, ms[CUTTING] / n, ms[CUTTING_INDEXED] / n, ms[UNCUTTING] / n);
    printf("coded crop                      %.3f         %6.3f       %6.3f      %6.3f\n",
           bytes[CODED] / raw, (ms[CROPPING] + ms[CODING]) / n,
           (ms[CROPPING_INDEXED] + ms[CODING]) / n, ms[UNCODING] / n);
    printf("smaller of these two            %.3f         %6.3f       %6.3f\n", bytes[BEST] / raw,
           (ms[CUTTING] + ms[UNCUTTING] + ms[CODING]) / n,
           (ms[CUTTING_INDEXED] + ms[UNCUTTING] + ms[CODING]) / n);
    printf("code: %.3f of the pixels, %.3f of 150528; %.0f MB/s encoded, %.0f decoded\n",
           bytes[CODED] / bytes[PIXELS], bytes[CODED] / bytes[CODED_CROP],
           bytes[PIXELS] / ms[CODING] * 1e-3, bytes[PIXELS] / ms[UNCODING] * 1e-3);
    printf("index: made in %.3f ms, of %lld of them, %.4f of their bytes; made and cut: %.3f ms\n",
           ms[INDEXING] / n, (long long)b->n_marked, b->marks_bytes / raw,
           (ms[INDEXING] + ms[CUTTING_INDEXED]) / n);
}

int main(int argc, char **argv)
{
    static bench b;
    pen_error err;
    pen_dataset *ds;
    const pen_op line[] = {pen_op_random_resized_crop(SIDE, SIDE)};
    if (argc < 2) {
        fprintf(stderr, "usage: bench_forms DATASET [EPOCHS]\n");
        return 2;
    }
    if (pen_dataset_open(&ds, argv[1], NULL, &err) != 0)
        die("open", &err);
    if (pen_pipeline_create(&b.pipe, line, 1, PEN_DTYPE_UINT8, PEN_LAYOUT_NHWC, &err) != 0)
        die("pipeline", &err);
    b.pixels = malloc(N_PIXELS);
    b.packed = malloc(N_PIXELS);
    b.again = malloc(N_PIXELS);
    b.code = malloc(pen__pixels_bound(SIDE, SIDE, 3));
    b.code_scratch = pen__aligned(64, pen__pixels_scratch(SIDE, SIDE, 3));
    if (pen__decoder_create(&b.dec, NULL) != 0 || pen__jpeg_cutter_create(&b.cutter) != 0 ||
        pen__jpeg_indexer_create(&b.indexer, NULL) != 0 || !b.pixels || !b.packed || !b.again ||
        !b.code || !b.code_scratch)
        die("memory", NULL);
    for (int64_t id = 0; id < pen_dataset_count(ds); id++)
        visit(&b, ds, id, argc > 2 ? atoi(argv[2]) : 2);
    print(&b);
    pen__jpeg_indexer_free(b.indexer);
    pen__jpeg_cutter_free(b.cutter);
    pen__decoder_free(b.dec);
    pen_pipeline_unref(b.pipe);
    pen_dataset_unref(ds);
    pen__free(b.scratch);
    pen__free(b.code_scratch);
    free(b.pixels), free(b.packed), free(b.again), free(b.code);
    return 0;
}
