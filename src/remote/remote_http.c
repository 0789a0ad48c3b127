/* remote_http.c - libcurl, set up once for all kinds of requests. */
#include "remote/remote_http.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "remote/remote_asked.h"
#include "source/fileio.h"
#include "source/grow.h"
#include "source/names.h"
#include "source/source.h"

enum {
    DEFAULT_TIMEOUT_S = 60,
    MAX_TIMEOUT_S = 24 * 3600,
    MAX_STALL_S = 10,
    MAX_TOKEN = 4096,
    MAX_COMPLAINT = 4096, /* bytes of an answer that is none; JSON takes many times as many */
    LEAST_BYTES_PER_S = 100,
    BUFFER = 128 * 1024, /* what libcurl hands over at a time, at most */
    RETRY_AFTER_MAX_S = 60,
};

static const int64_t second_ns = 1000000000;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static CURLcode is_ready = CURLE_FAILED_INIT;

static void prepare_library(void)
{
    is_ready = curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* Digits, perhaps a point and digits, whatever the locale; -1 if it is anything else. */
static int64_t parse_seconds(const char *text)
{
    int64_t ns = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && ns <= MAX_TIMEOUT_S * second_ns; at++)
        ns = ns * 10 + (*at - '0') * second_ns;
    if (*at == '.')
        for (int64_t unit = second_ns / 10; *++at >= '0' && *at <= '9'; unit /= 10)
            ns += (*at - '0') * unit;
    return *at || at == text ? -1 : ns;
}

static int read_timeout(pen__http *http, pen_error *err)
{
    const char *text = getenv("PENSTOCK_REMOTE_TIMEOUT");
    http->timeout_ns = text && *text ? parse_seconds(text) : DEFAULT_TIMEOUT_S * second_ns;
    if (http->timeout_ns <= 0 || http->timeout_ns > MAX_TIMEOUT_S * second_ns) {
        pen__shown shown;
        return pen__fail(err, PEN_EINVAL, -1,
                         "PENSTOCK_REMOTE_TIMEOUT is '%s': give seconds, up to %d",
                         pen__show(&shown, text, strlen(text)), MAX_TIMEOUT_S);
    }
    http->stall_ns = http->timeout_ns / 6;
    if (http->stall_ns > MAX_STALL_S * second_ns)
        http->stall_ns = MAX_STALL_S * second_ns;
    return 0;
}

static int add_header(pen__http *http, const char *line)
{
    struct curl_slist *longer = curl_slist_append(http->headers, line);
    if (longer)
        http->headers = longer;
    return longer ? 0 : PEN_ENOMEM;
}

/* A line break in it would be a header of somebody else's choice. */
static int add_token(pen__http *http, const char *token, const char *from, pen_error *err)
{
    size_t len = strcspn(token, "\r\n");
    if (token[len + strspn(token + len, "\r\n")] != '\0')
        return pen__fail(err, PEN_EINVAL, -1, "%s has more than one line", from);
    for (size_t i = 0; i < len; i++)
        if (token[i] <= ' ' || token[i] > '~')
            return pen__fail(err, PEN_EINVAL, -1, "%s has a character that no token has", from);
    if (len == 0)
        return pen__fail(err, PEN_EINVAL, -1, "%s is empty", from);
    pen__text line = {0};
    pen__text_add(&line, "Authorization: Bearer %.*s", (int)len, token);
    int rc = line.failed ? PEN_ENOMEM : add_header(http, line.data);
    pen__text_fini(&line);
    return rc ? pen__fail(err, rc, -1, "out of memory") : 0;
}

static int read_token(pen__http *http, pen_error *err)
{
    const char *token = getenv("PENSTOCK_TOKEN"), *path = getenv("PENSTOCK_TOKEN_FILE");
    if (token && *token)
        return add_token(http, token, "PENSTOCK_TOKEN", err);
    if (!path || !*path)
        return 0;
    char *text = NULL;
    int64_t n = pen__read_file(AT_FDCWD, path, MAX_TOKEN, &text, err);
    if (n < 0) {
        pen__fail_prefix(err, "PENSTOCK_TOKEN_FILE");
        return (int)n;
    }
    int rc = add_token(http, text, "the file of PENSTOCK_TOKEN_FILE", err);
    pen__free(text);
    return rc;
}

