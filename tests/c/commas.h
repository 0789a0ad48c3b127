/* commas.h - a locale that writes 0,5 for 0.5, for the whole test program. */
#ifndef PEN_TESTS_COMMAS_H
#define PEN_TESTS_COMMAS_H

#include "testing.h"

#include <locale.h>
#include <stdbool.h>

/* One that is installed, or one that is made on the spot; false: neither can be had.  The way
 * back is setlocale(LC_ALL, "C"). */
static inline bool use_commas(void)
{
    char dir[] = "/tmp/penstock-locale-XXXXXX", command[256];
    if (setlocale(LC_ALL, "de_DE.UTF-8") || setlocale(LC_ALL, "fr_FR.UTF-8"))
        return true;
    if (!mkdtemp(dir))
        return false;
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >%s/out 2>&1",
             dir, dir);
    bool is_made = system(command) == 0;
    setenv("LOCPATH", dir, 1);
    is_made = is_made && setlocale(LC_ALL, "de_DE.UTF-8");
    unsetenv("LOCPATH");
    snprintf(command, sizeof command, "rm -r %s", dir); /* it is in memory by now */
    return system(command) == 0 && is_made;
}

#endif
