/* list.c - files that a program names one by one.
 *
 * Ids are places in the list, whatever its order, and a file may come more than once: then
 * its samples share a key.  Everything else is as in a manifest: directories are kept once,
 * every file is looked up now, and a path below the root is kept relative to it, so that
 * the list of a folder's files, in the folder's order, is that folder.
 */
#include "source/list.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "source/names.h"
#include "source/source.h"

#define PROGRESS_EVERY 8192

/* An absolute path without `root` in front, if it lies below it; else as it is. */
static const char *below_root(const char *path, const char *root, size_t root_len)
{
    if (root_len == 0 || *path != '/' || strncmp(path, root, root_len) != 0)
        return path;
    const char *rest = path + root_len;
    if (root[root_len - 1] != '/' && *rest != '/')
        return path; /* "/data/training" is not below "/data/train" */
    rest += strspn(rest, "/");
    return *rest ? rest : path;
}

static int no_file(const char *path, int64_t place, int reason, pen_error *err)
{
    pen__shown shown;
    char text[128];
    pen__show(&shown, path, strlen(path));
    if (reason == ENOENT || reason == ENOTDIR)
        return pen__fail(err, PEN_ENOTFOUND, -1, "place %lld of the list: no file '%s'",
                         (long long)place, shown.text);
    return pen__fail(err, PEN_EIO, -1, "place %lld of the list: cannot stat '%s': %s",
                     (long long)place, shown.text, strerror_r(reason, text, sizeof text));
}

/* The path at `place`, cleaned, and what is there. */
static int64_t look_up(const pen_dataset *ds, const pen__list *list, int64_t place,
                       char path[PEN_KEY_MAX], struct stat *st, pen_error *err)
{
    const char *given = list->paths[place], *why;
    pen__shown shown;
    if (!given)
        return pen__fail(err, PEN_EINVAL, -1, "place %lld of the list has no path",
                         (long long)place);
    given = below_root(given, list->root, list->root ? strlen(list->root) : 0);
    int64_t len = pen__path_clean(given, strlen(given), true, path, PEN_KEY_MAX, &why);
    if (len < 0)
        return pen__fail(err, (int)len, -1, "place %lld of the list: the path '%s' %s",
                         (long long)place, pen__show(&shown, given, strlen(given)), why);
    if (fstatat(ds->root_fd, path, st, 0) != 0)
        return no_file(path, place, errno, err);
    if (!S_ISREG(st->st_mode))
        return pen__fail(err, PEN_EIO, -1, "place %lld of the list: '%s' is not a regular file",
                         (long long)place, pen__show(&shown, path, (size_t)len));
    return len;
}

static int take_label(const pen__list *list, int64_t place, int32_t *out, pen_error *err)
{
    int64_t label = list->labels ? list->labels[place] : -1;
    int64_t end = list->n_classes > 0 ? list->n_classes : (int64_t)INT32_MAX + 1;
    if (label < -1 || label >= end)
        return pen__fail(err, PEN_EINVAL, -1,
                         "place %lld of the list: the label %lld is not within -1 to %lld",
                         (long long)place, (long long)label, (long long)end - 1);
    *out = (int32_t)label;
    return 0;
}

static int add(pen_dataset *ds, const pen__list *list, int64_t place, pen_error *err)
{
    char path[PEN_KEY_MAX];
    struct stat st;
    int64_t len = look_up(ds, list, place, path, &st, err);
    if (len < 0)
        return (int)len;
    size_t leaf = pen__leaf_start(path, (size_t)len);
    int64_t dir = pen__index_dir(&ds->index, path, leaf > 1 ? leaf - 1 : leaf);
    if (dir < 0)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    pen__found found = {.dir = (uint32_t)dir,
                        .name = path + leaf,
                        .name_len = (size_t)len - leaf,
                        .length = (uint64_t)st.st_size};
    found.stem_len = pen__stem_length(found.name, found.name_len);
    int rc = take_label(list, place, &found.label, err);
    return rc ? rc : pen__index_add(&ds->index, &found, err);
}

static int take_classes(pen_dataset *ds, const pen__list *list, pen_error *err)
{
    for (int64_t i = 0; i < list->n_classes; i++) {
        const char *name = list->classes[i];
        int64_t number = pen__intern_put(&ds->classes, name, strlen(name));
        if (number < 0)
            return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
        pen__shown shown;
        if (number != i)
            return pen__fail(err, PEN_EINVAL, -1, "classes %lld and %lld are both named '%s'",
                             (long long)number, (long long)i,
                             pen__show(&shown, name, strlen(name)));
    }
    return 0;
}

int pen__list_fill(pen_dataset *ds, const pen__list *list, const pen_dataset_opts *opts,
                   pen_error *err)
{
    const char *root = list->root && *list->root ? list->root : ".";
    int rc = pen__dataset_open_root(ds, root, strlen(root), err);
    if (rc == 0)
        rc = take_classes(ds, list, err);
    if (rc == 0 && list->n < 1)
        rc = pen__fail(err, PEN_ENOTFOUND, -1, "the list is empty");
    for (int64_t place = 0; rc == 0 && place < list->n; place++) {
        rc = add(ds, list, place, err);
        if (rc == 0 && (place + 1) % PROGRESS_EVERY == 0)
            rc = pen__dataset_report(opts, place + 1, list->n, err);
    }
    if (rc == 0)
        rc = pen__index_sort_dirs(&ds->index, err);
    return rc ? rc : pen__index_unique_keys(&ds->index, err);
}

const pen__source pen__source_list = {
    .name = "list",
    .read = pen__dataset_read_file,
    .open_field = pen__dataset_open_file,
};
