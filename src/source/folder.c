/* folder.c - a directory of images, a class per directory or flat.
 *
 * The index's directory table is also the list of directories still to scan:
 * each is opened by its path relative to the root, read to its end and closed,
 * so one descriptor is open at a time however deep the tree is, and no file's
 * path is ever put together.  Links are followed; a directory that is its own
 * ancestor by device and inode is a loop and an error.
 *
 * The rules, beside those of dataset.h:
 *   - Every directory in the root is a class, also one without images: leaving
 *     it out would shift the labels of those behind it, and a validation set
 *     that lacks a class would silently disagree with its training set.
 *   - Images both in the root and below it are an error, for any label for the
 *     former would be a guess.
 *   - Names that begin with a dot are not looked at, nor are files without an
 *     image's extension; things with such a name that are no regular files are
 *     not images either.
 *   - In a confined dataset links are followed beneath the root.  One that leads
 *     out of it, to a file or a directory, is as good as not there: not even its
 *     name and length are for strangers.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/mem.h"
#include "source/fileio.h"
#include "source/grow.h"
#include "source/names.h"
#include "source/source.h"

#define MAX_DIRS       (1 << 24) /* links can multiply directories without making a loop */
#define PROGRESS_EVERY 8192

/* A directory of the table while scanning: what finds loops. */
typedef struct scanned {
    uint32_t parent;
    dev_t device;
    ino_t inode;
} scanned;

typedef struct scan {
    pen_dataset *ds;
    const pen_dataset_opts *opts;
    pen_error *err;
    scanned *dirs; /* parallel to index.dirs */
    size_t cap;
    char path[PEN_KEY_MAX]; /* of the directory being read, relative to the root */
    size_t path_len;
    int64_t n_other; /* files that are no images */
} scan;

static int fail_at(const scan *s, int code, const char *name, const char *what)
{
    pen__shown root, dir, leaf;
    pen__show(&root, s->ds->root, strlen(s->ds->root));
    pen__show(&dir, s->path, s->path_len);
    pen__show(&leaf, name, strlen(name));
    return pen__fail(s->err, code, -1, "'%s/%s%s%s': %s", root.text, dir.text,
                     s->path_len && *name ? "/" : "", leaf.text, what);
}

static int out_of_memory(const scan *s)
{
    return pen__fail(s->err, PEN_ENOMEM, -1, "out of memory after %zu files", s->ds->index.n);
}

/* The path of a name below the directory being read; its length, or -ENAMETOOLONG. */
static int join(const scan *s, const char *name, char path[PEN_KEY_MAX])
{
    size_t len = s->path_len, name_len = strlen(name);
    if (len + 1 + name_len + 1 >= PEN_KEY_MAX)
        return -ENAMETOOLONG;
    memcpy(path, s->path, len);
    if (len > 0)
        path[len++] = '/';
    memcpy(path + len, name, name_len + 1);
    return (int)(len + name_len);
}

/* Put a directory on the list; `name` is below the one being read. */
static int add_dir(scan *s, uint32_t parent, const char *name)
{
    char path[PEN_KEY_MAX];
    int len = join(s, name, path);
    if (len < 0 || s->ds->index.dirs.n >= MAX_DIRS)
        return fail_at(s, PEN_ELIMIT, "", "directories are nested too deep, or too many");
    int64_t number = pen__index_dir(&s->ds->index, path, (size_t)len);
    if (number < 0)
        return out_of_memory(s);
    scanned *dirs = pen__grow(s->dirs, &s->cap, (size_t)number + 1, sizeof *dirs);
    if (!dirs)
        return out_of_memory(s);
    s->dirs = dirs;
    dirs[number] = (scanned){.parent = parent};
    return 0;
}

static int add_file(scan *s, uint32_t dir, const char *name, size_t len, uint64_t size)
{
    pen__found found = {.dir = dir,
                        .name = name,
                        .name_len = len,
                        .stem_len = pen__stem_length(name, len),
                        .length = size};
    int rc = pen__index_add(&s->ds->index, &found, s->err);
    if (rc == 0 && s->ds->index.n % PROGRESS_EVERY == 0)
        rc = pen__dataset_report(s->opts, (int64_t)s->ds->index.n, -1, s->err);
    return rc;
}

/* What a name of the directory `dir_fd` leads to; 0 or -errno, -EXDEV: out of a
 * confined dataset. */
