/* remote_http.h - what all requests to storage nodes have in common: token, certificates, time.
 *
 * libcurl does the speaking.  Requests go where the URL says and nowhere else: redirections are
 * not followed, and proxies of the environment are for the web, not for storage.
 */
#ifndef PEN_REMOTE_REMOTE_HTTP_H
#define PEN_REMOTE_REMOTE_HTTP_H

#include <curl/curl.h>

#include <penstock/dataset.h>

#include "base/text.h"

/* How to speak to the servers of one dataset. */
typedef struct pen__http {
    struct curl_slist *headers; /* the token is in here, and in no message */
    char *ca_file;              /* NULL: the system's */
    int64_t timeout_ns;         /* after which a sample that cannot be had is an error */
    int64_t stall_ns;           /* without a byte, after which another server is asked */
} pen__http;

/* From $PENSTOCK_TOKEN or $PENSTOCK_TOKEN_FILE, $PENSTOCK_CA_FILE and $PENSTOCK_REMOTE_TIMEOUT (in
 * seconds).  PEN_EINVAL, PEN_EIO or PEN_ENOMEM; pen__http_fini is due in any case. */
int pen__http_init(pen__http *http, pen_error *err);
void pen__http_fini(pen__http *http);

/* Set what all requests share; `reason` (CURL_ERROR_SIZE bytes) gets libcurl's words.
 * PEN_ENOMEM. */
int pen__http_prepare(const pen__http *http, CURL *easy, char *reason);

/* Why the transfer of `easy` failed, in a few words.  `reason` as above. */
void pen__http_explain(CURL *easy, CURLcode code, const char *reason, char *dst, size_t dst_cap);
/* What a server's answer {"error": "..."} says, one line, behind the status: "404, no such". */
void pen__http_explain_status(long status, const char *body, size_t len, char *dst, size_t dst_cap);

/* What Retry-After says, in nanoseconds and within reason; -1: nothing. */
int64_t pen__http_retry_after(CURL *easy);

/* What a line of an answer's head says under this name ("Penstock-Cores:"), without white space
 * around it; its length, or -1: it is another line. */
int64_t pen__http_value(const char *line, size_t len, const char *name, const char **value);

typedef struct pen__http_answer {
    long status;       /* 0: none came */
    bool is_ours;      /* the status is an answer to what was asked, as it says */
    int64_t again_ns;  /* 429, 503: when to come again; -1: it does not say */
    char why[320];     /* what went wrong */
    bool is_cancelled; /* by opts->progress */
    bool is_too_long;
    bool is_empty;    /* the connection was closed without a byte */
    bool is_for_good; /* nothing came, and asking again would not change that */
} pen__http_answer;

/* GET `url`, in the caller's thread, up to max_bytes and until then into `body`, which is emptied
 * first.  opts->progress hears (done, total) now and then.  PEN_OK for status 200 of an answer to
 * what was asked (remote_asked.h); PEN_EIO otherwise, or PEN_ENOMEM, PEN_ECANCELED.  Look into
 * `answer` for what happened. */
int pen__http_get(const pen__http *http, CURL *easy, const char *url, size_t max_bytes,
                  int64_t until_ns, const pen_dataset_opts *opts, int64_t done, int64_t total,
                  pen__text *body, pen__http_answer *answer);

#endif
