"""Geometry, colour and tensors: the operations nearly every training uses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from penstock.transforms.checks import (
    FILTERS,
    MAX_SIDE,
    PADDING_MODES,
    Interpolation,
    Setting,
    Size,
    Spec,
    Transform,
    all_channels,
    channel_values,
    check_antialias,
    check_factors,
    check_fill,
    check_hues,
    check_integer,
    check_number,
    check_one_of,
    check_padding,
    check_padding_mode,
    check_range,
    check_sides,
    filter_name,
)

SCALINGS = {"divide": 0, "multiply": 1, "none": 2}


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
        check_one_of("channels", channels, (1, 3))
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
            size = check_sides("size", self.size)
        else:
            size = check_integer("size", self.size, 1, MAX_SIDE)
        if self.max_size is not None:
            if not isinstance(size, int):
                raise ValueError("max_size is only for a size of one number")
            check_integer("max_size", self.max_size, 1, MAX_SIDE)
            if self.max_size <= size:
                raise ValueError(f"max_size must be greater than size, not {self.max_size}")
        check_antialias(self.antialias)
        self._set(size=size, interpolation=filter_name(self.interpolation))

    def _spec(self) -> Spec:
        h, w = (self.size, 0) if isinstance(self.size, int) else self.size
        return "Resize", {
            "h": h,
            "w": w,
            "max_size": self.max_size or 0,
            "filter": FILTERS[filter_name(self.interpolation)],
        }


@dataclass(frozen=True)
class CenterCrop(Transform):
    """Cut out the middle; where the image is smaller, it is padded with black."""

    size: Size

    def __post_init__(self) -> None:
        self._set(size=check_sides("size", self.size))

    def _spec(self) -> Spec:
        h, w = check_sides("size", self.size)
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
        check_padding_mode(self.padding_mode)
        self._set(
            size=check_sides("size", self.size),
            padding=None if self.padding is None else check_padding(self.padding),
            fill=check_fill(self.fill),
        )

    def _spec(self) -> Spec:
        h, w = check_sides("size", self.size)
        return "RandomCrop", {
            "h": h,
            "w": w,
            "pad": check_padding(0 if self.padding is None else self.padding),
            "pad_if_needed": bool(self.pad_if_needed),
            "padding_mode": PADDING_MODES[self.padding_mode],
            "fill": check_fill(self.fill),
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
        check_antialias(self.antialias)
        self._set(
            size=check_sides("size", self.size),
            scale=check_range("scale", self.scale, low=0.0, is_open=True),
            ratio=check_range("ratio", self.ratio, low=0.0, is_open=True),
            interpolation=filter_name(self.interpolation),
        )

    def _spec(self) -> Spec:
        h, w = check_sides("size", self.size)
        return "RandomResizedCrop", {
            "h": h,
            "w": w,
            "scale_min": self.scale[0],
            "scale_max": self.scale[1],
            "ratio_min": self.ratio[0],
            "ratio_max": self.ratio[1],
            "filter": FILTERS[filter_name(self.interpolation)],
        }


@dataclass(frozen=True)
class RandomHorizontalFlip(Transform):
    """Swap left and right with probability p."""

    p: float = 0.5

    def __post_init__(self) -> None:
        self._set(p=check_number("p", self.p, 0.0, 1.0))

    def _spec(self) -> Spec:
        return "RandomHorizontalFlip", {"p": self.p}


@dataclass(frozen=True)
class RandomVerticalFlip(Transform):
    """Swap top and bottom with probability p."""

    p: float = 0.5

    def __post_init__(self) -> None:
        self._set(p=check_number("p", self.p, 0.0, 1.0))

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
            "brightness": check_factors("brightness", self.brightness),
            "contrast": check_factors("contrast", self.contrast),
            "saturation": check_factors("saturation", self.saturation),
            "hue": check_hues(self.hue),
        }

    def _spec(self) -> Spec:
        return "ColorJitter", self._ranges()


@dataclass(frozen=True)
class Grayscale(Transform):
    """Keep the luminance only, in one channel or in three equal ones."""

    num_output_channels: int = 1

    def __post_init__(self) -> None:
        check_one_of("num_output_channels", self.num_output_channels, (1, 3))

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
        mean, std = channel_values("mean", self.mean), channel_values("std", self.std)
        if len(mean) != len(std):
            raise ValueError(f"std must have as many values as mean, {len(mean)}, not {len(std)}")
        if any(value == 0 for value in std):
            raise ValueError("std must not be 0")
        self._set(mean=mean, std=std)

    def _spec(self) -> Spec:
        return "Normalize", {
            "mean": all_channels(channel_values("mean", self.mean)),
            "std": all_channels(channel_values("std", self.std)),
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
            channel_values("value", self.value)
        self._set(
            p=check_number("p", self.p, 0.0, 1.0),
            scale=check_range("scale", self.scale, low=0.0, high=1.0),
            ratio=check_range("ratio", self.ratio, low=0.0, is_open=True),
        )

    def _spec(self) -> Spec:
        is_random = isinstance(self.value, str)
        value = (0.0,) if isinstance(self.value, str) else channel_values("value", self.value)
        return "RandomErasing", {
            "p": self.p,
            "scale_min": self.scale[0],
            "scale_max": self.scale[1],
            "ratio_min": self.ratio[0],
            "ratio_max": self.ratio[1],
            "fill_mode": int(is_random),
            "value": all_channels(value),
        }
