"""Each transform of torchvision, v1 and v2, in penstock's words.

A translator gets the transform and what is known about the value it would receive, reads every
argument, and says what to do natively and what is known afterwards; or it refuses.  Arguments
are checked by the native operation itself, whose complaint becomes the reason.

Differences in levels are measured by tests/python/test_compile.py, on noise.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock import transforms as T
from penstock.sample import DType
from penstock.torch.steps import Kind, Where

V1_MODULES = ("torchvision.transforms.transforms", "torchvision.transforms.autoaugment")
V2_PACKAGE = "torchvision.transforms.v2."
FLOATS = ("float32", "float16", "bfloat16")


class Refusal(Exception):
    """Says why an operation cannot be native."""


@dataclass(frozen=True)
class Value:
    """What is known about a sample at a place in the line."""

    kind: Kind = "pil"
    dtype: DType = "uint8"
    channels: int = 3
    size: tuple[int, int] | None = None  # (h, w), if all images have the same
    is_normalized: bool = False  # zero may not be black any more
    is_erased: bool = False
    exact: bool = False  # asked for: refuse what differs by a level

    @property
    def is_float(self) -> bool:
        return self.dtype != "uint8"


@dataclass(frozen=True)
class Done:
    """An operation's translation: native operations on pixels, or behind ToTensor, or none."""

    after: Value
    pixel_ops: tuple[T.Transform, ...] = ()
    tail_ops: tuple[T.Transform, ...] = ()
    why: str = ""
    where: Where = "native"
    is_pointwise: bool = False  # acts on each value alone: to be tried on all of them


def torchvision_name(transform: Any) -> str | None:
    """The class's name if it is one of torchvision's own transforms or torch's containers."""
    module, name = type(transform).__module__, type(transform).__qualname__
    if module in V1_MODULES or module.startswith(V2_PACKAGE):
        return name
    return name if module == "torch.nn.modules.container" else None


def is_v2(transform: Any) -> bool:
    return type(transform).__module__.startswith(V2_PACKAGE)


# Operations on pixels.


def on_pixels(
    value: Value,
    *ops: T.Transform,
    size: tuple[int, int] | None,
    note: str = "",
    bytes_off: int | None = None,
    floats_off: int | None = None,
    passes_normalize: bool = False,
) -> Done:
    """Done on bytes, where Pillow's pixels are wanted or near enough.

    note                   how it differs from torchvision even on PIL images, if it does
    bytes_off, floats_off  by how many levels torchvision's kernels for tensors of bytes and of
                           floats may differ; None: by more than one
    passes_normalize       may it be done before a Normalize that stands before it?
    """
    if note and value.exact:
        raise Refusal(note)
    why = note
    if value.kind != "pil":
        off = floats_off if value.is_float else bytes_off
        if value.is_erased:
            raise Refusal("stands behind RandomErasing, and pixels are native before it")
        if off is None:
            raise Refusal(
                "on a tensor it differs from Pillow's pixels by more than one level; "
                "before ToTensor, PILToTensor and ToImage it would be native"
            )
        if value.is_normalized and not passes_normalize:
            raise Refusal("stands behind Normalize, and would differ if done before it")
        if off and value.exact:
            raise Refusal("Pillow's pixels differ from the tensor kernel's by up to one level")
        if off:
            why = "with Pillow's pixels: up to one level (1/255) off the tensor kernel's"
        elif value.is_float:
            why = "done before ToTensor, with the same result"
    return Done(replace(value, size=size), pixel_ops=ops, why=why)


def _resampling(op: Any, value: Value) -> tuple[str, int | None]:
    """The filter's name, and how far it is off on tensors."""
    mode = getattr(op.interpolation, "value", op.interpolation)
    name = "nearest" if mode == "nearest-exact" else mode
    if value.kind == "pil":  # always antialiased, whatever the argument
        return name, None
    if name == "bilinear" or name == 2:
        if op.antialias is not True:
            raise Refusal(f"antialias={op.antialias} on a tensor; Pillow always antialiases")
        return name, 1
    return name, None


def _pair(size: Any) -> tuple[int, int]:
    height, width = size
    return height, width


