/* test_serve.c - the HTTP side of loaders, asked as strangers would. */
#include "testing.h"

#include <jansson.h>
#include <microhttpd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "commas.h"
#include "engine/loader_impl.h"
#include "loading.h"
#include "openmetrics.h"
#include "wire.h"

enum { ANSWER_CAP = 1 << 18, MANY = 40 };

static char answer[ANSWER_CAP];

static pen_loader *served(const char *address)
{
    pen_loader_opts o = options(1);
    o.metrics = address;
    return open_loader(&o);
}

static int port_of(const pen_loader *loader)
{
    char address[128];
    assert_true(pen_loader_address(loader, address, sizeof address) > 0);
    return port_in(address);
}

static int connect_locally(pid_t pid)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "penstock-%d", (int)pid);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&at,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Send bytes, read until the other side closes; the status, 0 for no answer.  Takes the fd. */
static int talk(int fd, const char *bytes, size_t len)
{
    size_t n;
    answer[0] = '\0';
    if (fd < 0)
        return 0;
    if (send(fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len)
        return read_answer(fd, answer, sizeof answer, &n);
    close(fd);
    return 0;
}

static int ask(int fd, const char *line)
{
    char request[512];
    int n = snprintf(request, sizeof request, "%s\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
                     line);
    return talk(fd, request, (size_t)n);
}

static const char *body(void)
{
    const char *at = strstr(answer, "\r\n\r\n");
    assert_non_null(at);
    return at + 4;
}

static void metrics_and_status_are_served(void **state)
{
    (void)state;
    static om_text parsed;
    pen_loader *loader = served("127.0.0.1:0");
    uint64_t hash = 0;
    take(loader, 2, &hash);
    const int port = port_of(loader);
    assert_int_equal(ask(connect_to(port), "GET /metrics HTTP/1.1"), 200);
    assert_non_null(strstr(answer, "Content-Type: application/openmetrics-text; version=1.0.0"));
    om_parse(body(), &parsed);
    assert_int_equal(ask(connect_to(port), "GET /status.json HTTP/1.0"), 200);
    json_t *status = json_loads(body(), 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(status, "pid")), getpid());
    assert_int_equal(json_array_size(json_object_get(status, "loaders")), 1);
    json_decref(status);
    assert_int_equal(ask(connect_to(port), "HEAD /metrics HTTP/1.1"), 200);
    assert_string_equal(body(), "");
    assert_int_equal(ask(connect_to(port), "GET / HTTP/1.1"), 404);
    assert_int_equal(ask(connect_to(port), "GET /metrics/../status.json HTTP/1.1"), 404);
    assert_int_equal(ask(connect_to(port), "POST /metrics HTTP/1.1"), 405);
    assert_int_equal(ask(connect_to(port), "DELETE /status.json HTTP/1.1"), 405);
    pen_loader_free(loader);
    assert_int_equal(connect_to(port), -1);
}

/* A page whose own name was made to resolve to this machine does not read it. */
static void strange_host_names_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *host;
        int status;
    } cases[] = {{"evil.example", 403},       {"evil.example:9464", 403},
                 {"127.0.0.1:9464", 200},     {"localhost", 200},
                 {"LOCALHOST:1", 200},        {"[::1]:9464", 200},
                 {"127.0.0.1.evil.com", 403}, {"", 403}};
    pen_loader *loader = served(":0");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char request[256];
        int n = snprintf(request, sizeof request,
                         "GET /metrics HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
                         cases[i].host);
        assert_int_equal(talk(connect_to(port_of(loader)), request, (size_t)n), cases[i].status);
    }
    pen_loader_free(loader);
}

