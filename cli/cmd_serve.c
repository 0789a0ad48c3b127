/* cmd_serve.c - penstock serve: a storage node, until a signal ends it. */
#include "cli.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILE = 1 << 20, MAX_CPUS = 1024, GRACE_S = 1, LOOK_MS = 500 };

static const char help[] =
    "usage: penstock serve [OPTIONS] DIR|TAR|PACK|MANIFEST...\n\n"
    "Hands datasets to loaders on other machines, which open penstock://HOST:PORT/NAME.\n"
    "Each sample crosses the network in the smallest form that gives the same pixels.\n\n"
    "  --listen ADDR          where (default 127.0.0.1:7470; names are not looked up); beyond\n"
    "                         this machine only with a token or TLS; port 0: any\n"
    "  --name NAME            of the next dataset (default: last part of its path, without\n"
    "                         .tar or .pen at its end)\n"
    "  --cpus N               threads that decode and pack at once (default: all cores)\n"
    "  --no-index             do not keep in the cache directory where parts of JPEG files\n"
    "                         begin, which makes cutting them quicker (also: PENSTOCK_INDEX=off)\n"
    "  --token-file FILE      clients must know the token in it\n"
    "  --tls-cert FILE        certificate chain (PEM)\n"
    "  --tls-key FILE         its key (PEM)\n\n"
    "Limits; a client is an address, of IPv6 a network of 64 bits:\n"
    "  --memory SIZE          answers that are made or wait for their clients, half of it for\n"
    "                         one client (default 512MiB)\n"
    "  --buffer SIZE          of that, for one request (default 4MiB)\n"
    "  --max-connections N    in all (default 8192, or three quarters of ulimit -Hn)\n"
    "  --max-per-client N     connections of one client (default: a quarter of all)\n"
    "  --max-requests N       at once, then 503; some are left to others (default 512)\n"
    "  --max-header SIZE      of a request (default 32KiB)\n"
    "  --rate N               requests a second of one client, then 429 (default 20000)\n"
    "  --client-cpus N        cores that packing for one client may use; then its samples go\n"
    "                         out as stored, and GET of one is told 503 (default 0: no limit)\n"
    "  --idle SECONDS         a connection without a request is closed (default 60)\n"
    "  --slow SECONDS         so is one that does not take the next piece (default 30)\n"
    "  --slowest SIZE         or takes less than that a second meanwhile (default 4KiB; 0: any)\n"
    "  --item-timeout SECONDS a sample that waits longer for a thread fails, one that takes\n"
    "                         longer to pack goes out in the smallest form found (default 4)\n\n"
    "SIGTERM and Ctrl-C end it; what is under way gets a second.\n"
    "docs/protocol.md has what it speaks, docs/near-storage.md how to deploy it.\n";

enum option_number {
    OPT_LISTEN = 256,
    OPT_NAME,
    OPT_CPUS,
    OPT_NO_INDEX,
    OPT_TOKEN,
    OPT_CERT,
    OPT_KEY,
    OPT_MEMORY,
    OPT_BUFFER,
    OPT_CONNECTIONS,
    OPT_PER_CLIENT,
    OPT_REQUESTS,
    OPT_HEADER,
    OPT_RATE,
    OPT_CLIENT_CPUS,
    OPT_IDLE,
    OPT_SLOW,
    OPT_SLOWEST,
    OPT_ITEM,
};

static const struct option options[] = {
    {"listen", required_argument, NULL, OPT_LISTEN},
    {"name", required_argument, NULL, OPT_NAME},
    {"cpus", required_argument, NULL, OPT_CPUS},
    {"no-index", no_argument, NULL, OPT_NO_INDEX},
    {"token-file", required_argument, NULL, OPT_TOKEN},
    {"tls-cert", required_argument, NULL, OPT_CERT},
    {"tls-key", required_argument, NULL, OPT_KEY},
    {"memory", required_argument, NULL, OPT_MEMORY},
    {"buffer", required_argument, NULL, OPT_BUFFER},
    {"max-connections", required_argument, NULL, OPT_CONNECTIONS},
    {"max-per-client", required_argument, NULL, OPT_PER_CLIENT},
    {"max-requests", required_argument, NULL, OPT_REQUESTS},
    {"max-header", required_argument, NULL, OPT_HEADER},
    {"rate", required_argument, NULL, OPT_RATE},
    {"client-cpus", required_argument, NULL, OPT_CLIENT_CPUS},
    {"idle", required_argument, NULL, OPT_IDLE},
    {"slow", required_argument, NULL, OPT_SLOW},
    {"slowest", required_argument, NULL, OPT_SLOWEST},
    {"item-timeout", required_argument, NULL, OPT_ITEM},
    {"help", no_argument, NULL, 'h'},
    {0},
};

