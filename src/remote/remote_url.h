/* remote_url.h - where a remote dataset is: servers, which of them hold the same, and its name.
 *
 *     penstock://HOST[:PORT][,HOST[:PORT]...][+HOST[:PORT]...]/NAME
 *
 * Commas join replicas, which hold the same samples; a plus begins the next shard, which holds
 * others.  penstocks:// speaks TLS.  IPv6 addresses stand in brackets.
 */
#ifndef PEN_REMOTE_REMOTE_URL_H
#define PEN_REMOTE_REMOTE_URL_H

#include <stdbool.h>

#include <penstock/error.h>

enum {
    PEN__REMOTE_PORT = 7470,
    PEN__REMOTE_MAX_SERVERS = 64,
    PEN__REMOTE_HOST = 256, /* with its NUL */
    PEN__REMOTE_NAME = 65,
    PEN__REMOTE_LABEL = PEN__REMOTE_HOST + 8, /* "host:port" */
};

typedef struct pen__address {
    char label[PEN__REMOTE_LABEL]; /* as it stands in an http URL, and in messages */
    int shard;
} pen__address;

typedef struct pen__remote_url {
    bool is_tls;
    char name[PEN__REMOTE_NAME];
    int n_shards, n_servers;
    pen__address servers[PEN__REMOTE_MAX_SERVERS]; /* in order of shard */
} pen__remote_url;

/* Take `text` apart.  PEN_EINVAL says what is wrong with it. */
int pen__remote_url_parse(pen__remote_url *url, const char *text, pen_error *err);

#endif