int pen__http_init(pen__http *http, pen_error *err)
{
    *http = (pen__http){0};
    pthread_once(&once, prepare_library);
    if (is_ready != CURLE_OK)
        return pen__fail(err, PEN_ENOMEM, -1, "libcurl does not start: %s",
                         curl_easy_strerror(is_ready));
    int rc = read_timeout(http, err);
    if (rc == 0)
        rc = read_token(http, err);
    if (rc)
        return rc;
    const char *ca_file = getenv("PENSTOCK_CA_FILE");
    if (ca_file && *ca_file)
        http->ca_file = pen__strdup(ca_file);
    if ((ca_file && *ca_file && !http->ca_file) || add_header(http, "Expect:") != 0 ||
        add_header(http, "Content-Type: application/json") != 0)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    return 0;
}

void pen__http_fini(pen__http *http)
{
    curl_slist_free_all(http->headers);
    pen__free(http->ca_file);
    *http = (pen__http){0};
}

static CURLcode allow_only_http(CURL *easy)
{
#if LIBCURL_VERSION_NUM >= 0x075500
    return curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    return curl_easy_setopt(easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

/* A directory of certificates that is built into the library would be trusted as well. */
static CURLcode trust_only(CURL *easy, const char *ca_file)
{
    const CURLcode code = curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    return code == CURLE_OK ? curl_easy_setopt(easy, CURLOPT_CAINFO, ca_file) : code;
}

int pen__http_prepare(const pen__http *http, CURL *easy, char *reason)
{
    reason[0] = '\0';
    /* For speed alone.  libcurl 7.88 refuses it for a handle whose last host was not found. */
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)BUFFER);
    bool is_set =
        allow_only_http(easy) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_NOPROXY, "*") == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)(http->stall_ns / 1000000 + 1)) ==
            CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_USERAGENT, "penstock") == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_HTTPHEADER, http->headers) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, reason) == CURLE_OK &&
        (!http->ca_file || trust_only(easy, http->ca_file) == CURLE_OK);
    return is_set ? 0 : PEN_ENOMEM;
}

/* Did plain HTTP answer where TLS was spoken?  Only the words of the TLS library tell: those of
 * OpenSSL and of GnuTLS. */
static bool is_plain_there(CURLcode code, const char *reason)
{
    return code == CURLE_SSL_CONNECT_ERROR &&
           (strstr(reason, "wrong version number") || strstr(reason, "unexpected TLS packet"));
}

/* Does nobody vouch for its certificate?  It may as well be out of date, or another host's. */
static bool is_unknown(CURLcode code, const char *reason)
{
    return code == CURLE_PEER_FAILED_VERIFICATION &&
           (strstr(reason, "issuer") || strstr(reason, "self"));
}

void pen__http_explain(CURL *easy, CURLcode code, const char *reason, char *dst, size_t dst_cap)
{
    static const struct {
        CURLcode code;
        const char *words;
    } plain[] = {
        {CURLE_GOT_NOTHING, "the connection was closed without an answer"},
        {CURLE_PARTIAL_FILE, "the connection was closed within an answer"},
        {CURLE_RECV_ERROR, "the connection broke"},
        {CURLE_SEND_ERROR, "the connection broke"},
        {CURLE_OPERATION_TIMEDOUT, "no connection in time"},
    };
    const char *words = *reason ? reason : curl_easy_strerror(code);
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (plain[i].code == code)
            words = plain[i].words;
    if (is_plain_there(code, reason))
        words = "it does not speak TLS: penstock:// is for such nodes, penstocks:// for TLS";
    char system[96];
    long number = 0;
    if (code == CURLE_COULDNT_CONNECT &&
        curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &number) == CURLE_OK && number != 0)
        words = number == ECONNREFUSED ? "connection refused"
                                       : strerror_r((int)number, system, sizeof system);
    pen__shown shown;
    snprintf(dst, dst_cap, "%s%s", pen__show(&shown, words, strlen(words)),
             is_unknown(code, words) ? "; PENSTOCK_CA_FILE names a file of certificates to trust"
                                     : "");
}