static void loaders_share_an_address_until_the_last_leaves(void **state)
{
    (void)state;
    pen_loader *first = served("127.0.0.1:0"), *second = served("127.0.0.1:0");
    const int port = port_of(first);
    assert_int_equal(port_of(second), port);
    assert_int_equal(ask(connect_to(port), "GET /status.json HTTP/1.1"), 200);
    json_t *status = json_loads(body(), 0, NULL);
    assert_int_equal(json_array_size(json_object_get(status, "loaders")), 2);
    json_decref(status);
    pen_loader_free(first);
    assert_int_equal(ask(connect_to(port), "GET /status.json HTTP/1.1"), 200);
    status = json_loads(body(), 0, NULL);
    assert_int_equal(json_array_size(json_object_get(status, "loaders")), 1);
    json_decref(status);
    pen_loader_free(second);
    assert_int_equal(connect_to(port), -1);
}

static void a_taken_port_leads_to_the_next(void **state)
{
    (void)state;
    pen_loader *first = served("127.0.0.1:0");
    char same[64], address[128];
    snprintf(same, sizeof same, "127.0.0.1:%d", port_of(first));
    pen_loader *second = served(same); /* another wish than :0, so a server of its own */
    assert_true(port_of(second) > port_of(first) && port_of(second) < port_of(first) + 16);
    assert_int_equal(ask(connect_to(port_of(second)), "GET /metrics HTTP/1.1"), 200);
    assert_true(pen_loader_address(second, address, sizeof address) > 0);
    assert_int_equal(pen_loader_address(second, address, 5), PEN_ENOSPC);
    pen_loader_free(first);
    pen_loader_free(second);
}

static void what_is_no_address_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "nonsense",        "127.0.0.1",        "127.0.0.1:",   "127.0.0.1:x",
        "127.0.0.1:65536", "127.0.0.1:999999", "host.name:80", "[::1:80",
        "::1:80",          "[127.0.0.1]:1",    "127.0.0.1:-1", "[]:1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        pen_loader_opts o = options(1);
        pen_loader *loader;
        pen_error err;
        o.metrics = wrong[i];
        assert_int_equal(pen_loader_create(&loader, ds, pipe_, &o, &err), PEN_EINVAL);
        assert_non_null(strstr(err.text, "metrics wants an address"));
    }
    pen_loader_opts o = options(1);
    pen_loader *loader;
    pen_error err;
    o.metrics = "192.0.2.1:9464"; /* a documentation address: not ours */
    assert_int_equal(pen_loader_create(&loader, ds, pipe_, &o, &err), PEN_EIO);
}

static void the_environment_is_obeyed_unless_off(void **state)
{
    (void)state;
    char address[128];
    setenv("PENSTOCK_METRICS", "127.0.0.1:0", 1);
    pen_loader *by_environment = served(NULL), *off = served("off");
    assert_true(port_of(by_environment) > 0);
    assert_int_equal(pen_loader_address(off, address, sizeof address), 0);
    unsetenv("PENSTOCK_METRICS");
    pen_loader_free(by_environment);
    pen_loader_free(off);
}

static void an_environment_that_cannot_be_obeyed_is_no_error(void **state)
{
    (void)state;
    static const char *const wishes[] = {"192.0.2.1:9464", "nonsense", ""};
    for (size_t i = 0; i < sizeof wishes / sizeof wishes[0]; i++) {
        char address[128];
        setenv("PENSTOCK_METRICS", wishes[i], 1);
        pen_loader *loader = served(NULL);
        unsetenv("PENSTOCK_METRICS");
        assert_int_equal(pen_loader_address(loader, address, sizeof address), 0);
        pen_loader_free(loader);
    }
}

