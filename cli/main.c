/* main.c - penstock: the command. */
#include "cli.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"info", "what a dataset holds, and what in it will fail", cmd_info},
    {"bench", "how fast batches of a dataset come", cmd_bench},
    {"doctor", "why a PyTorch script waits for data, and what to change", cmd_doctor},
    {"machine", "what this machine is doing, and what it does not tell", cmd_machine},
    {"pack", "write a dataset into .pen files, the same dataset", cmd_pack},
    {"profile", "what samples weigh after each operation, and what that costs", cmd_profile},
    {"replay", "build any batch of a stream again", cmd_replay},
    {"serve", "hand a dataset to loaders on other machines", cmd_serve},
    {"top", "what the loaders of a running process are doing", cmd_top},
};

#define N_COMMANDS (sizeof commands / sizeof commands[0])

static void usage(FILE *out)
{
    fprintf(out, "usage: penstock COMMAND [OPTIONS]\n\n"
                 "Feeds neural-network training: exact image batches, fast.\n\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "\n  penstock COMMAND --help tells more; penstock --version the version.\n");
}

/* A switch that is misspelt would change nothing, silently. */
static void check_environment(void)
{
    const char *cpu = getenv("PENSTOCK_CPU"), *jpeg = getenv("PENSTOCK_JPEG");
    if (cpu && *cpu && strcmp(cpu, "scalar") != 0 && strcmp(cpu, "avx2") != 0)
        cli_complain("PENSTOCK_CPU=%s has no meaning ('scalar' and 'avx2' have); ignored", cpu);
    if (jpeg && *jpeg && strcmp(jpeg, "libjpeg") != 0)
        cli_complain("PENSTOCK_JPEG=%s has no meaning (only 'libjpeg' has); ignored", jpeg);
}

int main(int argc, char **argv)
{
    check_environment();
    signal(SIGPIPE, SIG_IGN); /* `penstock info ... | head` ends with an error code, not a signal */
    signal(SIGXFSZ, SIG_IGN); /* and so does writing beyond `ulimit -f` */
    if (argc < 2) {
        usage(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        usage(stdout);
        return cli_end_stdout(EXIT_OK);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("penstock %s (%s)\n", pen_version(), pen_cpu_level());
        return cli_end_stdout(EXIT_OK);
    }
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0) {
            static char name[] = "penstock"; /* in what getopt complains of, as everywhere */
            argv[1] = name;
            return cli_end_stdout(commands[i].run(argc - 1, argv + 1));
        }
    cli_complain("no command '%s'", argv[1]);
    usage(stderr);
    return EXIT_USAGE;
}