typedef struct serving {
    pen_node_opts opts;
    char *token, *cert, *key; /* contents of files; ours */
    struct {
        const char *name, *spec;
    } data[64];
    int n_data;
    const char *next_name;
    bool is_help, has_connections;
} serving;

/* ---- arguments ---- */

/* A small file as text; complains. */
static char *read_text(const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = file ? calloc(1, MAX_FILE + 2) : NULL;
    const size_t n = text ? fread(text, 1, MAX_FILE + 1, file) : 0;
    const bool is_bad = !text || ferror(file) || n > MAX_FILE;
    const bool is_binary = !is_bad && memchr(text, '\0', n);
    const int reason = errno;
    if (file)
        fclose(file);
    if (!is_bad && !is_binary)
        return text;
    cli_complain("cannot read '%s': %s", path,
                 is_binary      ? "it is no text"
                 : n > MAX_FILE ? "too long"
                                : strerror(reason));
    free(text);
    return NULL;
}

/* Is it for us to make it private?  Where the file is another user's, its group (or what an ACL
 * allows, which stands in the same bits) is the way in which we may read it: so Kubernetes hands
 * out secrets, by fsGroup, and systemd credentials. */
static bool is_too_open(const struct stat *st)
{
    return (st->st_mode & (S_IROTH | S_IWOTH)) ||
           ((st->st_mode & (S_IRGRP | S_IWGRP)) && st->st_uid == geteuid());
}

/* One that nobody else should know. */
static char *read_secret(const char *path)
{
    struct stat st;
    char *text = read_text(path);
    if (text && stat(path, &st) == 0 && is_too_open(&st))
        cli_complain("'%s' can be read or written by others: chmod 600 it", path);
    return text;
}

static char *read_token(const char *path)
{
    char *text = read_secret(path);
    if (!text)
        return NULL;
    const size_t n = strcspn(text, "\r\n");
    if (text[n + strspn(text + n, "\r\n")]) {
        cli_complain("'%s' has more than one line: a token is one", path);
        free(text);
        return NULL;
    }
    text[n] = '\0';
    return text;
}

static bool real(const char *option, const char *text, double min, double max, double *out)
{
    char *end;
    errno = 0;
    *out = strtod(text, &end);
    if (errno || end == text || *end || !(*out >= min && *out <= max)) {
        cli_complain("%s takes a number from %.9g to %.9g, not '%s'", option, min, max, text);
        return false;
    }
    return true;
}

static bool bytes(const char *option, const char *text, int64_t min, int64_t max, int64_t *out)
{
    if (!cli_memory(option, text, out))
        return false;
    if (*out >= min && *out <= max)
        return true;
    cli_complain("%s takes %lld to %lld bytes, not '%s'", option, (long long)min, (long long)max,
                 text);
    return false;
}

static bool whole(const char *option, const char *text, int min, int max, int *out)
{
    long long number;
    if (!cli_number(option, text, min, max, &number))
        return false;
    *out = (int)number;
    return true;
}

static bool take_limit(serving *s, int option, const char *text)
{
    const int64_t most_bytes = INT64_C(1) << 60;
    const double most_s = 1e6;
    int64_t n;
    switch (option) {
    case OPT_MEMORY:
        return bytes("--memory", text, 1 << 20, most_bytes, &s->opts.memory_bytes);
    case OPT_BUFFER:
        return bytes("--buffer", text, 1 << 12, most_bytes, &s->opts.buffer_bytes);
    case OPT_CONNECTIONS:
        s->has_connections = true;
        return whole("--max-connections", text, 1, 1 << 20, &s->opts.max_connections);
    case OPT_PER_CLIENT:
        return whole("--max-per-client", text, 1, 1 << 20, &s->opts.max_per_client);
    case OPT_REQUESTS:
        return whole("--max-requests", text, 1, 1 << 20, &s->opts.max_requests);
    case OPT_HEADER:
        if (!bytes("--max-header", text, 1 << 12, 1 << 20, &n))
            return false;
        s->opts.max_header_bytes = (int)n;
        return true;
    case OPT_RATE:
        return real("--rate", text, 0.1, 1e9, &s->opts.requests_per_s);
    case OPT_CLIENT_CPUS:
        return real("--client-cpus", text, 0, MAX_CPUS, &s->opts.cpus_per_client);
    case OPT_IDLE:
        return real("--idle", text, 0.1, most_s, &s->opts.idle_s);
    case OPT_SLOW:
        return real("--slow", text, 0.1, most_s, &s->opts.slow_s);
    case OPT_SLOWEST:
        s->opts.slowest_bytes_per_s = 0;
        return strcmp(text, "0") == 0 ||
               bytes("--slowest", text, 1, most_bytes, &s->opts.slowest_bytes_per_s);
    case OPT_ITEM:
        return real("--item-timeout", text, 0.1, most_s, &s->opts.item_s);
    default:
        return false;
    }
}

