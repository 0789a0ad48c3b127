/* remote_request.c - requests to a storage node, and how their answers are taken. */
#include "remote/remote_request.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "engine/field_parcel.h"
#include "source/grow.h"
#include "source/names.h"

enum { MAX_COMPLAINT = 4096, MAX_ERROR_TEXT = 65536, MAX_KEPT = 65536 };

void pen__request_fini(pen__request *request)
{
    curl_easy_cleanup(request->easy);
    pen__text_fini(&request->body);
    pen__text_fini(&request->answer);
    request->easy = NULL;
}

/* ---- frames ---- */

static int wrong(pen_error *err, const char *what)
{
    return pen__fail(err, PEN_ECORRUPT, -1, "%s", what);
}

/* Of what comes for an item. */
static size_t head_bytes(const pen__request *request)
{
    return request->is_fields ? PEN__FIELD_HEAD : PEN__PARCEL_HEAD;
}

static int begin_frame(void *ctx, const pen__frame *frame, pen_error *err)
{
    pen__request *request = ctx;
    if (frame->index >= (uint32_t)request->n_items)
        return wrong(err, "the answer has a frame for something that was not asked for");
    pen__item *item = &request->items[frame->index];
    if (frame->id != item->id)
        return wrong(err, "the answer has a frame of another sample");
    if (item->is_answered)
        return wrong(err, "the answer has two frames for one sample");
    item->is_answered = true;
    request->n_open--;
    const pen__call *call = item->call;
    if (frame->status > 0 || (frame->status < 0 && frame->len > MAX_ERROR_TEXT))
        return wrong(err, "the answer has a frame with an impossible status");
    if (frame->status == 0 && frame->len < head_bytes(request))
        return wrong(err, "the answer has a frame that is too short");
    size_t room = call ? call->cap + (call->head ? head_bytes(request) : 0) : SIZE_MAX;
    if (frame->status == 0 && frame->len > room)
        return wrong(err, "the answer has a frame that is longer than the sample can be");
    return 0;
}

/* Copy what of bytes [at, at+n) of the body belongs to dst, which takes those from `first` on. */
static void place(uint8_t *dst, size_t first, size_t cap, size_t at, const uint8_t *bytes, size_t n)
{
    size_t skip = at < first ? first - at : 0;
    if (skip >= n || at + skip - first >= cap)
        return;
    size_t to = at + skip - first, left = n - skip;
    memcpy(dst + to, bytes + skip, left < cap - to ? left : cap - to);
}

static void take_body(void *ctx, const pen__frame *frame, size_t at, const uint8_t *bytes, size_t n)
{
    pen__request *request = ctx;
    pen__call *call = request->items[frame->index].call;
    if (!call)
        return;
    if (frame->status != 0) { /* words: as many as an error holds */
        place((uint8_t *)call->err.text, 0, sizeof call->err.text - 1, at, bytes, n);
    } else if (call->head) {
        place(call->head, 0, head_bytes(request), at, bytes, n);
        place(call->dst, head_bytes(request), call->cap, at, bytes, n);
    } else {
        place(call->dst, 0, call->cap, at, bytes, n);
    }
}

/* Is the parcel what was asked for?  Its payload is judged by who decodes it. */
static int check_parcel(const pen__call *call, size_t len, pen_error *err)
{
    pen__parcel parcel;
    if (call->field != PEN_FIELD_IMAGE)
        return pen__field_check(call->head, len, call->field, call->choice.forms, call->raw_len,
                                err);
    int rc = pen__parcel_read(&parcel, call->head ? call->head : call->dst, len, err);
    if (rc)
        return rc;
    if (parcel.raw_len != call->raw_len)
        return pen__fail(err, PEN_ECORRUPT, -1,
                         "the sample has %zu bytes there and %zu in the manifest", parcel.raw_len,
                         call->raw_len);
    const bool is_file = parcel.form == PEN__FORM_RAW; /* what a server can always send */
    if ((!is_file && !(call->choice.forms >> parcel.form & 1)) || parcel.cut > call->choice.max_cut)
        return wrong(err, "the sample came in a form that was not asked for");
    return 0;
}