static void garbage_does_no_harm(void **state)
{
    (void)state;
    static char junk[100000];
    pen_loader *loader = served("127.0.0.1:0");
    const int port = port_of(loader);
    static const char *const lines[] = {
        "\r\n\r\n",
        "GET\r\n\r\n",
        "GET /metrics\r\n\r\n",
        "GET /metrics HTTP/9.9\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", /* a TLS hello */
        "GET /metrics HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        "POST /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "GET /%00%ff%zz HTTP/1.1\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        int fd = connect_to(port);
        assert_true(fd >= 0);
        send(fd, lines[i], strlen(lines[i]), MSG_NOSIGNAL);
        shutdown(fd, SHUT_WR);
        while (recv(fd, answer, sizeof answer, 0) > 0) {
        }
        close(fd);
    }
    uint32_t x = 1;
    for (int round = 0; round < 50; round++) {
        for (size_t i = 0; i < sizeof junk; i++)
            junk[i] = round % 2 ? 'A' : (char)((x = x * 1664525 + 1013904223) >> 24);
        int fd = connect_to(port);
        send(fd, junk, sizeof junk, MSG_NOSIGNAL);
        close(fd);
    }
    snprintf(junk, sizeof junk, "GET /metrics HTTP/1.1\r\nX: ");
    memset(junk + strlen(junk), 'a', 60000);
    assert_int_not_equal(talk(connect_to(port), junk, 60000), 200);
    assert_int_equal(ask(connect_to(port), "GET /metrics HTTP/1.1"), 200);
    pen_loader_free(loader);
}

/* Idle and half-said connections take up places, not the loader; and its end waits for none. */
static void idle_and_slow_clients_hold_up_nobody(void **state)
{
    (void)state;
    int idle[MANY];
    pen_loader *loader = served("127.0.0.1:0");
    const int port = port_of(loader);
    for (int i = 0; i < MANY; i++) {
        idle[i] = connect_to(port);
        assert_true(idle[i] >= 0);
        if (i % 2)
            send(idle[i], "GET /met", 8, MSG_NOSIGNAL);
    }
    uint64_t hash = 0;
    assert_int_equal(take(loader, BATCHES, &hash), BATCHES);
    for (int i = 0; i < MANY; i++)
        close(idle[i]);
    while (ask(connect_to(port), "GET /metrics HTTP/1.1") != 200) {
    }
    for (int i = 0; i < MANY; i++) {
        idle[i] = connect_to(port);
        send(idle[i], "GET /metrics HTTP/1.1\r\n", 23, MSG_NOSIGNAL);
    }
    pen_loader_free(loader);
    for (int i = 0; i < MANY; i++)
        close(idle[i]);
}

static void a_process_is_found_by_its_number(void **state)
{
    (void)state;
    pen_loader_opts o = options(-1);
    o.policy = pen_policy_find("model");
    pen_loader *loader = open_loader(&o);
    assert_int_equal(connect_locally(getpid()), -1); /* it has not begun */
    uint64_t hash = 0;
    take(loader, 2, &hash);
    assert_int_equal(ask(connect_locally(getpid()), "GET /status.json HTTP/1.1"), 200);
    json_t *status = json_loads(body(), 0, NULL);
    const json_t *one = json_array_get(json_object_get(status, "loaders"), 0);
    assert_string_equal(json_string_value(json_object_get(one, "policy")), "model");
    json_decref(status);
    pen_loader_free(loader);
    assert_int_equal(connect_locally(getpid()), -1);

    loader = served(NULL); /* nobody turns its knobs, and it was not asked to show itself */
    take(loader, 2, &hash);
    assert_int_equal(connect_locally(getpid()), -1);
    assert_int_equal(pen_loader_set_policy(loader, pen_policy_find("rules"), NULL), 0);
    take(loader, 1, &hash); /* from now on somebody does */
    assert_int_equal(ask(connect_locally(getpid()), "GET /status.json HTTP/1.1"), 200);
    pen_loader_free(loader);
    assert_int_equal(connect_locally(getpid()), -1);
    setenv("PENSTOCK_TOP", "off", 1);
    loader = open_loader(&o);
    take(loader, 2, &hash);
    assert_int_equal(connect_locally(getpid()), -1);
    unsetenv("PENSTOCK_TOP");
    pen_loader_free(loader);
}

static const char guest_status[] =
    "{\"time_ns\":5,\"knobs\":{\"workers\":{\"value\":2,\"min\":1,\"max\":8}}}";

