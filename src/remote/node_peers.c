/* node_peers.c - connections of a storage node, from when they are made until they are closed. */
#include "base/clock.h"
#include "base/mem.h"
#include "remote/node_impl.h"

/* The library counts connections by address, and would let one client have a network's worth. */
enum MHD_Result pen__peer_may_connect(void *ctx, const struct sockaddr *address, socklen_t len)
{
    (void)len;
    pen_node *node = ctx;
    const int64_t now = pen__now_ns();
    pthread_mutex_lock(&node->lock);
    const bool may = pen__clients_may_connect(&node->clients, address, now, &node->opts);
    node->stats.refused_connections += !may;
    pthread_mutex_unlock(&node->lock);
    return may ? MHD_YES : MHD_NO;
}

static void enter_peer(pen_node *node, struct MHD_Connection *connection, pen__peer *peer)
{
    const union MHD_ConnectionInfo *address = MHD_get_connection_info(
                                       connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS),
                                   *fd = MHD_get_connection_info(connection,
                                                                 MHD_CONNECTION_INFO_CONNECTION_FD);
    const int64_t now = pen__now_ns();
    peer->fd = fd ? fd->connect_fd : -1;
    peer->touched_ns = now;
    pthread_mutex_lock(&node->lock);
    peer->client =
        address ? pen__clients_enter(&node->clients, address->client_addr, now, &node->opts) : NULL;
    peer->next = node->peers;
    if (peer->next)
        peer->next->before = peer;
    node->peers = peer;
    node->n_peers++;
    pthread_mutex_unlock(&node->lock);
}

static void leave_peer(pen_node *node, pen__peer *peer)
{
    pthread_mutex_lock(&node->lock);
    if (peer->client)
        pen__clients_leave(peer->client);
    if (peer->before)
        peer->before->next = peer->next;
    else
        node->peers = peer->next;
    if (peer->next)
        peer->next->before = peer->before;
    node->n_peers--;
    pthread_mutex_unlock(&node->lock);
    pen__free(peer);
}

void pen__peer_came_or_went(void *ctx, struct MHD_Connection *connection, void **own,
                            enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        pen__peer *peer = pen__calloc(1, sizeof *peer);
        *own = peer;
        if (peer)
            enter_peer(ctx, connection, peer);
    } else if (*own) {
        leave_peer(ctx, *own);
        *own = NULL;
    }
}