/* The words of an error frame, one line. */
static void take_error(pen__call *call, const pen__frame *frame)
{
    size_t len = frame->len < sizeof call->err.text ? frame->len : sizeof call->err.text - 1;
    pen__shown shown;
    pen__show(&shown, call->err.text, len);
    pen__fail(&call->err, frame->status, -1, "%s",
              len > 0 ? shown.text : pen_error_message(frame->status));
}

/* Would the same server say the same of the sample again?  No memory and a disk's fault may pass.
 */
static bool is_for_good(int status)
{
    return status != PEN_ENOMEM && status != PEN_EIO && status != PEN_ECANCELED;
}

static int end_frame(void *ctx, const pen__frame *frame, bool is_intact, pen_error *err)
{
    (void)err;
    pen__request *request = ctx;
    pen__item *item = &request->items[frame->index];
    pen__call *call = item->call;
    item->call = NULL;
    if (!call)
        return 0;
    const pen__request_owner *owner = request->owner;
    const bool says_no = is_intact && frame->status != 0;
    int rc = is_intact ? 0 : wrong(&call->err, "the checksum of a sample differs");
    if (says_no)
        take_error(call, frame);
    else if (rc == 0)
        rc = check_parcel(call, frame->len, &call->err);
    call->node_ns = (int64_t)frame->cpu_us * 1000;
    if (says_no || rc) {
        owner->returned(owner->ctx, call, request->server, says_no && is_for_good(frame->status));
    } else {
        call->result = (int64_t)frame->len;
        owner->answered(owner->ctx, call);
    }
    return 0;
}

static const pen__frame_sink sink = {begin_frame, take_body, end_frame};

int pen__request_feed(pen__request *request, const uint8_t *bytes, size_t n)
{
    return pen__frames_feed(&request->frames, bytes, n, &sink, request, &request->fault);
}

/* ---- what libcurl calls ---- */

/* Keep the beginning of an answer that is no frames; false: that is enough, or there is no
 * memory. */
static bool keep(pen__request *request, const char *bytes, size_t n)
{
    pen__text *answer = &request->answer;
    size_t room = request->answer_cap - answer->len;
    request->is_cut = n > room;
    if (request->is_cut)
        n = room;
    char *data = pen__grow(answer->data, &answer->cap, answer->len + n + 1, 1);
    if (!data)
        return false;
    memcpy(data + answer->len, bytes, n);
    answer->data = data;
    answer->len += n;
    data[answer->len] = '\0';
    return !request->is_cut;
}

static size_t take_bytes(char *bytes, size_t one, size_t n, void *ctx)
{
    (void)one;
    pen__request *request = ctx;
    request->moved_ns = pen__now_ns();
    request->n_bytes += (int64_t)n;
    if (request->status == 0)
        curl_easy_getinfo(request->easy, CURLINFO_RESPONSE_CODE, &request->status);
    if (request->kind != PEN__REQUEST_SAMPLES || request->status != 200)
        return keep(request, bytes, n) ? n : 0;
    const pen__asked_verdict verdict = pen__asked_judge(&request->asked);
    if (verdict != PEN__ASKED_THIS) {
        wrong(&request->fault, pen__asked_words(verdict));
        return 0;
    }
    return pen__request_feed(request, (const uint8_t *)bytes, n) ? 0 : n;
}

/* A line of the answer's head. */
static size_t take_header(char *line, size_t one, size_t n, void *ctx)
{
    (void)one;
    pen__request *request = ctx;
    request->moved_ns = pen__now_ns();
    pen__asked_hear(&request->asked, line, n);
    pen__told_parse(line, n, &request->cores);
    return n;
}

/* ---- composing ---- */

