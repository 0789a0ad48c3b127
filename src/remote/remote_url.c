/* remote_url.c - the grammar of penstock:// */
#include "remote/remote_url.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "source/names.h"

#define PLAIN  "penstock://"
#define SECURE "penstocks://"

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

static int wrong(pen_error *err, const char *text, const char *why)
{
    pen__shown shown;
    return pen__fail(err, PEN_EINVAL, -1,
                     "'%s' %s: give penstock://HOST[:PORT][,REPLICA...][+SHARD...]/NAME",
                     pen__show(&shown, text, strlen(text)), why);
}

/* Length of the host at the front of `text`, 0 if there is none. */
static size_t host_length(const char *text, size_t len)
{
    size_t n = 0;
    if (len == 0 || *text != '[') {
        n = strspn(text, letters);
        return n < len ? n : len;
    }
    n = 1 + strspn(text + 1, "0123456789abcdefABCDEF:.");
    return n > 1 && n < len && text[n] == ']' ? n + 1 : 0;
}

/* 1 to 65535, or 0. */
static int read_port(const char *digits, size_t len)
{
    int port = 0;
    for (size_t i = 0; i < len; i++) {
        if (digits[i] < '0' || digits[i] > '9' || port > 65535)
            return 0;
        port = port * 10 + (digits[i] - '0');
    }
    return port <= 65535 ? port : 0;
}

/* HOST[:PORT], `len` bytes of it. */
static const char *add_server(pen__remote_url *url, const char *text, size_t len)
{
    size_t host = host_length(text, len);
    if (host == 0)
        return "lacks a host";
    if (host >= PEN__REMOTE_HOST)
        return "has a host name that is too long";
    int port = PEN__REMOTE_PORT;
    if (host < len && text[host] == ':')
        port = read_port(text + host + 1, len - host - 1);
    else if (host < len)
        return "has a character in a host name that does not belong there";
    if (port == 0)
        return "has a port that is no number from 1 to 65535";
    if (url->n_servers == PEN__REMOTE_MAX_SERVERS)
        return "names more than 64 servers";
    pen__address *server = &url->servers[url->n_servers++];
    server->shard = url->n_shards - 1;
    snprintf(server->label, sizeof server->label, "%.*s:%d", (int)host, text, port);
    return NULL;
}

static const char *add_servers(pen__remote_url *url, const char *text, const char *end)
{
    url->n_shards = 1;
    for (const char *at = text;;) {
        size_t len = strcspn(at, ",+/");
        const char *why = add_server(url, at, len);
        if (why || at + len >= end)
            return why;
        url->n_shards += at[len] == '+';
        at += len + 1;
    }
}

static const char *take_name(pen__remote_url *url, const char *name)
{
    size_t len = strlen(name);
    if (len > 0 && name[len - 1] == '/')
        len--;
    if (len == 0)
        return "lacks the dataset's name";
    if (len >= sizeof url->name || strspn(name, letters) < len)
        return "has no good dataset name (1 to 64 of A-Z a-z 0-9 . _ -)";
    memcpy(url->name, name, len);
    url->name[len] = '\0';
    return NULL;
}

int pen__remote_url_parse(pen__remote_url *url, const char *text, pen_error *err)
{
    memset(url, 0, sizeof *url);
    url->is_tls = strncmp(text, SECURE, strlen(SECURE)) == 0;
    if (!url->is_tls && strncmp(text, PLAIN, strlen(PLAIN)) != 0)
        return wrong(err, text, "is no address of a storage node");
    const char *servers = text + strlen(url->is_tls ? SECURE : PLAIN);
    const char *slash = strchr(servers, '/');
    if (!slash)
        return wrong(err, text, "lacks the dataset's name");
    const char *why = add_servers(url, servers, slash);
    if (!why)
        why = take_name(url, slash + 1);
    return why ? wrong(err, text, why) : 0;
}