void pen__http_explain_status(long status, const char *body, size_t len, char *dst, size_t dst_cap)
{
    json_t *root = body && len <= MAX_COMPLAINT ? json_loadb(body, len, 0, NULL) : NULL;
    const char *says = json_string_value(json_object_get(root, "error"));
    pen__shown shown;
    if (status == 401)
        snprintf(dst, dst_cap,
                 "%ld, %s: give the node's token in PENSTOCK_TOKEN or PENSTOCK_TOKEN_FILE", status,
                 says ? pen__show(&shown, says, strlen(says)) : "not allowed");
    else if (says)
        snprintf(dst, dst_cap, "%ld, %s", status, pen__show(&shown, says, strlen(says)));
    else
        snprintf(dst, dst_cap, "%ld", status);
    json_decref(root);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

int64_t pen__http_value(const char *line, size_t len, const char *name, const char **value)
{
    const size_t n = strlen(name);
    if (len < n || strncasecmp(line, name, n) != 0)
        return -1;
    line += n;
    len -= n;
    while (len > 0 && is_space(line[len - 1]))
        len--;
    while (len > 0 && is_space(*line)) {
        line++;
        len--;
    }
    *value = line;
    return (int64_t)len;
}

int64_t pen__http_retry_after(CURL *easy)
{
    curl_off_t seconds = 0;
    if (curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &seconds) != CURLE_OK || seconds <= 0)
        return -1;
    return (seconds < RETRY_AFTER_MAX_S ? seconds : RETRY_AFTER_MAX_S) * second_ns;
}

/* ---- in the caller's thread ---- */

typedef struct getting {
    const pen__http *http;
    CURL *easy;
    const pen_dataset_opts *opts;
    int64_t done, total;
    int64_t until_ns; /* all of it has to be there */
    int64_t moved_at; /* when a byte came last */
    curl_off_t n_bytes;
    pen__asked asked;
    pen__text *body;
    size_t max_bytes;
    pen__http_answer *answer;
    bool is_stalled, is_late;
} getting;

/* What is no answer may only complain. */
static void limit_complaint(getting *g)
{
    long status = 0;
    curl_easy_getinfo(g->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200 && g->max_bytes > MAX_COMPLAINT)
        g->max_bytes = MAX_COMPLAINT;
}

static size_t take_bytes(char *bytes, size_t one, size_t n, void *ctx)
{
    (void)one;
    getting *g = ctx;
    pen__text *body = g->body;
    if (body->len == 0)
        limit_complaint(g);
    if (n > g->max_bytes - body->len) {
        g->answer->is_too_long = true;
        return 0;
    }
    char *data = pen__grow(body->data, &body->cap, body->len + n + 1, 1);
    if (!data) {
        body->failed = true;
        return 0;
    }
    memcpy(data + body->len, bytes, n);
    body->data = data;
    body->len += n;
    data[body->len] = '\0';
    return n;
}

/* A line of the answer's head. */
static size_t take_header(char *line, size_t one, size_t n, void *ctx)
{
    (void)one;
    getting *g = ctx;
    g->moved_at = pen__now_ns();
    pen__asked_hear(&g->asked, line, n);
    return n;
}

/* Called by libcurl at least once a second. */
static int watch(void *ctx, curl_off_t down_total, curl_off_t down, curl_off_t up_total,
                 curl_off_t up)
{
    (void)down_total, (void)up_total;
    getting *g = ctx;
    int64_t now = pen__now_ns();
    if (down + up != g->n_bytes)
        g->moved_at = now;
    g->n_bytes = down + up;
    g->is_stalled = now - g->moved_at > g->http->stall_ns;
    g->is_late = now > g->until_ns;
    g->answer->is_cancelled = pen__dataset_report(g->opts, g->done, g->total, NULL) != 0;
    return g->is_stalled || g->is_late || g->answer->is_cancelled;
}

