"""torchvision's augmentations, colour to geometry to AutoAugment, in penstock's words.

As vocabulary.py; these act on pixels, and most of them on Pillow's only: torchvision's kernels
for tensors draw the same parameters and then interpolate in their own way.  Where v1 and v2
differ on PIL images, the native operation is v1's, and notes say what that means for v2.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from penstock import transforms as T
from penstock.torch.vocabulary import (
    Done,
    Refusal,
    Value,
    fill_of,
    is_v2,
    on_pixels,
    padding_of,
)

# Arguments that are handed on as they are, and how far torchvision is off on tensors of bytes.
BY_CHANCE: dict[str, tuple[tuple[str, ...], int]] = {
    "RandomAdjustSharpness": (("sharpness_factor", "p"), 1),
    "RandomAutocontrast": (("p",), 1),
    "RandomEqualize": (("p",), 0),
    "RandomGrayscale": (("p",), 1),
    "RandomInvert": (("p",), 0),
    "RandomPosterize": (("bits", "p"), 0),
    "RandomSolarize": (("threshold", "p"), 0),
}
WARPS: dict[str, tuple[str, ...]] = {
    "RandomAffine": ("degrees", "translate", "scale", "shear", "center"),
    "RandomPerspective": ("distortion_scale", "p"),
    "RandomRotation": ("degrees", "expand", "center"),
}
POLICIES: dict[str, tuple[str, ...]] = {
    "AugMix": ("severity", "mixture_width", "chain_depth", "alpha", "all_ops"),
    "AutoAugment": ("policy",),
    "RandAugment": ("num_ops", "magnitude", "num_magnitude_bins"),
    "TrivialAugmentWide": ("num_magnitude_bins",),
}


NOTE_BLUR = "torch's convolution sums in an order of its own: up to one level (1/255) off at times"
NOTE_PERSPECTIVE = "torch solves for the matrix less exactly: up to one level (1/255) off at times"
NOTE_AFFINE = "rounds its matrix as v1 does: up to one level (1/255) off v2's"
NOTE_SOLARIZE = "with v1's thresholds for Solarize, which v2 rounds to the next level"
NOTE_AUGMIX = "with v1's kernels and thresholds, which v2 rounds differently"


def _native(op: Any) -> Callable[..., T.Transform]:
    """The operation of the same name."""
    return getattr(T, type(op).__name__)


def _given(op: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(op, name) for name in names}


def _by_chance(op: Any, value: Value) -> Done:
    names, off = BY_CHANCE[type(op).__name__]
    return on_pixels(value, _native(op)(**_given(op, names)), size=value.size, bytes_off=off)


def _pad(op: Any, value: Value) -> Done:
    is_constant = op.padding_mode == "constant"
    fill = (fill_of(op, value) or 0) if is_constant else 0
    padding = padding_of(op)
    native = T.Pad(padding, fill=fill, padding_mode=op.padding_mode)
    size = None
    if value.size is not None:
        sides: Any = native.padding
        left, top, right, bottom = sides
        size = (value.size[0] + top + bottom, value.size[1] + left + right)
    return on_pixels(
        value, native, size=size, bytes_off=0, floats_off=0, passes_normalize=not is_constant
    )


def _gaussian_blur(op: Any, value: Value) -> Done:
    native = T.GaussianBlur(tuple(op.kernel_size), tuple(op.sigma))
    return on_pixels(value, native, size=value.size, note=NOTE_BLUR, bytes_off=1)


def _interpolation(op: Any) -> Any:
    mode = getattr(op.interpolation, "value", op.interpolation)
    return "nearest" if mode in ("nearest-exact", 0) else mode


def _warp(op: Any, value: Value) -> Done:
    given = _given(op, WARPS[type(op).__name__])
    native = _native(op)(**given, interpolation=_interpolation(op), fill=fill_of(op, value))
    size = None if given.get("expand") else value.size
    note = ""
    if _interpolation(op) != "nearest" and isinstance(native, T.RandomPerspective):
        note = NOTE_PERSPECTIVE
    elif _interpolation(op) != "nearest" and isinstance(native, T.RandomAffine) and is_v2(op):
        note = NOTE_AFFINE
    return on_pixels(value, native, size=size, note=note)


def _policy(op: Any, value: Value) -> Done:
    given = _given(op, POLICIES[type(op).__name__])
    if "policy" in given:
        given["policy"] = given["policy"].value
    native = _native(op)(**given, interpolation=_interpolation(op), fill=fill_of(op, value))
    if isinstance(native, T.AugMix):  # works on tensors, whatever it is given
        note = NOTE_AUGMIX if is_v2(op) else ""
        return on_pixels(value, native, size=value.size, note=note, bytes_off=0)
    note = NOTE_SOLARIZE if is_v2(op) else ""
    return on_pixels(value, native, size=value.size, note=note)


# Groups.


def group(op: Any, value: Value, translated: Callable[[Any, Value], Done]) -> Done:
    """RandomApply, RandomChoice, RandomOrder, and a Compose among their members."""
    name = type(op).__name__
    is_chain = name in ("RandomApply", "Compose")
    at, ops, whys, sizes = value, [], [], set()
    for member in op.transforms:
        done = translated(member, at if is_chain else value)
        if done.tail_ops or not _is_alike(done.after, value):
            raise Refusal(f"its member {type(member).__name__} changes the type of the image")
        ops.append(done.pixel_ops[0] if done.pixel_ops else T.Compose([]))
        whys.append(done.why)
        at = done.after
        sizes.add(at.size)
    if is_chain:
        sizes = {at.size}
    if name in ("RandomApply", "RandomOrder"):
        sizes.add(value.size)  # it may not happen, and an order may end anywhere
    arguments = {"p": op.p} if name in ("RandomApply", "RandomChoice") else {}
    return Done(
        replace(value, size=sizes.pop() if len(sizes) == 1 else None),
        pixel_ops=(_native(op)(ops, **arguments),),
        why=next(filter(None, whys), ""),
    )


def _is_alike(after: Value, before: Value) -> bool:
    return replace(after, size=before.size) == before


AUGMENTATIONS: dict[str, Callable[[Any, Value], Done]] = {
    **dict.fromkeys(BY_CHANCE, _by_chance),
    **dict.fromkeys(WARPS, _warp),
    **dict.fromkeys(POLICIES, _policy),
    "GaussianBlur": _gaussian_blur,
    "Pad": _pad,
}
GROUPS = ("Compose", "RandomApply", "RandomChoice", "RandomOrder")
