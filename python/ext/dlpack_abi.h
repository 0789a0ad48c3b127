/* dlpack_abi.h - the part of the DLPack binary interface that we speak.
 *
 * DLPack is how array libraries hand each other memory without copying.  The
 * layout is fixed by its specification, versions 0.x (legacy) and 1.x; only
 * what an exporter of plain CPU memory needs is declared here.
 *
 * The receiver calls `deleter` once, from any thread and without Python's lock.
 */
#ifndef PEN_PY_DLPACK_ABI_H
#define PEN_PY_DLPACK_ABI_H

#include <stdint.h>

enum { DL_DEVICE_CPU = 1 };

enum { DL_CODE_INT = 0, DL_CODE_UINT = 1, DL_CODE_FLOAT = 2, DL_CODE_BFLOAT = 4, DL_CODE_BOOL = 6 };

enum { DL_VERSION_MAJOR = 1, DL_VERSION_MINOR = 0 };

/* dl_managed_versioned.flags: the receiver is the memory's only user. */
#define DL_FLAG_IS_COPIED UINT64_C(2)

/* A capsule carries one of these names until it is consumed; the receiver then
 * renames it to "used_...", and the memory is the receiver's. */
#define DL_CAPSULE           "dltensor"
#define DL_CAPSULE_VERSIONED "dltensor_versioned"

typedef struct dl_device {
    int32_t type, id;
} dl_device;

typedef struct dl_type {
    uint8_t code, bits;
    uint16_t lanes;
} dl_type;

typedef struct dl_tensor {
    void *data;
    dl_device device;
    int32_t ndim;
    dl_type type;
    int64_t *shape;
    int64_t *strides; /* in elements */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

typedef struct dl_managed_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dl_managed_versioned *self);
    uint64_t flags;
    dl_tensor tensor;
} dl_managed_versioned;

#endif
