/* node_head.c - heads of requests that two readers might read in two ways.
 *
 * Where a proxy stands in front of a node, both must agree on where a request ends and on who asks,
 * or bytes of one client become the request of another.  libmicrohttpd takes the first of two equal
 * headers, prefers one way to tell a length to the other, and reads over a name with a space behind
 * it.  What is ambiguous is refused here.
 *
 * It keeps arguments in the connection's memory, and loses a request that has too many for that
 * without an answer.  So they are counted before it reads them.  There, too, is the target as it
 * arrived, of which answers tell the checksum (remote_asked.h).
 */
#include <string.h>
#include <strings.h>

#include "base/crc32c.h"
#include "remote/node_impl.h"

enum { MAX_ARGUMENTS = 16 };

enum { LENGTH, ENCODING, HOST, AUTHORIZATION, N_SINGLE };

static const char *const single[N_SINGLE] = {MHD_HTTP_HEADER_CONTENT_LENGTH,
                                             MHD_HTTP_HEADER_TRANSFER_ENCODING,
                                             MHD_HTTP_HEADER_HOST, MHD_HTTP_HEADER_AUTHORIZATION};

typedef struct head {
    int n[N_SINGLE];
    bool has_odd_name, has_odd_encoding;
} head;

static enum MHD_Result look(void *ctx, enum MHD_ValueKind kind, const char *name, const char *value)
{
    (void)kind;
    head *h = ctx;
    h->has_odd_name |= !*name || strpbrk(name, " \t");
    for (int i = 0; i < N_SINGLE; i++)
        h->n[i] += strcasecmp(name, single[i]) == 0;
    if (strcasecmp(name, single[ENCODING]) == 0)
        h->has_odd_encoding |= !value || strcasecmp(value, "chunked") != 0;
    return MHD_YES;
}

const char *pen__head_fault(struct MHD_Connection *connection)
{
    head h = {0};
    MHD_get_connection_values(connection, MHD_HEADER_KIND, look, &h);
    if (h.has_odd_name)
        return "the name of a header has a space in it";
    for (int i = 0; i < N_SINGLE; i++)
        if (h.n[i] > 1)
            return "a header stands twice that may stand once";
    if (h.n[LENGTH] && h.n[ENCODING])
        return "Content-Length beside Transfer-Encoding";
    return h.has_odd_encoding ? "a Transfer-Encoding other than chunked" : NULL;
}

void *pen__head_see_target(void *ctx, const char *uri, struct MHD_Connection *connection)
{
    (void)ctx;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    pen__peer *peer = info ? info->socket_context : NULL;
    char *arguments = uri ? strchr(uri, '?') : NULL;
    int n = 1;
    for (const char *p = arguments; p && (p = strchr(p + 1, '&'));)
        n++;
    if (peer && uri)
        peer->target_sum = pen__crc32c(0, uri, strlen(uri));
    if (!peer || n <= MAX_ARGUMENTS)
        return NULL;
    peer->has_many_arguments = true;
    arguments[1] = '\0'; /* in the buffer of what was read, which is not constant */
    return NULL;
}
