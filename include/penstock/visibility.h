/* visibility.h - marks what the shared library exports. */
#ifndef PENSTOCK_VISIBILITY_H
#define PENSTOCK_VISIBILITY_H

#if defined(__GNUC__)
#define PEN_API __attribute__((visibility("default")))
#else
#define PEN_API
#endif

#endif
