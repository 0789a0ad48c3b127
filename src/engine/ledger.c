/* ledger.c - append bad samples to a file. */
#include "engine/ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/text.h"
#include "source/fileio.h"

/* Whoever wrote last may have been cut off in the middle of a line: this one begins a new one. */
static void end_last_line(const pen__ledger *ledger, const char *path, int64_t size)
{
    char last = '\n';
    const int fd = size > 0 ? open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) : -1;
    if (fd < 0)
        return;
    if (pread(fd, &last, 1, (off_t)size - 1) == 1 && last != '\n')
        pen__write_full(ledger->fd, "\n", 1);
    close(fd);
}

int pen__ledger_open(pen__ledger *ledger, const char *path, pen_error *err)
{
    ledger->fd = -1;
    if (!path)
        return 0;
    do /* O_NONBLOCK: a pipe must not hold us up, it is refused below */
        ledger->fd =
            open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
    while (ledger->fd < 0 && errno == EINTR);
    if (ledger->fd < 0)
        return pen__fail_errno(err, errno, "open", path);
    struct stat st;
    if (fstat(ledger->fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISCHR(st.st_mode))) {
        if (S_ISREG(st.st_mode))
            end_last_line(ledger, path, st.st_size);
        return 0;
    }
    pen__ledger_close(ledger);
    return pen__fail(err, PEN_EIO, -1, "the ledger '%s' is not a regular file", path);
}

void pen__ledger_close(pen__ledger *ledger)
{
    if (ledger->fd >= 0)
        close(ledger->fd);
    ledger->fd = -1;
}

int pen__ledger_write(pen__ledger *ledger, const pen_dataset *ds, const pen_batch *batch,
                      const pen__bad *bad, const char *action, pen_error *err)
{
    if (ledger->fd < 0)
        return 0;
    char key[PEN_KEY_MAX];
    int64_t key_len = pen_dataset_key(ds, bad->sample, key, sizeof key);
    pen__text line = {0};
    pen__text_add(&line,
                  "{\"epoch\":%lld,\"batch\":%lld,\"slot\":%d,\"attempt\":%d,\"sample\":%lld",
                  (long long)batch->epoch, (long long)batch->index, bad->slot, bad->attempt,
                  (long long)bad->sample);
    pen__text_add(&line, ",\"key\":");
    pen__text_add_json(&line, key, key_len < 0 ? 0 : (size_t)key_len);
    pen__text_add(&line, ",\"action\":\"%s\",\"code\":\"%s\",\"offset\":%lld,\"reason\":", action,
                  pen_error_name(bad->error.code), (long long)bad->error.offset);
    pen__text_add_json(&line, bad->error.text, strlen(bad->error.text));
    pen__text_add(&line, "}\n");
    int rc = 0;
    if (line.failed) {
        rc = pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    } else {
        ssize_t n;
        do
            n = write(ledger->fd, line.data, line.len);
        while (n < 0 && errno == EINTR);
        if (n != (ssize_t)line.len)
            rc = pen__fail(err, PEN_EIO, -1, "cannot write to the ledger: %s",
                           n < 0 ? strerror(errno) : "disk full");
    }
    pen__text_fini(&line);
    return rc;
}
