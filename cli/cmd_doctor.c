/* cmd_doctor.c - penstock doctor: hands over to the Python that this command is installed
 * with, because what it watches is a Python program. */
#include "cli.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The interpreter beside this command, or the first one on the PATH. */
static const char *find_python(char path[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (n > 0) {
        path[n] = '\0';
        char *name = strrchr(path, '/') + 1;
        if ((size_t)(name - path) + sizeof "python" <= PATH_MAX) {
            memcpy(name, "python", sizeof "python");
            if (access(path, X_OK) == 0)
                return path;
        }
    }
    return "python3";
}

int cmd_doctor(int argc, char **argv)
{
    char path[PATH_MAX];
    const char *python = find_python(path);
    char **words = calloc((size_t)argc + 3, sizeof *words);
    if (!words) {
        cli_complain("out of memory");
        return EXIT_FAILED;
    }
    words[0] = (char *)python;
    words[1] = (char *)"-m";
    words[2] = (char *)"penstock.doctor";
    memcpy(words + 3, argv + 1, (size_t)(argc - 1) * sizeof *words);
    signal(SIGPIPE, SIG_DFL); /* ignoring it would be inherited */
    execvp(python, words);
    cli_complain("cannot run %s: %s", python, strerror(errno));
    free(words);
    return EXIT_FAILED;
}