def _resize(op: Any, value: Value) -> Done:
    if op.size is None:
        raise Refusal("size=None has no native form")
    name, off = _resampling(op, value)
    native = T.Resize(op.size, name, op.max_size)
    size = None if isinstance(native.size, int) else _pair(native.size)
    return on_pixels(value, native, size=size, bytes_off=off, floats_off=off)


def _random_resized_crop(op: Any, value: Value) -> Done:
    name, off = _resampling(op, value)
    native = T.RandomResizedCrop(tuple(op.size), tuple(op.scale), tuple(op.ratio), name)
    return on_pixels(value, native, size=_pair(native.size), bytes_off=off, floats_off=off)


def _center_crop(op: Any, value: Value) -> Done:
    native = T.CenterCrop(tuple(op.size))
    h, w = _pair(native.size)
    fits = value.size is not None and h <= value.size[0] and w <= value.size[1]
    return on_pixels(value, native, size=(h, w), bytes_off=0, floats_off=0, passes_normalize=fits)


def padding_of(op: Any) -> Any:
    """v2.RandomCrop keeps (left, right, top, bottom)."""
    if is_v2(op) and op.padding is not None and type(op).__name__ == "RandomCrop":
        left, right, top, bottom = op.padding
        return left, top, right, bottom
    return op.padding


def fill_of(op: Any, value: Value) -> Any:
    """As whole numbers, which is what bytes are filled with; None is torchvision's for black."""
    if isinstance(op.fill, dict):
        raise Refusal("fill by type of value has no native form")
    if op.fill is None:
        return None
    numbers = op.fill if isinstance(op.fill, Sequence) else [op.fill]
    if any(number != int(number) for number in numbers):
        raise Refusal(f"fill={op.fill}: bytes are filled with whole numbers")
    if value.is_float and any(numbers):
        raise Refusal(f"fill={op.fill} among floats; only 0 is the same before ToTensor")
    whole = [int(number) for number in numbers]
    return whole if isinstance(op.fill, Sequence) else whole[0]


def _random_crop(op: Any, value: Value) -> Done:
    padding, is_constant = padding_of(op), op.padding_mode == "constant"
    may_pad = padding is not None or op.pad_if_needed
    fill = (fill_of(op, value) or 0) if may_pad and is_constant else 0
    native = T.RandomCrop(
        tuple(op.size),
        padding=padding,
        pad_if_needed=op.pad_if_needed,
        fill=fill,
        padding_mode=op.padding_mode,
    )
    return on_pixels(
        value,
        native,
        size=_pair(native.size),
        bytes_off=0,
        floats_off=0,
        passes_normalize=not (may_pad and is_constant),
    )


def _flip(op: Any, value: Value) -> Done:
    native = getattr(T, type(op).__name__)(op.p)
    return on_pixels(
        value, native, size=value.size, bytes_off=0, floats_off=0, passes_normalize=True
    )


def _color_jitter(op: Any, value: Value) -> Done:
    given = {name: getattr(op, name) for name in ("brightness", "contrast", "saturation", "hue")}
    native = T.ColorJitter(**{name: pair for name, pair in given.items() if pair is not None})
    is_light_only = not (op.contrast or op.saturation or op.hue)
    return on_pixels(value, native, size=value.size, bytes_off=0 if is_light_only else None)


def _grayscale(op: Any, value: Value) -> Done:
    native = T.Grayscale(op.num_output_channels)
    done = on_pixels(value, native, size=value.size, bytes_off=1, floats_off=1)
    return replace(done, after=replace(done.after, channels=op.num_output_channels))


# From pixels to tensors.


def _nothing(after: Value, why: str) -> Done:
    return Done(after, why=why, where="nowhere")


def _to_tensor(op: Any, value: Value) -> Done:
    if value.kind != "pil":
        raise Refusal("is meant for a PIL image, and would receive a tensor")
    after = replace(value, kind="tensor", dtype="float32")
    return Done(after, tail_ops=(T.ToTensor(),), is_pointwise=True)


def _pil_to_tensor(op: Any, value: Value) -> Done:
    if value.kind != "pil":
        raise Refusal("is meant for a PIL image, and would receive a tensor")
    after = replace(value, kind="tensor")
    return replace(_nothing(after, "native results are tensors"), is_pointwise=True)