static int look_up(const scan *s, int dir_fd, const char *name, struct stat *st)
{
    const bool is_confined = s->opts->is_confined;
    if (fstatat(dir_fd, name, st, is_confined ? AT_SYMLINK_NOFOLLOW : 0) != 0)
        return -errno;
    if (!is_confined || !S_ISLNK(st->st_mode))
        return 0;
    char path[PEN_KEY_MAX];
    int rc = join(s, name, path);
    int fd = rc < 0 ? rc : pen__openat_beneath(s->ds->root_fd, path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return fd;
    rc = fstat(fd, st) == 0 ? 0 : -errno;
    close(fd);
    return rc;
}

/* One name of the directory `dir_fd`.  Only images, links and what the file
 * system has no type for cost a stat. */
static int take_name(scan *s, int dir_fd, uint32_t dir, const struct dirent *item)
{
    const char *name = item->d_name;
    size_t len = strlen(name), stem = pen__stem_length(name, len);
    if (name[0] == '.')
        return 0;
    if (item->d_type == DT_DIR)
        return add_dir(s, dir, name);
    bool is_image = stem < len && pen__is_image_extension(name + stem + 1, len - stem - 1);
    bool is_open_question = item->d_type == DT_LNK || item->d_type == DT_UNKNOWN;
    if (is_open_question || (item->d_type == DT_REG && is_image)) {
        struct stat st;
        int rc = look_up(s, dir_fd, name, &st);
        if (rc == -EXDEV) {
            s->ds->n_outside++;
            return 0;
        }
        if (rc == 0) {
            if (S_ISDIR(st.st_mode))
                return add_dir(s, dir, name);
            if (S_ISREG(st.st_mode) && is_image)
                return add_file(s, dir, name, len, (uint64_t)st.st_size);
        } else if (is_image || (rc == -ENAMETOOLONG && s->opts->is_confined)) {
            /* a dangling link counts as a missing image, not as nothing; and nobody looked where
             * one leads whose own path is too long */
            char text[128];
            return fail_at(s, PEN_EIO, name, strerror_r(-rc, text, sizeof text));
        }
    }
    s->n_other++;
    return 0;
}

/* Note who the open directory is; an ancestor with the same identity is a loop. */
static int check_loop(scan *s, int fd, uint32_t dir)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return fail_at(s, PEN_EIO, "", "cannot stat the directory");
    s->dirs[dir].device = st.st_dev;
    s->dirs[dir].inode = st.st_ino;
    for (uint32_t up = dir; up != 0;) {
        up = s->dirs[up].parent;
        if (s->dirs[up].device == st.st_dev && s->dirs[up].inode == st.st_ino)
            return fail_at(s, PEN_EINVAL, "", "a link leads back to a directory above it (a loop)");
    }
    return 0;
}

static int read_names(scan *s, DIR *stream, uint32_t dir)
{
    for (;;) {
        errno = 0;
        const struct dirent *item = readdir(stream);
        if (!item && errno != 0) {
            char text[128];
            return fail_at(s, PEN_EIO, "", strerror_r(errno, text, sizeof text));
        }
        if (!item)
            return 0;
        int rc = take_name(s, dirfd(stream), dir, item);
        if (rc != 0)
            return rc;
    }
}

/* The directory at s->path, or -errno. */
static int open_dir(const scan *s)
{
    const char *path = s->path_len ? s->path : ".";
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK;
    if (s->opts->is_confined)
        return pen__openat_beneath(s->ds->root_fd, path, flags);
    int fd = openat(s->ds->root_fd, path, flags);
    return fd < 0 ? -errno : fd;
}

static int scan_dir(scan *s, uint32_t dir)
{
    const pen__intern *dirs = &s->ds->index.dirs;
    s->path_len = pen__intern_len(dirs, dir);
    memcpy(s->path, pen__intern_text(dirs, dir), s->path_len + 1); /* the table may move */
    int fd = open_dir(s);
    if (fd < 0) {
        char text[128];
        return fail_at(s, PEN_EIO, "",
                       fd == -ENOSYS ? "this kernel has no openat2 (Linux 5.6)"
                                     : strerror_r(-fd, text, sizeof text));
    }
    int rc = check_loop(s, fd, dir);
    DIR *stream = rc == 0 ? fdopendir(fd) : NULL;
    if (!stream) {
        close(fd);
        return rc ? rc : out_of_memory(s);
    }
    rc = read_names(s, stream, dir);
    closedir(stream);
    return rc;
}

/* Sorted, entries in the root come first: the two ends tell flat, classes or both. */
static int check_shape(const scan *s)
{
    const pen__index *index = &s->ds->index;
    pen__shown root, name;
    pen__show(&root, s->ds->root, strlen(s->ds->root));
    char left_out[80] = "";
    if (s->ds->n_outside > 0)
        snprintf(left_out, sizeof left_out, ", left out %lld links that lead out of it",
                 (long long)s->ds->n_outside);
    if (index->n == 0)
        return pen__fail(s->err, PEN_ENOTFOUND, -1,
                         "no images under '%s': looked for " PEN__IMAGE_EXTENSIONS
                         "; found %lld other files%s",
                         root.text, (long long)s->n_other, left_out);
    const char *first = pen__index_name(index, &index->entries[0]);
    if (index->entries[0].dir == 0 && index->entries[index->n - 1].dir != 0)
        return pen__fail(s->err, PEN_EINVAL, -1,
                         "'%s' has images both in it ('%s') and in directories below: they have no "
                         "class in common; move the former into a directory of their own",
                         root.text, pen__show(&name, first, strlen(first)));
    return 0;
}

static int scan_all(scan *s)
{
    int rc = add_dir(s, 0, "");
    for (uint32_t dir = 0; rc == 0 && dir < s->ds->index.dirs.n; dir++)
        rc = scan_dir(s, dir);
    if (rc == 0)
        rc = pen__index_sort(&s->ds->index, s->err);
    if (rc == 0)
        rc = check_shape(s);
    if (rc == 0 && s->ds->index.entries[0].dir != 0)
        rc = pen__dataset_label_by_directory(s->ds, s->err);
    return rc ? rc : pen__index_unique_keys(&s->ds->index, s->err);
}

static int folder_open(pen_dataset *ds, const char *spec, const pen_dataset_opts *opts,
                       pen_error *err)
{
    int rc = pen__dataset_open_root(ds, spec, strlen(spec), err);
    if (rc != 0)
        return rc;
    scan s = {.ds = ds, .opts = opts, .err = err};
    rc = scan_all(&s);
    pen__free(s.dirs);
    return rc;
}

const pen__source pen__source_folder = {
    .name = "folder",
    .open = folder_open,
    .read = pen__dataset_read_file,
    .open_field = pen__dataset_open_file,
};
