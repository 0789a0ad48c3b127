/* cmd_top.c - penstock top: what a running loader is doing, once a second.
 *
 * Plain ANSI codes on the terminal's second screen, which is left again whatever way this
 * ends.  q or Ctrl-C ends it, j and k scroll.
 */
#include "cli.h"
#include "top.h"

#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

enum { PERIOD_MS = 1000, COLUMNS = 80, ROWS = 24, MIN_COLUMNS = 40 };

static const char help[] =
    "usage: penstock top [OPTIONS] PID|HOST:PORT\n\n"
    "Shows what the loaders of a process are doing: waits, stages, queues, memory,\n"
    "knobs and the policy's decisions.  q or Ctrl-C ends it; j, k and arrows\n"
    "scroll where the window is small.\n\n"
    "A process number finds loaders with a policy; HOST:PORT those that were given\n"
    "metrics=\"HOST:PORT\" or PENSTOCK_METRICS.\n\n"
    "  --set KNOB=N   turn a knob of a running loader and pin it; KNOB=auto: the policy\n"
    "                 may turn it again.  PID only; may be given more than once\n"
    "  --loader L     which loader, where a process has several\n"
    "  --once         print one frame and end (also when the output is no terminal)\n"
    "  --json         print the status as it comes, and end\n";

static volatile sig_atomic_t is_over, is_resized;

static void on_signal(int number)
{
    if (number == SIGWINCH)
        is_resized = 1;
    else
        is_over = 1;
}

static bool is_utf8(void)
{
    const char *names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return strstr(value, "UTF-8") || strstr(value, "utf8") || strstr(value, "UTF8");
    }
    return false;
}

/* ---- the screen ---- */

static struct termios before_raw;
static bool is_raw;
static int n_scrolled; /* lines of the frame above the screen */

static void leave_screen(void)
{
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (is_raw)
        tcsetattr(STDIN_FILENO, TCSANOW, &before_raw);
    is_raw = false;
}

static void enter_screen(void)
{
    const struct sigaction act = {.sa_handler = on_signal}; /* no SA_RESTART: poll returns */
    const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH};
    for (size_t i = 0; i < sizeof ending / sizeof ending[0]; i++)
        sigaction(ending[i], &act, NULL);
    if (isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &before_raw) == 0) {
        struct termios raw = before_raw;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        is_raw = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    }
    fputs("\033[?1049h\033[?25l", stdout);
}

static int count_lines(const char *frame)
{
    int n = 0;
    for (; *frame; frame++)
        n += *frame == '\n';
    return n;
}

/* Print a frame from the top left, or from where it was scrolled to, each line cut at the edge,
 * what was there before wiped. */
static void show(const char *frame, int rows, int columns)
{
    const int n_hidden = count_lines(frame) - (rows - 1);
    n_scrolled = n_scrolled < n_hidden ? n_scrolled : n_hidden;
    n_scrolled = n_scrolled > 0 ? n_scrolled : 0;
    for (int i = 0; i < n_scrolled; i++)
        frame = strchr(frame, '\n') + 1;
    fputs("\033[H", stdout);
    for (int row = 1; *frame && row < rows; row++) {
        int column = 0;
        for (; *frame && *frame != '\n'; frame++) {
            column += (*frame & 0xC0) != 0x80; /* not within a UTF-8 sequence */
            if (column <= columns)
                fputc(*frame, stdout);
        }
        fputs("\033[K\n", stdout);
        frame += *frame == '\n';
    }
    fputs(n_hidden > 0 ? "\033[J q: end  j, k: down, up" : "\033[J q: end", stdout);
    fflush(stdout);
}

static void draw(const json_t *status, const json_t *before)
{
    struct winsize size = {0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
        size = (struct winsize){.ws_row = ROWS, .ws_col = COLUMNS};
    const int columns = size.ws_col < MIN_COLUMNS ? MIN_COLUMNS : size.ws_col;
    char *frame = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&frame, &len);
    if (!out)
        return;
    top_frame(out, status, before, (top_style){columns, is_utf8()});
    if (fclose(out) == 0)
        show(frame, size.ws_row, size.ws_col);
    free(frame);
}

/* A key, or several: arrows send three bytes, of which the last says which.  Nothing more will
 * come: end. */
static void take_keys(void)
{
    char keys[16];
    const ssize_t n = read(STDIN_FILENO, keys, sizeof keys);
    is_over = n < 1 ? 1 : is_over;
    for (ssize_t i = 0; i < n; i++) {
        const bool is_arrow = i >= 2 && keys[i - 1] == '[' && keys[i - 2] == '\033';
        if (!is_arrow && (keys[i] == 'q' || keys[i] == 'Q'))
            is_over = 1;
        if (keys[i] == 'j' || (is_arrow && keys[i] == 'B'))
            n_scrolled++;
        if (keys[i] == 'k' || (is_arrow && keys[i] == 'A'))
            n_scrolled--;
    }
}

