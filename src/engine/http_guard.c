/* http_guard.c - panics of libmicrohttpd: a jump out, or the end of a thread. */
#include "engine/http_guard.h"

#include <microhttpd.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

static atomic_bool is_broken;
static _Thread_local jmp_buf *escape; /* of a thread of ours, inside the library */

/* It must not return.  Who has no escape is one of the library's own threads. */
static void on_panic(void *ctx, const char *file, unsigned line, const char *why)
{
    (void)ctx, (void)file, (void)line, (void)why;
    atomic_store(&is_broken, true);
    if (escape)
        longjmp(*escape, 1);
    pthread_exit(NULL);
}

static void prepare(void)
{
    MHD_set_panic_func(on_panic, NULL);
}

bool pen__http_is_broken(void)
{
    return atomic_load(&is_broken);
}

bool pen__http_call(void (*fn)(void *ctx), void *ctx)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static _Thread_local sigset_t before; /* longjmp leaves what is not on the stack */
    jmp_buf here;
    sigset_t all;
    pthread_once(&once, prepare);
    if (atomic_load(&is_broken))
        return false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    escape = &here;
    if (setjmp(here) == 0)
        fn(ctx);
    escape = NULL;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !atomic_load(&is_broken);
}