def _to_image(op: Any, value: Value) -> Done:
    after = replace(value, kind="image")
    return replace(_nothing(after, "native results are tensors"), is_pointwise=True)


def _to_pure_tensor(op: Any, value: Value) -> Done:
    if value.kind == "pil":
        return _nothing(value, "does nothing to a PIL image")
    after = replace(value, kind="tensor")
    return replace(_nothing(after, "native results are tensors"), is_pointwise=True)


def _to_dtype(op: Any, value: Value) -> Done:
    if value.kind == "pil":
        return _nothing(value, "does nothing to a PIL image")
    dtype = _dtype_for(op.dtype, value) if isinstance(op.dtype, dict) else op.dtype
    if dtype is None:
        return _nothing(value, "leaves the image's type alone")
    return _convert(dtype, value, T.ToDtype(scale=op.scale))


def _dtype_for(by_type: dict[Any, Any], value: Value) -> Any:
    if value.kind == "image":
        wanted = sys.modules["torchvision.tv_tensors"].Image
    else:
        wanted = sys.modules["torch"].Tensor
    if wanted not in by_type and "others" not in by_type:
        raise Refusal(f"dtype says nothing about {wanted.__name__}")
    return by_type.get(wanted, by_type.get("others"))


def _convert_image_dtype(op: Any, value: Value) -> Done:
    if value.kind == "pil":
        raise Refusal("is meant for a tensor, and would receive a PIL image")
    return _convert(op.dtype, value, T.ToDtype(scale=True) if is_v2(op) else T.ToTensor())


def _convert(dtype: Any, value: Value, to_float: T.Transform) -> Done:
    name: Any = str(dtype).removeprefix("torch.")
    after = replace(value, dtype=name)
    if name == value.dtype:
        return _nothing(value, f"the image is {name} already")
    if name not in FLOATS:
        raise Refusal(f"{name} has no native form")
    if not value.is_float:
        return Done(after, tail_ops=(to_float,), is_pointwise=True)
    if value.dtype == "float32":
        return Done(after, why="written to the batch in this type", is_pointwise=True)
    raise Refusal(f"{value.dtype} to {name} has no native form")


def _check_float32(value: Value) -> None:
    if value.dtype != "float32":
        raise Refusal(f"native on float32 only, and would receive {value.dtype}")


def _normalize(op: Any, value: Value) -> Done:
    _check_float32(value)
    after = replace(value, is_normalized=True)
    return Done(after, tail_ops=(T.Normalize(op.mean, op.std),), is_pointwise=True)


def _random_erasing(op: Any, value: Value) -> Done:
    _check_float32(value)
    fill: Any = "random" if op.value is None or op.value == "random" else op.value
    native = T.RandomErasing(op.p, tuple(op.scale), tuple(op.ratio), fill)
    n_values = 1 if isinstance(fill, str | int | float) else len(fill)
    if n_values not in (1, value.channels):
        raise Refusal(f"{n_values} values for {value.channels} channels")
    return Done(replace(value, is_erased=True), tail_ops=(native,))


def _identity(op: Any, value: Value) -> Done:
    return _nothing(value, "does nothing")


def _rgb(op: Any, value: Value) -> Done:
    if value.channels != 3:
        raise Refusal("has no native form for one channel")
    return _nothing(value, "the image is RGB already")


BASICS: dict[str, Callable[[Any, Value], Done]] = {
    "CenterCrop": _center_crop,
    "ColorJitter": _color_jitter,
    "ConvertImageDtype": _convert_image_dtype,
    "Grayscale": _grayscale,
    "Identity": _identity,
    "Normalize": _normalize,
    "PILToTensor": _pil_to_tensor,
    "RGB": _rgb,
    "RandomCrop": _random_crop,
    "RandomErasing": _random_erasing,
    "RandomHorizontalFlip": _flip,
    "RandomResizedCrop": _random_resized_crop,
    "RandomVerticalFlip": _flip,
    "Resize": _resize,
    "ToDtype": _to_dtype,
    "ToImage": _to_image,
    "ToPureTensor": _to_pure_tensor,
    "ToTensor": _to_tensor,
}
