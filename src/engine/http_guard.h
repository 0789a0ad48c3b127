/* http_guard.h - libmicrohttpd without its abort().
 *
 * It ends the process when it finds itself broken.  That is not for a library to do: here its
 * thread ends instead, and nothing of it is touched any more.  Whoever starts and stops one of its
 * daemons does so through here.
 */
#ifndef PEN_ENGINE_HTTP_GUARD_H
#define PEN_ENGINE_HTTP_GUARD_H

#include <stdbool.h>

/* Has the library given up?  Then no daemon may be started or stopped. */
bool pen__http_is_broken(void);

/* Call fn(ctx), which may call the library, with all signals blocked: threads that it starts
 * leave them to the program.  False: the library is broken, and may have been so before; what
 * belongs to its threads may still be in use and must be left alone.  */
bool pen__http_call(void (*fn)(void *ctx), void *ctx);

#endif