/* A server that closes while we write must not end the program, whatever it does with SIGPIPE. */
static CURLcode perform_without_sigpipe(CURL *easy)
{
    sigset_t pipe, before, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    bool was_pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    CURLcode code = curl_easy_perform(easy);
    if (!was_pending)
        sigtimedwait(&pipe, NULL, &(struct timespec){0, 0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

/* Certificates do not get better by waiting. */
static bool is_for_good(CURLcode code, const char *reason)
{
    return is_plain_there(code, reason) || code == CURLE_PEER_FAILED_VERIFICATION ||
           code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_ISSUER_ERROR ||
           code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT;
}

static int judge(getting *g, CURL *easy, CURLcode code, const char *reason)
{
    pen__http_answer *answer = g->answer;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &answer->status);
    const pen__asked_verdict verdict = pen__asked_judge(&g->asked);
    const bool is_strange = answer->status == 200
                                ? verdict != PEN__ASKED_THIS
                                : answer->status != 401 && verdict == PEN__ASKED_SOMETHING_ELSE;
    answer->is_ours = verdict == PEN__ASKED_THIS;
    if (g->body->failed)
        return PEN_ENOMEM;
    if (answer->is_cancelled)
        return PEN_ECANCELED;
    if (answer->is_too_long)
        snprintf(answer->why, sizeof answer->why, "the answer is longer than %zu bytes",
                 g->max_bytes);
    else if (g->is_stalled)
        snprintf(answer->why, sizeof answer->why, "no byte for %.1f s",
                 (double)g->http->stall_ns / 1e9);
    else if (g->is_late)
        snprintf(answer->why, sizeof answer->why, "no whole answer in time");
    else if (code != CURLE_OK)
        pen__http_explain(easy, code, reason, answer->why, sizeof answer->why);
    else if (is_strange)
        snprintf(answer->why, sizeof answer->why, "%s", pen__asked_words(verdict));
    else if (answer->status != 200)
        pen__http_explain_status(answer->status, g->body->data, g->body->len, answer->why,
                                 sizeof answer->why);
    else
        return 0;
    answer->is_for_good = is_for_good(code, reason);
    answer->is_empty = code == CURLE_GOT_NOTHING;
    if (code != CURLE_OK || is_strange) /* as good as none */
        answer->status = 0;
    answer->again_ns = pen__http_retry_after(easy);
    return PEN_EIO;
}

int pen__http_get(const pen__http *http, CURL *easy, const char *url, size_t max_bytes,
                  int64_t until_ns, const pen_dataset_opts *opts, int64_t done, int64_t total,
                  pen__text *body, pen__http_answer *answer)
{
    char reason[CURL_ERROR_SIZE];
    *answer = (pen__http_answer){.again_ns = -1};
    body->len = 0;
    getting g = {.http = http, .easy = easy, .opts = opts, .done = done, .total = total};
    g.body = body;
    g.max_bytes = max_bytes;
    g.until_ns = until_ns;
    g.moved_at = pen__now_ns();
    g.asked = pen__asked_begin(url, NULL, 0);
    g.answer = answer;
    curl_easy_reset(easy);
    if (pen__http_prepare(http, easy, reason) != 0 ||
        curl_easy_setopt(easy, CURLOPT_URL, url) != CURLE_OK ||
        curl_easy_setopt(easy, CURLOPT_ACCEPT_ENCODING, "") != CURLE_OK ||
        curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header) != CURLE_OK ||
        curl_easy_setopt(easy, CURLOPT_HEADERDATA, &g) != CURLE_OK ||
        curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_bytes) != CURLE_OK ||
        curl_easy_setopt(easy, CURLOPT_WRITEDATA, &g) != CURLE_OK ||
        curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, watch) != CURLE_OK ||
        curl_easy_setopt(easy, CURLOPT_XFERINFODATA, &g) != CURLE_OK ||
        curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, (long)LEAST_BYTES_PER_S) != CURLE_OK ||
        curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, 1 + (long)(http->stall_ns / second_ns)) !=
            CURLE_OK ||
        curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L) != CURLE_OK)
        return PEN_ENOMEM;
    CURLcode code = perform_without_sigpipe(easy);
    return judge(&g, easy, code, reason);
}
