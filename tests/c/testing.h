/* testing.h - cmocka with the headers it wants first. */
#ifndef PEN_TESTS_TESTING_H
#define PEN_TESTS_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#endif
