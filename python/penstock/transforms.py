"""The operations, by torchvision's names, arguments and defaults.

Each is a frozen value: it says what is to be done and checks itself when it is made.  The
work is done by the C library, with the results of torchvision's PIL path.  Decode stands
first in every pipeline; where it is left out, it is added.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Setting = bool | int | float | Sequence[int] | Sequence[float]
# What the extension reads: the operation's name, and the members of its struct in op.h.
Spec = tuple[str, dict[str, Setting]]

Size = int | Sequence[int]
Interpolation = int | str | Any  # Any: torchvision's InterpolationMode, known by its .value

FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}
PADDING_MODES = {"constant": 0, "edge": 1, "reflect": 2, "symmetric": 3}
SCALINGS = {"divide": 0, "multiply": 1, "none": 2}
MAX_SIDE = 16384  # as the C library's
MAX_CHANNELS = 3


class Transform:
    """What every operation here is."""

    def _spec(self) -> Spec:
        raise NotImplementedError

    def _set(self, **values: object) -> None:
        """Replace arguments by their checked form: how a frozen dataclass is told."""
        for name, value in values.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Decode(Transform):
    """Turn the encoded bytes into pixels: RGB (3 channels) or L (1 channel)."""

    channels: int = 3
    mode: Literal["RGB", "L"] | None = None
    exif: bool = False

    def __post_init__(self) -> None:
        if self.mode not in (None, "RGB", "L"):
            raise ValueError(f"mode must be 'RGB' or 'L', not {self.mode!r}")
        channels = {"RGB": 3, "L": 1}[self.mode] if self.mode else self.channels
        _one_of("channels", channels, (1, 3))
        self._set(channels=channels, mode={3: "RGB", 1: "L"}[channels])

    def _spec(self) -> Spec:
        return "Decode", {"channels": self.channels, "use_exif": bool(self.exif)}


@dataclass(frozen=True)
class Resize(Transform):
    """Resize to (h, w), or, given one number, so that the shorter side has that length."""

    size: Size
    interpolation: Interpolation = "bilinear"
    max_size: int | None = None
    antialias: bool | None = True

    def __post_init__(self) -> None:
        if isinstance(self.size, Sequence) and len(self.size) == 1:
            size: Size = check_integer("size", self.size[0], 1, MAX_SIDE)
        elif isinstance(self.size, Sequence):
            size = _pair_of_sides("size", self.size)
        else:
            size = check_integer("size", self.size, 1, MAX_SIDE)
        if self.max_size is not None:
            if not isinstance(size, int):
                raise ValueError("max_size is only for a size of one number")
            check_integer("max_size", self.max_size, 1, MAX_SIDE)
            if self.max_size <= size:
                raise ValueError(f"max_size must be greater than size, not {self.max_size}")
        if self.antialias is False:
            raise ValueError(
                "antialias=False is not offered: Pillow always antialiases, and so do we"
            )
        self._set(size=size, interpolation=_filter_name(self.interpolation))

    def _spec(self) -> Spec:
        h, w = (self.size, 0) if isinstance(self.size, int) else self.size
        return "Resize", {
            "h": h,
            "w": w,
            "max_size": self.max_size or 0,
            "filter": FILTERS[_filter_name(self.interpolation)],
        }


@dataclass(frozen=True)
class CenterCrop(Transform):
    """Cut out the middle; where the image is smaller, it is padded with black."""

    size: Size

    def __post_init__(self) -> None:
        self._set(size=_pair_of_sides("size", self.size))

    def _spec(self) -> Spec:
        h, w = _pair_of_sides("size", self.size)
        return "CenterCrop", {"h": h, "w": w}


@dataclass(frozen=True)
class RandomCrop(Transform):
    """Cut out a random place, after padding: all sides, (sides, top and bottom), or each
    (left, top, right, bottom)."""

    size: Size
    padding: int | Sequence[int] | None = None
    pad_if_needed: bool = False
    fill: int | Sequence[int] = 0
    padding_mode: Literal["constant", "edge", "reflect", "symmetric"] = "constant"

    def __post_init__(self) -> None:
        if self.padding_mode not in PADDING_MODES:
            raise ValueError(
                f"padding_mode must be one of {list(PADDING_MODES)}, not {self.padding_mode!r}"
            )
        self._set(
            size=_pair_of_sides("size", self.size),
            padding=None if self.padding is None else _padding(self.padding),
            fill=_fill(self.fill),
        )

    def _spec(self) -> Spec:
        h, w = _pair_of_sides("size", self.size)
        return "RandomCrop", {
            "h": h,
            "w": w,
            "pad": _padding(0 if self.padding is None else self.padding),
            "pad_if_needed": bool(self.pad_if_needed),
            "padding_mode": PADDING_MODES[self.padding_mode],
            "fill": _fill(self.fill),
        }


@dataclass(frozen=True)
class RandomResizedCrop(Transform):
    """Cut out a random share of the area with a random aspect, and resize it to `size`."""

    size: Size
    scale: Sequence[float] = (0.08, 1.0)
    ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0)
    interpolation: Interpolation = "bilinear"
    antialias: bool | None = True

    def __post_init__(self) -> None:
        if self.antialias is False:
            raise ValueError(
                "antialias=False is not offered: Pillow always antialiases, and so do we"
            )
        self._set(
            size=_pair_of_sides("size", self.size),
            scale=_range("scale", self.scale, low=0.0, is_open=True),
            ratio=_range("ratio", self.ratio, low=0.0, is_open=True),
            interpolation=_filter_name(self.interpolation),
        )

    def _spec(self) -> Spec:
        h, w = _pair_of_sides("size", self.size)
        return "RandomResizedCrop", {
            "h": h,
            "w": w,
            "scale_min": self.scale[0],
            "scale_max": self.scale[1],
            "ratio_min": self.ratio[0],
            "ratio_max": self.ratio[1],
            "filter": FILTERS[_filter_name(self.interpolation)],
        }


@dataclass(frozen=True)
class RandomHorizontalFlip(Transform):
    """Swap left and right with probability p."""

    p: float = 0.5

    def __post_init__(self) -> None:
        self._set(p=_number("p", self.p, 0.0, 1.0))

    def _spec(self) -> Spec:
        return "RandomHorizontalFlip", {"p": self.p}


@dataclass(frozen=True)
class RandomVerticalFlip(Transform):
    """Swap top and bottom with probability p."""

    p: float = 0.5

    def __post_init__(self) -> None:
        self._set(p=_number("p", self.p, 0.0, 1.0))

    def _spec(self) -> Spec:
        return "RandomVerticalFlip", {"p": self.p}


@dataclass(frozen=True)
class ColorJitter(Transform):
    """Change brightness, contrast, saturation and hue in a random order.

    A number x draws the factor from [1 - x, 1 + x] (the hue's from [-x, x]); a pair is the
    range itself.
    """

    brightness: float | Sequence[float] = 0.0
    contrast: float | Sequence[float] = 0.0
    saturation: float | Sequence[float] = 0.0
    hue: float | Sequence[float] = 0.0

    def __post_init__(self) -> None:
        self._ranges()

    def _ranges(self) -> dict[str, Setting]:
        return {
            "brightness": _factors("brightness", self.brightness),
            "contrast": _factors("contrast", self.contrast),
            "saturation": _factors("saturation", self.saturation),
            "hue": _hues(self.hue),
        }

    def _spec(self) -> Spec:
        return "ColorJitter", self._ranges()


@dataclass(frozen=True)
class Grayscale(Transform):
    """Keep the luminance only, in one channel or in three equal ones."""

    num_output_channels: int = 1

    def __post_init__(self) -> None:
        _one_of("num_output_channels", self.num_output_channels, (1, 3))

    def _spec(self) -> Spec:
        return "Grayscale", {"channels": self.num_output_channels}


@dataclass(frozen=True)
class ToTensor(Transform):
    """Turn bytes 0..255 into floats 0..1."""

    def _spec(self) -> Spec:
        return "ToTensor", {"scaling": SCALINGS["divide"]}


@dataclass(frozen=True)
class ToDtype(Transform):
    """ToTensor as torchvision's v2 has it: bytes become floats, times 1/255 if `scale`.

    Multiplying rounds differently from ToTensor's division in the last bit of some results.
    A narrower type is the loader's dtype.
    """

    dtype: Any = "float32"  # or torch.float32
    scale: bool = False

    def __post_init__(self) -> None:
        name = str(self.dtype).removeprefix("torch.")
        if name != "float32":
            raise ValueError(f"dtype must be float32, which the loader's narrows; not {name}")
        self._set(dtype=name, scale=bool(self.scale))

    def _spec(self) -> Spec:
        return "ToTensor", {"scaling": SCALINGS["multiply" if self.scale else "none"]}


@dataclass(frozen=True)
class Normalize(Transform):
    """Subtract the mean and divide by the standard deviation, channel by channel."""

    mean: float | Sequence[float]
    std: float | Sequence[float]

    def __post_init__(self) -> None:
        mean, std = _channel_values("mean", self.mean), _channel_values("std", self.std)
        if len(mean) != len(std):
            raise ValueError(f"std must have as many values as mean, {len(mean)}, not {len(std)}")
        if any(value == 0 for value in std):
            raise ValueError("std must not be 0")
        self._set(mean=mean, std=std)

    def _spec(self) -> Spec:
        return "Normalize", {
            "mean": _all_channels(_channel_values("mean", self.mean)),
            "std": _all_channels(_channel_values("std", self.std)),
        }


@dataclass(frozen=True)
class RandomErasing(Transform):
    """With probability p, fill a random box with a value, values by channel, or noise."""

    p: float = 0.5
    scale: Sequence[float] = (0.02, 0.33)
    ratio: Sequence[float] = (0.3, 3.3)
    value: float | Sequence[float] | Literal["random"] = 0
    inplace: bool = False  # accepted as torchvision's; there is no other holder to notice

    def __post_init__(self) -> None:
        if isinstance(self.value, str):
            if self.value != "random":
                raise ValueError(f"value must be numbers or 'random', not {self.value!r}")
        else:
            _channel_values("value", self.value)
        self._set(
            p=_number("p", self.p, 0.0, 1.0),
            scale=_range("scale", self.scale, low=0.0, high=1.0),
            ratio=_range("ratio", self.ratio, low=0.0, is_open=True),
        )

    def _spec(self) -> Spec:
        is_random = isinstance(self.value, str)
        value = (0.0,) if isinstance(self.value, str) else _channel_values("value", self.value)
        return "RandomErasing", {
            "p": self.p,
            "scale_min": self.scale[0],
            "scale_max": self.scale[1],
            "ratio_min": self.ratio[0],
            "ratio_max": self.ratio[1],
            "fill_mode": int(is_random),
            "value": _all_channels(value),
        }


def specs(ops: Transform | Iterable[Transform]) -> list[Spec]:
    """The operations as the extension reads them."""
    line = [ops] if isinstance(ops, Transform) else list(ops)
    channels = MAX_CHANNELS
    for op in line:
        if not isinstance(op, Transform):
            raise TypeError(f"ops must be penstock.transforms, not {op!r}")
        if isinstance(op, Decode):
            channels = op.channels
        elif isinstance(op, Grayscale):
            channels = op.num_output_channels
        elif isinstance(op, Normalize) and channels < len(_channel_values("mean", op.mean)):
            raise ValueError(f"mean and std must have one value for {channels} channel: {op!r}")
    return [op._spec() for op in line]


# Checks.  Each returns the value in the form that is stored, or names the argument at fault.


def check_integer(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    number = int(value.__index__())
    if not low <= number <= high:
        raise ValueError(f"{name} must be within {low}..{high}, not {number}")
    return number


def _number(name: str, value: object, low: float = -math.inf, high: float = math.inf) -> float:
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise ValueError(f"{name} must be a number, not {value!r}")
    number = float(value.__float__())
    if not (math.isfinite(number) and low <= number <= high):
        raise ValueError(f"{name} must be a number within [{low}, {high}], not {number}")
    return number


def _one_of(name: str, value: object, choices: tuple[int, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {choices}, not {value!r}")


def _pair_of_sides(name: str, size: Size) -> tuple[int, int]:
    """One number is a square; a pair is (h, w)."""
    sides = tuple(size) if isinstance(size, Sequence) else (size,)
    if isinstance(size, str) or len(sides) not in (1, 2):
        raise ValueError(f"{name} must be a whole number or (h, w), not {size!r}")
    h = check_integer(name, sides[0], 1, MAX_SIDE)
    return h, check_integer(name, sides[-1], 1, MAX_SIDE)


def _range(
    name: str,
    value: Sequence[float],
    low: float = -math.inf,
    high: float = math.inf,
    is_open: bool = False,
) -> tuple[float, float]:
    """A pair (min, max) within [low, high]; `is_open` leaves out low itself."""
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        raise ValueError(f"{name} must be (min, max), not {value!r}")
    least, most = (_number(name, item, low, high) for item in value)
    if least > most or (is_open and least <= low):
        raise ValueError(f"{name} must be (min, max) with {low} < min <= max, not {value!r}")
    return least, most


def _factors(name: str, value: float | Sequence[float]) -> tuple[float, float]:
    if isinstance(value, Sequence):
        return _range(name, value, low=0.0)
    spread = _number(name, value, low=0.0)
    return max(0.0, 1.0 - spread), 1.0 + spread


def _hues(value: float | Sequence[float]) -> tuple[float, float]:
    if isinstance(value, Sequence):
        return _range("hue", value, low=-0.5, high=0.5)
    spread = _number("hue", value, 0.0, 0.5)
    return -spread, spread


def _padding(value: int | Sequence[int]) -> tuple[int, int, int, int]:
    """torchvision's forms as (left, top, right, bottom)."""
    sides = tuple(value) if isinstance(value, Sequence) else (value,)
    if isinstance(value, str) or len(sides) not in (1, 2, 4):
        raise ValueError(f"padding must be one, two or four whole numbers, not {value!r}")
    left, top, right, bottom = sides * (4 // len(sides))
    return (
        check_integer("padding", left, 0, MAX_SIDE),
        check_integer("padding", top, 0, MAX_SIDE),
        check_integer("padding", right, 0, MAX_SIDE),
        check_integer("padding", bottom, 0, MAX_SIDE),
    )


def _fill(value: int | Sequence[int]) -> tuple[int, int, int]:
    channels = tuple(value) if isinstance(value, Sequence) else (value,)
    if isinstance(value, str) or len(channels) not in (1, MAX_CHANNELS):
        raise ValueError(f"fill must be one whole number or three, not {value!r}")
    first, second, third = channels * (MAX_CHANNELS // len(channels))
    return (
        check_integer("fill", first, 0, 255),
        check_integer("fill", second, 0, 255),
        check_integer("fill", third, 0, 255),
    )


def _channel_values(name: str, value: float | Sequence[float]) -> tuple[float, ...]:
    """One number for all channels, or one a channel.  NumPy arrays and tensors are welcome."""
    if isinstance(value, str):
        raise ValueError(f"{name} must be numbers, not {value!r}")
    try:
        values = tuple(value)  # type: ignore[arg-type]
    except TypeError:
        values = (value,)  # type: ignore[assignment]
    if len(values) not in (1, MAX_CHANNELS):
        raise ValueError(f"{name} must have one value or {MAX_CHANNELS}, not {len(values)}")
    return tuple(_number(name, item) for item in values)


def _all_channels(values: tuple[float, ...]) -> tuple[float, ...]:
    return values * (MAX_CHANNELS // len(values))


def _filter_name(value: Interpolation) -> str:
    """A name, Pillow's number, or an enum whose value is one of them."""
    plain = getattr(value, "value", value)
    if isinstance(plain, str) and plain.lower() in FILTERS:
        return plain.lower()
    if isinstance(plain, int) and not isinstance(plain, bool):
        for name, number in FILTERS.items():
            if number == plain:
                return name
    raise ValueError(f"interpolation must be one of {list(FILTERS)}, not {value!r}")
