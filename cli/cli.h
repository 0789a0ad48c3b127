/* cli.h - what the commands share.  The command sees only the public headers. */
#ifndef PEN_CLI_H
#define PEN_CLI_H

#include <penstock/penstock.h>

#include <stdbool.h>
#include <stdio.h>

/* Exit codes. */
enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

int cmd_info(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_machine(int argc, char **argv);
int cmd_pack(int argc, char **argv);
int cmd_profile(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_top(int argc, char **argv);

/* Options that several commands have, and their defaults. */
typedef struct cli_stream {
    const char *ops; /* "imagenet-train" or "imagenet-val" */
    pen_loader_opts loader;
} cli_stream;

void cli_stream_init(cli_stream *stream);
/* Dataset, pipeline and loader from the options; says what is wrong on stderr.  Pointers
 * that were made are set also on failure, for cli_close. */
typedef struct cli_open {
    pen_dataset *ds;
    pen_pipeline *pipe;
    pen_loader *loader;
} cli_open;
bool cli_open_dataset(cli_open *open, const char *spec);
bool cli_open_pipeline(cli_open *open, const cli_stream *stream);
bool cli_open_loader(cli_open *open, const cli_stream *stream); /* and its pipeline */
void cli_close(cli_open *open);

/* Parse a whole number in [min, max]; complains and returns false otherwise. */
bool cli_number(const char *option, const char *text, long long min, long long max, long long *out);
/* Bytes, as a number with or without a unit: 2000000, 500MB, 2GiB. */
bool cli_memory(const char *option, const char *text, int64_t *out);
bool cli_seed(const char *text, uint64_t *out);
bool cli_ops(const char *text, cli_stream *stream);
/* Is there one argument left, a DATASET?  Complains in the name of the command if not. */
bool cli_has_dataset(int argc, const char *command);
/* "penstock: text", to stderr, in the place of a progress bar. */
void cli_complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A progress bar on stderr, only if that is a terminal.  Call with done == total to end it. */
void cli_progress(const char *what, long long done, long long total);

/* 1234567 -> "1.2 MB"; buf of 32 bytes. */
const char *cli_bytes(char buf[32], double n);
/* Names come from data: control characters and broken UTF-8 become '?'.  In place. */
char *cli_printable(char *text);
/* A JSON string with quotes, escaped, to `out`. */
void cli_json_string(FILE *out, const char *text);
/* What `print` prints becomes the file `path`, all of it or nothing: what is there before stays
 * until then.  Complains and returns false where that cannot be. */
bool cli_write_file(const char *path, void (*print)(FILE *, const void *), const void *what);
/* The end of a command: `code`, or, if stdout did not take everything, a complaint and
 * EXIT_FAILED. */
int cli_end_stdout(int code);
double cli_seconds(void);
/* Ask running commands to stop (SIGINT); polled between batches. */
bool cli_is_interrupted(void);
/* The same for another signal, unless whoever started us has it ignored. */
void cli_stop_on(int number);

#endif
