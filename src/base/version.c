/* version.c - the library's version, from the build. */
#include <penstock/version.h>

const char *pen_version(void)
{
    return PEN_VERSION;
}
