"""One sample at a time: look at it, decode it, run operations on it.

These are for checking and curiosity; a `Loader` keeps its scratch memory and its threads.
The random key of a sample is (seed, epoch, sample id, occurrence): with a loader's own
numbers, `draw` and `apply` give what that loader gives.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from penstock import _core, transforms

Buffer = bytes | bytearray | memoryview
DType = Literal["uint8", "float32", "float16", "bfloat16"]
Layout = Literal["NCHW", "NHWC"]

DTYPES = {None: 0, "uint8": 1, "float32": 2, "float16": 3, "bfloat16": 4}
LAYOUTS = {"NCHW": 0, "NHWC": 1}


def pipeline(
    ops: transforms.Transform | Iterable[transforms.Transform],
    dtype: DType | None = None,
    layout: Layout = "NCHW",
) -> _core.Pipeline:
    """The operations, checked together."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be None or one of {list(DTYPES)[1:]}, not {dtype!r}")
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {list(LAYOUTS)}, not {layout!r}")
    return _core.Pipeline(transforms.specs(ops), DTYPES[dtype], LAYOUTS[layout])


def check_seed(seed: int) -> int:
    return transforms.check_integer("seed", seed, 0, 2**64 - 1)


def probe(data: Buffer) -> dict[str, Any]:
    """What the header of an encoded image says: format, width, height, and so on."""
    return _core.probe(data)


def decode(
    data: Buffer, channels: int = 3, window: tuple[int, int, int, int] | None = None
) -> _core.Array:
    """Pixels (H, W, C) as Pillow's, of the whole image or of the rectangle (x, y, w, h)."""
    return _core.decode(data, channels, window)


def draw(
    data: Buffer,
    ops: transforms.Transform | Iterable[transforms.Transform],
    seed: int = 0,
    epoch: int = 0,
    sample: int = 0,
    occurrence: int = 0,
) -> list[dict[str, Any]]:
    """What each operation, Decode included, would do to this image; touches no pixel."""
    return pipeline(ops).draw(data, check_seed(seed), epoch, sample, occurrence)


def apply(
    data: Buffer,
    ops: transforms.Transform | Iterable[transforms.Transform],
    params: Sequence[dict[str, Any]] | None = None,
    seed: int = 0,
    epoch: int = 0,
    sample: int = 0,
    occurrence: int = 0,
    dtype: DType | None = None,
    layout: Layout = "NCHW",
) -> _core.Array:
    """Run the operations on one encoded image, with parameters drawn or given (see `draw`)."""
    line = pipeline(ops, dtype, layout)
    return line.run(data, check_seed(seed), epoch, sample, occurrence, params)