/* Wait for the next second; draw again when the window changes or is scrolled, end with q. */
static void wait_a_period(const json_t *status, const json_t *before)
{
    const double until = cli_seconds() + PERIOD_MS / 1000.0;
    struct pollfd keys = {.fd = is_raw ? STDIN_FILENO : -1, .events = POLLIN};
    for (double left; !is_over && (left = until - cli_seconds()) > 0;) {
        const int was_at = n_scrolled;
        if (poll(&keys, 1, (int)(left * 1000) + 1) > 0)
            take_keys();
        if (is_resized || n_scrolled != was_at) {
            is_resized = 0;
            draw(status, before);
        }
    }
}

/* Until the user or the process ends; the exit code. */
static int watch(const char *target, json_t *status)
{
    json_t *before = NULL;
    char why[TOP_WHY_CAP] = "";
    enter_screen();
    while (status && !is_over) {
        draw(status, before);
        wait_a_period(status, before);
        json_t *next = is_over ? NULL : top_fetch(target, why);
        const bool has_moved = !next || top_has_moved(next, status);
        json_decref(has_moved ? before : status); /* rates are over what is there */
        before = has_moved ? status : before;
        status = next;
    }
    json_decref(status);
    json_decref(before);
    leave_screen();
    if (is_over)
        return EXIT_OK;
    cli_complain("%s", why);
    return EXIT_FAILED;
}

/* Add NAME=VALUE to what is asked for; false if it is neither. */
static bool add_wish(char wishes[TOP_WISHES_CAP], const char *text)
{
    const size_t name = strspn(text, "abcdefghijklmnopqrstuvwxyz_"), len = strlen(wishes);
    if (name == 0 || text[name] != '=' || !text[name + 1] ||
        text[name + 1 + strspn(text + name + 1, "0123456789.abcdefghijklmnopqrstuvwxyz-")])
        return false;
    const int n = snprintf(wishes + len, TOP_WISHES_CAP - len, "%s%s", len ? "&" : "", text);
    return (size_t)n < TOP_WISHES_CAP - len;
}

typedef struct choices {
    bool is_once, is_json;
    char wishes[TOP_WISHES_CAP];
    const char *target;
} choices;

/* -1: go on. */
static int read_options(int argc, char **argv, choices *c)
{
    static const struct option options[] = {
        {"once", no_argument, NULL, 'o'},      {"json", no_argument, NULL, 'j'},
        {"set", required_argument, NULL, 's'}, {"loader", required_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},      {0}};
    char loader[32];
    bool is_good = true;
    for (int o; is_good && (o = getopt_long(argc, argv, "h", options, NULL)) != -1;)
        switch (o) {
        case 'o':
            c->is_once = true;
            break;
        case 'j':
            c->is_json = true;
            break;
        case 's':
            is_good = strncmp(optarg, "loader=", 7) != 0 && add_wish(c->wishes, optarg);
            if (!is_good)
                cli_complain("--set takes KNOB=N or KNOB=auto, not '%s'", optarg);
            break;
        case 'l':
            snprintf(loader, sizeof loader, "loader=%.20s", optarg);
            is_good = add_wish(c->wishes, loader);
            if (!is_good)
                cli_complain("--loader takes a number, not '%s'", optarg);
            break;
        case 'h':
            fputs(help, stdout);
            return EXIT_OK;
        default:
            return EXIT_USAGE;
        }
    if (!is_good)
        return EXIT_USAGE;
    if (optind + 1 != argc) {
        fputs(help, stderr);
        return EXIT_USAGE;
    }
    c->target = argv[optind];
    return -1;
}

int cmd_top(int argc, char **argv)
{
    choices c = {.is_once = !isatty(STDOUT_FILENO)};
    char why[TOP_WHY_CAP] = "";
    const int code = read_options(argc, argv, &c);
    if (code >= 0)
        return code;
    json_t *status = *c.wishes ? top_turn(c.target, c.wishes, why) : top_fetch(c.target, why);
    if (!status) {
        cli_complain("%s", why);
        return EXIT_FAILED;
    }
    if (!c.is_once && !c.is_json)
        return watch(c.target, status);
    if (c.is_json) {
        json_dumpf(status, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
        fputc('\n', stdout);
    } else {
        top_frame(stdout, status, NULL, (top_style){COLUMNS, is_utf8()});
    }
    json_decref(status);
    return EXIT_OK;
}