static int begin(pen__request *request, const pen__target *target, pen__server *server,
                 pen__request_kind kind)
{
    if (!request->easy)
        request->easy = curl_easy_init();
    if (!request->easy)
        return PEN_ENOMEM;
    request->server = server;
    request->kind = kind;
    request->n_items = request->n_open = 0;
    request->is_fields = false;
    request->pipeline[0] = '\0';
    request->status = 0;
    request->cores = NAN;
    request->began_ns = request->moved_ns = pen__now_ns();
    request->n_bytes = 0;
    request->frames = (pen__frames){0};
    request->fault = (pen_error){0};
    if (request->answer.cap > MAX_KEPT) /* of a check, as long as the server pleases */
        pen__text_fini(&request->answer);
    request->body.len = request->answer.len = 0;
    request->body.failed = request->is_cut = false;
    request->answer_cap = MAX_COMPLAINT;
    curl_easy_reset(request->easy); /* connections stay */
    return pen__http_prepare(target->http, request->easy, request->reason);
}

/* Once the URL and the body are there. */
static int set_common(pen__request *request)
{
    CURL *easy = request->easy;
    request->asked = pen__asked_begin(request->url, request->body.data, request->body.len);
    return curl_easy_setopt(easy, CURLOPT_URL, request->url) == CURLE_OK &&
                   curl_easy_setopt(easy, CURLOPT_PRIVATE, request) == CURLE_OK &&
                   curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header) == CURLE_OK &&
                   curl_easy_setopt(easy, CURLOPT_HEADERDATA, request) == CURLE_OK &&
                   curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_bytes) == CURLE_OK &&
                   curl_easy_setopt(easy, CURLOPT_WRITEDATA, request) == CURLE_OK
               ? 0
               : PEN_ENOMEM;
}

static int set_body(pen__request *request, const char *body, size_t len)
{
    CURL *easy = request->easy;
    return curl_easy_setopt(easy, CURLOPT_POST, 1L) == CURLE_OK &&
                   curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long)len) == CURLE_OK &&
                   curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body) == CURLE_OK
               ? 0
               : PEN_ENOMEM;
}

static void set_pipeline(pen__request *request, const pen_pipeline *pipe)
{
    snprintf(request->pipeline, sizeof request->pipeline, "%s", pen_pipeline_hash(pipe));
}

int pen__request_check(pen__request *request, const pen__target *target, pen__server *server,
                       size_t max_bytes)
{
    int rc = begin(request, target, server, PEN__REQUEST_CHECK);
    if (rc)
        return rc;
    request->answer_cap = max_bytes;
    snprintf(request->url, sizeof request->url, "%s://%s/v1/data/%s", target->scheme, server->label,
             target->name);
    return set_common(request);
}

int pen__request_put(pen__request *request, const pen__target *target, pen__server *server)
{
    int rc = begin(request, target, server, PEN__REQUEST_PUT);
    if (rc)
        return rc;
    const char *text = pen_pipeline_describe(server->wanted);
    set_pipeline(request, server->wanted);
    snprintf(request->url, sizeof request->url, "%s://%s/v1/pipelines/%s", target->scheme,
             server->label, request->pipeline);
    pen__text_add(&request->body, "%s", text); /* the pipeline may go before the request does */
    if (request->body.failed || set_common(request) != 0 ||
        set_body(request, request->body.data, request->body.len) != 0 ||
        curl_easy_setopt(request->easy, CURLOPT_CUSTOMREQUEST, "PUT") != CURLE_OK)
        return PEN_ENOMEM;
    return 0;
}