static bool add_data(serving *s, const char *spec)
{
    if (s->n_data == (int)(sizeof s->data / sizeof s->data[0])) {
        cli_complain("more than %d datasets", s->n_data);
        return false;
    }
    s->data[s->n_data].name = s->next_name;
    s->data[s->n_data++].spec = spec;
    s->next_name = NULL;
    return true;
}

static bool take(serving *s, int option, const char *text)
{
    switch (option) {
    case 1:
        return add_data(s, text);
    case OPT_LISTEN:
        s->opts.listen = text;
        return true;
    case OPT_NAME:
        s->next_name = text;
        return true;
    case OPT_CPUS:
        return whole("--cpus", text, 1, MAX_CPUS, &s->opts.cpus);
    case OPT_NO_INDEX:
        s->opts.use_index = 0;
        return true;
    case OPT_TOKEN:
        return (s->token = read_token(text)) != NULL;
    case OPT_CERT:
        return (s->cert = read_text(text)) != NULL;
    case OPT_KEY:
        return (s->key = read_secret(text)) != NULL;
    case 'h':
        return s->is_help = true;
    default:
        return take_limit(s, option, text);
    }
}

static bool parse(serving *s, int argc, char **argv)
{
    /* "-": in the order in which they stand, for --name is of what follows */
    for (int option; (option = getopt_long(argc, argv, "-h", options, NULL)) != -1;)
        if (!take(s, option, optarg))
            return false;
    while (optind < argc)
        if (!add_data(s, argv[optind++]))
            return false;
    if (s->is_help)
        return true;
    if (s->n_data == 0 || s->next_name) {
        cli_complain(s->n_data ? "--name stands before its dataset" : "serve takes a DATASET");
        return false;
    }
    s->opts.token = s->token;
    s->opts.tls_cert = s->cert;
    s->opts.tls_key = s->key;
    return true;
}

/* ---- serving ---- */

static int show_progress(void *ctx, int64_t done, int64_t total)
{
    (void)ctx;
    cli_progress("indexing", done, total);
    return cli_is_interrupted();
}

/* A thousand clients need a thousand descriptors, and a quarter is left to datasets, which keep
 * files open.  Unless they were asked for, there are as many connections as may be. */
static bool raise_limits(serving *s)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return true;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    const unsigned long long most = files.rlim_max / 4 * 3;
    if ((unsigned long long)s->opts.max_connections <= most)
        return true;
    if (!s->has_connections && most > 0) {
        s->opts.max_connections = (int)most;
        return true;
    }
    cli_complain("--max-connections %d is too much: this process may have %llu files open "
                 "(ulimit -Hn), which is enough for %llu connections",
                 s->opts.max_connections, (unsigned long long)files.rlim_max, most);
    return false;
}

static bool open_node(serving *s, pen_node **node)
{
    pen_error err;
    pen_dataset_opts opts;
    pen_dataset_opts_init(&opts);
    opts.progress = show_progress;
    int rc = pen_node_create(node, &s->opts, &err);
    for (int i = 0; i < s->n_data && rc == 0; i++)
        rc = pen_node_add(*node, s->data[i].name, s->data[i].spec, &opts, &err);
    cli_progress("indexing", 1, 1);
    if (rc)
        cli_complain("%s", err.text);
    else if (pen_node_left_out(*node) > 0)
        cli_complain("links that lead out of what is served, left out: %lld",
                     (long long)pen_node_left_out(*node));
    return rc == 0;
}

/* Signals are blocked.  0: one came. */
static int wait_for_end(const pen_node *node, const sigset_t *signals)
{
    const struct timespec period = {0, LOOK_MS * 1000000L};
    while (pen_node_is_running(node))
        if (sigtimedwait(signals, NULL, &period) > 0)
            return 0;
    cli_complain("the HTTP library gave up: ending");
    return -1;
}

static int serve(serving *s, pen_node *node)
{
    pen_error err;
    char address[128];
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    if (pen_node_start(node, &err) != 0) {
        cli_complain("%s", err.text);
        return EXIT_FAILED;
    }
    pen_node_address(node, address, sizeof address);
    printf("serving at %s://%s\n", s->cert ? "https" : "http", address);
    fflush(stdout);
    const int rc = wait_for_end(node, &signals);
    pen_node_stop(node, GRACE_S);
    return rc ? EXIT_FAILED : EXIT_OK;
}

int cmd_serve(int argc, char **argv)
{
    serving s = {0};
    pen_node *node = NULL;
    int code = EXIT_USAGE;
    pen_node_opts_init(&s.opts);
    if (parse(&s, argc, argv)) {
        if (s.is_help)
            code = fputs(help, stdout) < 0 ? EXIT_FAILED : EXIT_OK;
        else
            code = raise_limits(&s) && open_node(&s, &node) ? serve(&s, node) : EXIT_FAILED;
    }
    pen_node_free(node);
    free(s.token);
    free(s.cert);
    free(s.key);
    return code;
}