static pen_guest *a_guest(void)
{
    pen_guest *guest = NULL;
    pen_error err;
    assert_int_equal(pen_guest_open(&guest, &err), 0);
    assert_int_equal(pen_guest_say(guest, guest_status, sizeof guest_status - 1), 0);
    return guest;
}

static int turn_guest(const pen_guest *guest, const char *wishes)
{
    char request[256];
    snprintf(request, sizeof request, "PUT /knobs?loader=%lld&%s HTTP/1.1",
             (long long)pen_guest_number(guest), wishes);
    return ask(connect_locally(getpid()), request);
}

/* What it said is shown beside other loaders, and nobody answers after the last of them. */
static void guests_are_shown(void **state)
{
    (void)state;
    pen_guest *guest = a_guest(), *silent = NULL;
    assert_int_equal(pen_guest_open(&silent, NULL), 0);
    assert_int_equal(ask(connect_locally(getpid()), "GET /status.json HTTP/1.1"), 200);
    json_t *status = json_loads(body(), 0, NULL);
    const json_t *list = json_object_get(status, "loaders");
    assert_int_equal(json_array_size(list), 1); /* the other has nothing to show yet */
    const json_t *one = json_array_get(list, 0);
    assert_int_equal(json_integer_value(json_object_get(one, "loader")), pen_guest_number(guest));
    assert_int_equal(json_integer_value(json_object_get(one, "time_ns")), 5);
    json_decref(status);
    assert_int_equal(pen_guest_say(silent, "{}", 2), 0);
    assert_int_equal(ask(connect_locally(getpid()), "GET /status.json HTTP/1.1"), 200);
    status = json_loads(body(), 0, NULL);
    assert_int_equal(json_array_size(json_object_get(status, "loaders")), 2);
    json_decref(status);
    assert_int_equal(pen_guest_say(guest, "[1]", 3), PEN_EINVAL);
    assert_int_equal(pen_guest_say(guest, "{", 1), PEN_EINVAL);
    pen_guest_close(silent);
    assert_int_equal(ask(connect_locally(getpid()), "GET /metrics HTTP/1.1"), 200);
    pen_guest_close(guest);
    assert_int_equal(connect_locally(getpid()), -1);
    setenv("PENSTOCK_TOP", "off", 1);
    assert_int_equal(pen_guest_open(&guest, NULL), PEN_ENOTFOUND);
    unsetenv("PENSTOCK_TOP");
    pen_guest_close(NULL);
}

/* Wishes wait until it asks, in their order; what it does not have is refused at once. */
static void guests_take_wishes(void **state)
{
    (void)state;
    char wishes[PEN_GUEST_WISHES_MAX];
    pen_guest *guest = a_guest();
    assert_int_equal(pen_guest_wishes(guest, wishes, sizeof wishes), 0);
    assert_int_equal(turn_guest(guest, "workers=3"), 200);
    assert_int_equal(turn_guest(guest, "workers=auto"), 200);
    assert_int_equal(turn_guest(guest, "workers=9"), 400);
    assert_non_null(strstr(body(), "workers must be 1 to 8 here"));
    assert_int_equal(turn_guest(guest, "workers=1.5"), 400);
    assert_int_equal(turn_guest(guest, "read_ahead=1"), 400);
    assert_non_null(strstr(body(), "this loader has no knob 'read_ahead'"));
    assert_int_equal(turn_guest(guest, "workers=2&io=2"), 400); /* all or none */
    assert_int_equal(pen_guest_wishes(guest, wishes, 4), PEN_ENOSPC);
    assert_int_equal(pen_guest_wishes(guest, wishes, sizeof wishes), 22);
    assert_string_equal(wishes, "workers=3&workers=auto");
    assert_int_equal(pen_guest_wishes(guest, wishes, sizeof wishes), 0);
    int n = 0;
    while (turn_guest(guest, "workers=3") == 200) /* who never asks is not written to for ever */
        n++;
    assert_in_range(n, 8, PEN_GUEST_WISHES_MAX / 9);
    pen_guest *other = a_guest();
    assert_int_equal(ask(connect_locally(getpid()), "PUT /knobs?workers=3 HTTP/1.1"), 400);
    assert_non_null(strstr(body(), "there are 2 loaders"));
    pen_guest_close(other);
    pen_guest_close(guest);
}