static void write_items(pen__text *body, pen__call *const *calls, int n, bool has_pipeline,
                        uint64_t job, const char *hash)
{
    const pen__call *first = calls[0];
    if (has_pipeline)
        pen__text_add(body, "{\"pipeline\":\"%s\"", pen_pipeline_hash(first->pipe));
    else
        pen__text_add(body, "{\"pipeline\":null");
    if (has_pipeline && first->key.sample != first->id) /* the same for all of a shard */
        pen__text_add(body, ",\"base\":%lld", (long long)(first->key.sample - first->id));
    pen__text_add(body, ",\"seed\":\"%llu\",\"job\":\"%llu\",\"hash\":\"%s\",\"items\":[",
                  (unsigned long long)first->key.seed, (unsigned long long)job, hash);
    for (int i = 0; i < n; i++) {
        const pen__call *call = calls[i];
        pen__text_add(body, "%s", i ? "," : "");
        if (call->field != PEN_FIELD_IMAGE)
            pen__text_add(body, "[%u,\"%s\",%u]", call->id, pen_field_name(call->field),
                          call->choice.forms);
        else
            pen__text_add(body, "[%u,%lld,%d,%d,%u]", call->id, (long long)call->key.epoch,
                          call->key.occurrence, has_pipeline ? call->choice.max_cut : 0,
                          has_pipeline ? call->choice.forms : 1U << PEN__FORM_RAW);
    }
    pen__text_add(body, "]}");
}

int pen__request_samples(pen__request *request, const pen__target *target, pen__server *server,
                         pen__call *const *calls, int n, bool has_pipeline, const char *hash)
{
    int rc = begin(request, target, server, PEN__REQUEST_SAMPLES);
    if (rc)
        return rc;
    if (has_pipeline)
        set_pipeline(request, calls[0]->pipe);
    snprintf(request->url, sizeof request->url, "%s://%s/v1/data/%s/samples", target->scheme,
             server->label, target->name);
    request->job = pen__told_job(target->owner, calls[0]->pipe);
    write_items(&request->body, calls, n, has_pipeline, request->job, hash);
    if (request->body.failed || set_common(request) != 0 ||
        set_body(request, request->body.data, request->body.len) != 0)
        return PEN_ENOMEM;
    for (int i = 0; i < n; i++)
        request->items[i] = (pen__item){.call = calls[i], .id = calls[i]->id};
    request->n_items = request->n_open = n;
    request->is_fields = calls[0]->field != PEN_FIELD_IMAGE;
    return 0;
}

pen__server_pace pen__request_pace(const pen__request *request, int64_t now_ns)
{
    const double seconds = (double)(now_ns - request->began_ns + 1) / 1e9;
    const int n_whole =
        request->n_items - request->n_open - !pen__frames_is_between(&request->frames);
    return (pen__server_pace){(double)request->n_bytes / seconds, n_whole / seconds};
}

bool pen__request_is_stuck(const pen__request *request, const pen__http *http, int64_t now_ns,
                           char *cause, size_t cause_cap)
{
    const int64_t limit_ns = http->timeout_ns / 2; /* for what is a short question */
    if (now_ns - request->moved_ns > http->stall_ns)
        snprintf(cause, cause_cap, "no byte for %.1f s", (double)http->stall_ns / 1e9);
    else if (request->kind != PEN__REQUEST_SAMPLES && now_ns - request->began_ns > limit_ns)
        snprintf(cause, cause_cap, "half an answer in %.1f s", (double)limit_ns / 1e9);
    else
        return false;
    return true;
}

void pen__request_forget(pen__request *request, const pen__call *call)
{
    for (int i = 0; i < request->n_items; i++)
        if (request->items[i].call == call)
            request->items[i].call = NULL;
}

/* ---- judging ---- */

static pen__outcome judge_identity(const pen__identity *theirs, const pen__identity *ours,
                                   char *cause, size_t cause_cap)
{
    if (strcmp(theirs->samples, ours->samples) != 0)
        snprintf(cause, cause_cap, "it holds another dataset by now: its hash is %s, not %s",
                 theirs->samples, ours->samples);
    else if (strcmp(theirs->classes, ours->classes) != 0)
        snprintf(cause, cause_cap, "it holds another dataset by now: its classes are others");
    else
        return PEN__OUTCOME_DID;
    return PEN__OUTCOME_REFUSED;
}

