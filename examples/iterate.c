/* iterate.c - open a folder or tar of pictures and walk through its batches.
 *
 *     cc -std=c11 -O2 iterate.c -o iterate $(pkg-config --cflags --libs penstock)
 *     ./iterate pictures/ [EPOCHS]
 *
 * Prints a line a batch: how many samples, the shape, the mean of the tensor,
 * and the first sample's key and label.  Run it twice: the lines are the same.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <penstock/penstock.h>

static int complain(const char *what, const pen_error *err)
{
    fprintf(stderr, "iterate: %s: %s: %s\n", what, pen_error_name(err->code), err->text);
    return EXIT_FAILURE;
}

/* Crop, flip, tensor, normalise: what one trains an ImageNet network with. */
static int make_pipeline(pen_pipeline **pipe, pen_error *err)
{
    const float mean[] = {0.485F, 0.456F, 0.406F}, std[] = {0.229F, 0.224F, 0.225F};
    const pen_op ops[] = {
        pen_op_random_resized_crop(224, 224),
        pen_op_hflip(0.5F),
        pen_op_to_tensor(),
        pen_op_normalize(mean, std, 3),
    };

    return pen_pipeline_create(pipe, ops, sizeof ops / sizeof *ops, PEN_DTYPE_AUTO, PEN_LAYOUT_NCHW,
                               err);
}

static void show(const pen_dataset *dataset, const pen_batch *batch)
{
    const pen_shape shape = pen_batch_shape(batch);
    const int64_t count = pen_batch_count(batch);
    const float *values = pen_batch_data(batch);
    const int64_t n_values = count * (int64_t)(shape.bytes / sizeof *values);
    char key[PEN_KEY_MAX];
    double sum = 0;

    for (int64_t i = 0; i < n_values; i++)
        sum += values[i];
    if (pen_dataset_key(dataset, pen_batch_ids(batch)[0], key, sizeof key) < 0)
        key[0] = '\0';
    printf("epoch %" PRId64 " batch %" PRId64 ": %" PRId64 " x %d x %d x %d, mean %+.4f, first %s "
           "(label %" PRId64 ")\n",
           pen_batch_epoch(batch), pen_batch_index(batch), count, shape.channels, shape.height,
           shape.width, sum / (double)n_values, key, pen_batch_labels(batch)[0]);
}

static int walk(pen_dataset *dataset, pen_loader *loader, long n_epochs)
{
    pen_error err;
    pen_batch *batch;
    int rc = 0;

    for (long epoch = 0; epoch < n_epochs; epoch++) {
        while ((rc = pen_loader_next(loader, -1, &batch, &err)) == 0) {
            show(dataset, batch);
            pen_batch_unref(batch); /* its memory serves a later batch */
        }
        if (rc != PEN_END)
            return complain("reading", &err);
    }
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    pen_dataset *dataset = NULL;
    pen_pipeline *pipe = NULL;
    pen_loader *loader = NULL;
    pen_loader_opts opts;
    pen_error err;
    int status;

    if (argc < 2) {
        fprintf(stderr, "usage: iterate PICTURES [EPOCHS]\n");
        return EXIT_FAILURE;
    }
    pen_loader_opts_init(&opts);
    opts.batch_size = 32;
    opts.order = PEN_ORDER_SHUFFLE;
    opts.seed = 1;

    if (pen_dataset_open(&dataset, argv[1], NULL, &err) < 0)
        status = complain(argv[1], &err);
    else if (make_pipeline(&pipe, &err) < 0)
        status = complain("pipeline", &err);
    else if (pen_loader_create(&loader, dataset, pipe, &opts, &err) < 0)
        status = complain("loader", &err);
    else
        status = walk(dataset, loader, argc > 2 ? strtol(argv[2], NULL, 10) : 1);

    pen_loader_free(loader);
    pen_pipeline_unref(pipe);
    pen_dataset_unref(dataset);
    return status;
}