static void a_forked_guest_is_silent(void **state)
{
    (void)state;
    pen_guest *guest = a_guest();
    pid_t child = fork();
    if (child == 0) {
        char wishes[PEN_GUEST_WISHES_MAX];
        int rc = pen_guest_say(guest, guest_status, sizeof guest_status - 1) != PEN_EFORK;
        rc |= pen_guest_wishes(guest, wishes, sizeof wishes) != 0;
        pen_guest_close(guest);
        _exit(rc);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(ask(connect_locally(getpid()), "GET /status.json HTTP/1.1"), 200);
    pen_guest_close(guest);
}

static void guests_without_memory(void **state)
{
    (void)state;
    const int64_t live = pen__mem_live();
    int rc = PEN_ENOMEM;
    for (int64_t n = 1; rc != 0; n++) {
        pen_guest *guest = NULL;
        pen__mem_fail_at(n);
        rc = pen_guest_open(&guest, NULL);
        if (rc == 0)
            rc = pen_guest_say(guest, guest_status, sizeof guest_status - 1);
        pen__mem_fail_at(0);
        pen_guest_close(guest);
        assert_true(rc == 0 || rc == PEN_ENOMEM);
        assert_int_equal(pen__mem_live(), live);
    }
}

static void other_users_are_refused(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    pen_loader_opts o = options(1);
    o.metrics = "127.0.0.1:0";
    pen_loader *loader = open_loader(&o);
    uint64_t hash = 0;
    take(loader, 1, &hash);
    const pid_t here = getpid();
    pid_t child = fork();
    if (child == 0) {
        if (setuid(65534) != 0)
            _exit(9);
        _exit(ask(connect_locally(here), "GET /status.json HTTP/1.1") == 403 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    pen_loader_free(loader);
}

/* The thread sanitizer lets no child of a process with threads have threads. */
#if defined(__SANITIZE_THREAD__)
#define CHILD_HAS_THREADS 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CHILD_HAS_THREADS 0
#endif
#endif
#ifndef CHILD_HAS_THREADS
#define CHILD_HAS_THREADS 1
#endif

static int ask_own_server(void)
{
    pen_loader *own = served("127.0.0.1:0");
    int status = ask(connect_to(port_of(own)), "GET /metrics HTTP/1.1");
    pen_loader_free(own);
    return status;
}

/* A child does not keep the port, and may have a server of its own. */
static void a_fork_leaves_the_socket_with_the_parent(void **state)
{
    (void)state;
    pen_loader *loader = served("127.0.0.1:0");
    const int port = port_of(loader);
    int ready[2], go[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(go), 0);
    pid_t child = fork();
    if (child == 0) {
        int rc = CHILD_HAS_THREADS && ask_own_server() != 200;
        pen_loader_free(loader); /* does nothing */
        rc |= write(ready[1], &byte, 1) != 1;
        rc |= read(go[0], &byte, 1) != 1;
        _exit(rc);
    }
    close(ready[1]); /* a child that dies says nothing */
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(ask(connect_to(port), "GET /metrics HTTP/1.1"), 200);
    pen_loader_free(loader);
    assert_int_equal(connect_to(port), -1); /* though the child is still there */
    assert_int_equal(write(go[1], &byte, 1), 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Suspends where that was not allowed: the library panics, in its own thread. */
static enum MHD_Result misuse(void *ctx, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_len, void **own)
{
    (void)ctx, (void)url, (void)method, (void)version, (void)upload, (void)upload_len, (void)own;
    MHD_suspend_connection(connection);
    return MHD_YES;
}

static int panic_and_go_on(void)
{
    pen_loader *loader = served("127.0.0.1:0"), *second;
    struct MHD_Daemon *broken = MHD_start_daemon(MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD, 0,
                                                 NULL, NULL, misuse, NULL, MHD_OPTION_END);
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(broken, MHD_DAEMON_INFO_BIND_PORT);
    int fd = connect_to(info->port);
    static const char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    pen_loader_opts o = options(1);
    pen_error err;
    o.metrics = "127.0.0.2:0"; /* a server of its own */
    if (send(fd, request, sizeof request - 1, MSG_NOSIGNAL) < 0)
        return 1;
    for (;;) { /* until it has happened: then there are no new servers */
        int rc = pen_loader_create(&second, ds, pipe_, &o, &err);
        if (rc == PEN_EIO)
            break;
        if (rc)
            return 2;
        pen_loader_free(second);
    }
    uint64_t hash = 0;
    const int n = take(loader, 2, &hash);
    pen_loader_free(loader);
    return n == 2 ? 0 : 3;
}

static void a_panic_of_the_library_is_not_the_end(void **state)
{
    (void)state;
    if (!CHILD_HAS_THREADS)
        skip();
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(panic_and_go_on());
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void nothing_is_left(void **state)
{
    (void)state;
    int64_t live = pen__mem_live();
    for (int i = 0; i < 20; i++) {
        pen_loader *a = served("127.0.0.1:0"), *b = served("127.0.0.2:0");
        pen_loader_free(a);
        pen_loader_free(b);
    }
    assert_int_equal(pen__mem_live(), live);
}

static double knob_of(const pen_loader *loader, pen_knob knob, bool *is_pinned)
{
    pen_knobs knobs = {.struct_size = sizeof knobs};
    pen_knob_info info;
    assert_int_equal(pen_loader_get_knobs(loader, &knobs), 0);
    assert_int_equal(pen_loader_knob(loader, (int)knob, &info), 0);
    *is_pinned = info.is_pinned;
    return knobs.value[knob];
}

static void knobs_are_turned_by_the_local_socket_only(void **state)
{
    (void)state;
    bool is_pinned;
    pen_loader *loader = served("127.0.0.1:0");
    uint64_t hash = 0;
    take(loader, 2, &hash); /* with the first batch it answers locally */
    assert_int_equal(ask(connect_to(port_of(loader)), "PUT /knobs?workers=2 HTTP/1.0"), 405);
    const double before = knob_of(loader, PEN_KNOB_READ_AHEAD, &is_pinned);
    assert_int_equal(
        ask(connect_locally(getpid()), "PUT /knobs?read_ahead=5&io=3&workers=2 HTTP/1.0"), 200);
    json_t *status = json_loads(body(), 0, NULL);
    assert_non_null(status);
    json_decref(status);
    assert_true(before != 5 && knob_of(loader, PEN_KNOB_READ_AHEAD, &is_pinned) == 5 && is_pinned);
    assert_true(knob_of(loader, PEN_KNOB_WORKERS, &is_pinned) == 2 && is_pinned);
    assert_int_equal(ask(connect_locally(getpid()), "PUT /knobs?read_ahead=auto HTTP/1.0"), 200);
    knob_of(loader, PEN_KNOB_READ_AHEAD, &is_pinned);
    assert_false(is_pinned);
    pen_loader_free(loader);
}

/* What programs write is read as they write it, whatever the training script's locale is. */
static void a_fraction_is_read_in_a_locale_with_commas(void **state)
{
    (void)state;
    bool is_pinned;
    pen_loader *loader = served("127.0.0.1:0");
    uint64_t hash = 0;
    take(loader, 2, &hash);
    const bool has_commas = use_commas();
    const int status =
        ask(connect_locally(getpid()),
            "PUT /knobs?share_decode=0.75&share_augment=0.25&share_transfer=0 HTTP/1.0");
    setlocale(LC_ALL, "C");
    const double share = knob_of(loader, PEN_KNOB_SHARE_DECODE, &is_pinned);
    pen_loader_free(loader); /* one that is left answers in the tests that follow */
    assert_int_equal(status, 200);
    assert_true(share == 0.75);
    if (!has_commas)
        skip(); /* it has been asked in another locale only */
}

static void wishes_that_cannot_be_met_turn_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        int status;
        const char *why;
    } cases[] = {
        {"workers=2&nonsense=1", 400, "no knob 'nonsense'"},
        {"workers=", 400, "a number or auto"},
        {"workers", 400, "a number or auto"},
        {"workers=2x", 400, "a number or auto"},
        {"workers=nan", 400, "a number or auto"},
        {"workers=2&io=1e9", 400, "io"},
        {"workers=-1", 400, "workers"},
        {"", 400, "no knob is named"},
        {"loader=0", 400, "no knob is named"},
        {"loader=99&workers=2", 404, "no loader 99"},
        {"loader=&workers=2", 404, "no loader"},
        {"loader=0x&workers=2", 404, "no loader 0x"},
    };
    bool is_pinned;
    pen_loader *loader = served("127.0.0.1:0");
    uint64_t hash = 0;
    take(loader, 2, &hash);
    const double before = knob_of(loader, PEN_KNOB_WORKERS, &is_pinned);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[128], words[64];
        snprintf(words, sizeof words, "%s", cases[i].words);
        if (strcmp(words, "loader=0") == 0) /* its number depends on the loaders before */
            snprintf(words, sizeof words, "loader=%lld", (long long)loader->number);
        snprintf(line, sizeof line, "PUT /knobs?%s HTTP/1.0", words);
        assert_int_equal(ask(connect_locally(getpid()), line), cases[i].status);
        assert_non_null(strstr(body(), cases[i].why));
        assert_true(knob_of(loader, PEN_KNOB_WORKERS, &is_pinned) == before);
    }
    pen_loader *other = served("127.0.0.1:0");
    take(other, 2, &hash);
    assert_int_equal(ask(connect_locally(getpid()), "PUT /knobs?workers=2 HTTP/1.0"), 400);
    assert_non_null(strstr(body(), "there are 2 loaders"));
    pen_loader_free(loader);
    pen_loader_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_and_status_are_served),
        cmocka_unit_test(knobs_are_turned_by_the_local_socket_only),
        cmocka_unit_test(a_fraction_is_read_in_a_locale_with_commas),
        cmocka_unit_test(wishes_that_cannot_be_met_turn_nothing),
        cmocka_unit_test(strange_host_names_are_refused),
        cmocka_unit_test(loaders_share_an_address_until_the_last_leaves),
        cmocka_unit_test(a_taken_port_leads_to_the_next),
        cmocka_unit_test(what_is_no_address_is_refused),
        cmocka_unit_test(the_environment_is_obeyed_unless_off),
        cmocka_unit_test(an_environment_that_cannot_be_obeyed_is_no_error),
        cmocka_unit_test(garbage_does_no_harm),
        cmocka_unit_test(idle_and_slow_clients_hold_up_nobody),
        cmocka_unit_test(a_process_is_found_by_its_number),
        cmocka_unit_test(guests_are_shown),
        cmocka_unit_test(guests_take_wishes),
        cmocka_unit_test(a_forked_guest_is_silent),
        cmocka_unit_test(guests_without_memory),
        cmocka_unit_test(other_users_are_refused),
        cmocka_unit_test(a_fork_leaves_the_socket_with_the_parent),
        cmocka_unit_test(a_panic_of_the_library_is_not_the_end),
        cmocka_unit_test(nothing_is_left),
    };
    return cmocka_run_group_tests(tests, make_world, unmake_world);
}