static pen__outcome judge_check(const pen__request *request, const pen__identity *identity,
                                char *cause, size_t cause_cap)
{
    if (request->is_cut) {
        snprintf(cause, cause_cap, "what it says of its dataset is longer than %zu bytes",
                 request->answer_cap);
        return PEN__OUTCOME_FAILED;
    }
    pen__part part = {.max_bytes = pen__parts_max_bytes()};
    pen_error err = {0};
    const pen__text *answer = &request->answer;
    const int rc = pen__part_describe(&part, answer->data ? answer->data : "", answer->len, &err);
    pen__outcome outcome = PEN__OUTCOME_FAILED;
    if (rc == 0)
        outcome = judge_identity(&part.identity, identity, cause, cause_cap);
    else
        snprintf(cause, cause_cap, "%s", err.text);
    pen__part_fini(&part);
    return outcome;
}

static pen__outcome judge_samples(const pen__request *request, char *cause, size_t cause_cap)
{
    int n_lacking = request->n_open + !pen__frames_is_between(&request->frames);
    if (n_lacking == 0)
        return PEN__OUTCOME_DID;
    snprintf(cause, cause_cap, "the answer ended before %d of %d samples were there", n_lacking,
             request->n_items);
    return PEN__OUTCOME_FAILED;
}

/* A whole answer that says no.  Heads of requests have no checksum: a bit that flips in one may
 * make it 400, 403, 405 and others, which are said of what is wrong for good as well.  A token is
 * wrong at once: who tries others is shut out, and who lacks one shall be told. */
static pen__outcome judge_status(const pen__request *request, char *cause, size_t cause_cap)
{
    long status = request->status;
    const pen__asked_verdict verdict = pen__asked_judge(&request->asked);
    const bool is_ours = verdict == PEN__ASKED_THIS; /* what it says is about what was asked */
    pen__http_explain_status(status, request->answer.data, request->answer.len, cause, cause_cap);
    if (status == 401)
        return PEN__OUTCOME_REFUSED;
    if (verdict == PEN__ASKED_SOMETHING_ELSE) {
        snprintf(cause, cause_cap, "%s", pen__asked_words(verdict));
        return PEN__OUTCOME_FAILED;
    }
    if (request->kind == PEN__REQUEST_PUT && status == 422 && is_ours)
        return PEN__OUTCOME_REFUSES_PIPELINE;
    if (request->kind == PEN__REQUEST_SAMPLES && status == 404 && *request->pipeline && is_ours)
        return pen__server_has_put(request->server, request->pipeline)
                   ? PEN__OUTCOME_FORGETS_PIPELINE
                   : PEN__OUTCOME_LACKS_PIPELINE;
    bool may_change = status >= 500 || status < 400 || status == 404 || status == 408 ||
                      status == 409 || status == 429;
    return may_change ? PEN__OUTCOME_FAILED : PEN__OUTCOME_DENIED;
}

pen__outcome pen__request_judge(pen__request *request, CURLcode code, const pen__identity *identity,
                                char *cause, size_t cause_cap, int64_t *again_ns)
{
    *again_ns = -1;
    curl_easy_getinfo(request->easy, CURLINFO_RESPONSE_CODE, &request->status);
    if (request->fault.code) {
        snprintf(cause, cause_cap, "%s", request->fault.text);
        return PEN__OUTCOME_FAILED;
    }
    if (code != CURLE_OK && !request->is_cut) {
        pen__http_explain(request->easy, code, request->reason, cause, cause_cap);
        return PEN__OUTCOME_FAILED;
    }
    bool is_put = request->kind == PEN__REQUEST_PUT && request->status == 201;
    if (request->status != 200 && !is_put) {
        if (request->status == 429 || request->status == 503)
            *again_ns = pen__http_retry_after(request->easy);
        return judge_status(request, cause, cause_cap);
    }
    const pen__asked_verdict verdict = pen__asked_judge(&request->asked);
    if (verdict != PEN__ASKED_THIS) {
        snprintf(cause, cause_cap, "%s", pen__asked_words(verdict));
        return PEN__OUTCOME_FAILED;
    }
    if (request->kind == PEN__REQUEST_CHECK)
        return judge_check(request, identity, cause, cause_cap);
    return request->kind == PEN__REQUEST_PUT ? PEN__OUTCOME_DID
                                             : judge_samples(request, cause, cause_cap);
}
