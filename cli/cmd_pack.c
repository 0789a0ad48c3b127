/* cmd_pack.c - penstock pack: write a dataset into .pen files. */
#include "cli.h"

#include <getopt.h>
#include <signal.h>

static void help(void)
{
    puts("usage: penstock pack DATASET OUT.pen [OPTIONS]\n\n"
         "Writes a dataset into one file, or several, that hold the same dataset: the same ids,\n"
         "keys, labels and identity, and so the same stream.  Each image gets a checksum.\n\n"
         "  --shard-size SIZE  files of no more than this (4GiB, 500MB), named OUT-000.pen,\n"
         "                     OUT-001.pen and so on (default: one file, of 1 TiB at most)\n"
         "  --force            take the place of files that are there\n\n"
         "It prints what to open the pack with.  Nothing is left behind where it fails.\n"
         "docs/pack.md has the format, and when a pack is worth having.");
}

static int show_progress(void *ctx, int64_t done, int64_t total)
{
    (void)ctx;
    cli_progress("packing, MB", done / 1000000, total / 1000000);
    return cli_is_interrupted();
}

/* Exit code, or -1 to go on. */
static int parse(pen_pack_opts *opts, int argc, char **argv)
{
    static const struct option options[] = {{"shard-size", 1, NULL, 's'},
                                            {"force", 0, NULL, 'f'},
                                            {"help", 0, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        if (c == 'h') {
            help();
            return EXIT_OK;
        }
        if (c == '?' || (c == 's' && !cli_memory("--shard-size", optarg, &opts->shard_bytes)))
            return EXIT_USAGE;
        opts->overwrite |= c == 'f';
    }
    if (optind == argc - 2)
        return -1;
    cli_complain("pack takes a DATASET and a name for the pack; see penstock pack --help");
    return EXIT_USAGE;
}

static int pack(const pen_dataset *ds, const char *path, const pen_pack_opts *opts)
{
    char spec[PEN_PACK_SPEC_MAX];
    pen_error err = {.offset = -1};
    const int64_t n = pen_pack_write(ds, path, opts, spec, sizeof spec, &err);
    cli_progress("packing, MB", 1, 1);
    if (n < 0) {
        cli_complain("%s", err.text);
        return EXIT_FAILED;
    }
    puts(cli_printable(spec));
    return EXIT_OK;
}

int cmd_pack(int argc, char **argv)
{
    pen_pack_opts opts;
    pen_pack_opts_init(&opts);
    opts.progress = show_progress;
    int code = parse(&opts, argc, argv);
    if (code >= 0)
        return code;
    cli_is_interrupted(); /* from now on: nothing shall be left behind */
    cli_stop_on(SIGTERM);
    cli_stop_on(SIGHUP);
    cli_open open = {0};
    code = EXIT_FAILED;
    if (cli_open_dataset(&open, argv[optind]))
        code = pack(open.ds, argv[optind + 1], &opts);
    cli_close(&open);
    return code;
}
