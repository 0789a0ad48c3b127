"""What every operation is, and how its arguments are checked.

Each check returns the value in the form that is stored, or names the argument at fault.
"""

import math
from collections.abc import Sequence
from typing import Any

Setting = bool | int | float | Sequence[int] | Sequence[float]
# What the extension reads: the operation's name, and the members of its struct in op.h.
Spec = tuple[str, dict[str, Setting]]

Size = int | Sequence[int]
Fill = float | Sequence[float] | None
Interpolation = int | str | Any  # Any: torchvision's InterpolationMode, known by its .value

FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}
WARP_FILTERS = ("nearest", "bilinear", "bicubic")
PADDING_MODES = {"constant": 0, "edge": 1, "reflect": 2, "symmetric": 3}
MAX_SIDE = 16384  # as the C library's, as are the other limits
MAX_CHANNELS = 3
MAX_DEGREES = 36000.0


class Transform:
    """What every operation here is."""

    def _spec(self) -> Spec:
        raise NotImplementedError

    def _specs(self) -> list[Spec]:
        """The operation, and behind a group its members."""
        return [self._spec()]

    def _set(self, **values: object) -> None:
        """Replace arguments by their checked form: how a frozen dataclass is told."""
        for name, value in values.items():
            object.__setattr__(self, name, value)


def check_integer(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    number = int(value.__index__())
    if not low <= number <= high:
        raise ValueError(f"{name} must be within {low}..{high}, not {number}")
    return number


def check_number(name: str, value: object, low: float = -math.inf, high: float = math.inf) -> float:
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise ValueError(f"{name} must be a number, not {value!r}")
    number = float(value.__float__())
    if not (math.isfinite(number) and low <= number <= high):
        raise ValueError(f"{name} must be a number within [{low}, {high}], not {number}")
    return number


def check_one_of(name: str, value: object, choices: tuple[int, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {choices}, not {value!r}")


def check_sides(name: str, size: Size) -> tuple[int, int]:
    """One number is a square; a pair is (h, w)."""
    sides = tuple(size) if isinstance(size, Sequence) else (size,)
    if isinstance(size, str) or len(sides) not in (1, 2):
        raise ValueError(f"{name} must be a whole number or (h, w), not {size!r}")
    h = check_integer(name, sides[0], 1, MAX_SIDE)
    return h, check_integer(name, sides[-1], 1, MAX_SIDE)


def check_range(
    name: str,
    value: Sequence[float],
    low: float = -math.inf,
    high: float = math.inf,
    is_open: bool = False,
) -> tuple[float, float]:
    """A pair (min, max) within [low, high]; `is_open` leaves out low itself."""
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        raise ValueError(f"{name} must be (min, max), not {value!r}")
    least, most = (check_number(name, item, low, high) for item in value)
    if least > most or (is_open and least <= low):
        raise ValueError(f"{name} must be (min, max) with {low} < min <= max, not {value!r}")
    return least, most


def check_factors(name: str, value: float | Sequence[float]) -> tuple[float, float]:
    if isinstance(value, Sequence):
        return check_range(name, value, low=0.0)
    spread = check_number(name, value, low=0.0)
    return max(0.0, 1.0 - spread), 1.0 + spread


def check_hues(value: float | Sequence[float]) -> tuple[float, float]:
    if isinstance(value, Sequence):
        return check_range("hue", value, low=-0.5, high=0.5)
    spread = check_number("hue", value, 0.0, 0.5)
    return -spread, spread


def check_padding(value: int | Sequence[int]) -> tuple[int, int, int, int]:
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


def check_fill(value: int | Sequence[int]) -> tuple[int, int, int]:
    channels = tuple(value) if isinstance(value, Sequence) else (value,)
    if isinstance(value, str) or len(channels) not in (1, MAX_CHANNELS):
        raise ValueError(f"fill must be one whole number or three, not {value!r}")
    first, second, third = channels * (MAX_CHANNELS // len(channels))
    return (
        check_integer("fill", first, 0, 255),
        check_integer("fill", second, 0, 255),
        check_integer("fill", third, 0, 255),
    )


def channel_values(name: str, value: float | Sequence[float]) -> tuple[float, ...]:
    """One number for all channels, or one a channel.  NumPy arrays and tensors are welcome."""
    if isinstance(value, str):
        raise ValueError(f"{name} must be numbers, not {value!r}")
    try:
        values = tuple(value)  # type: ignore[arg-type]
    except TypeError:
        values = (value,)  # type: ignore[assignment]
    if len(values) not in (1, MAX_CHANNELS):
        raise ValueError(f"{name} must have one value or {MAX_CHANNELS}, not {len(values)}")
    return tuple(check_number(name, item) for item in values)


def all_channels(values: tuple[float, ...]) -> tuple[float, ...]:
    return values * (MAX_CHANNELS // len(values))


def filter_name(value: Interpolation) -> str:
    """A name, Pillow's number, or an enum whose value is one of them."""
    plain = getattr(value, "value", value)
    if isinstance(plain, str) and plain.lower() in FILTERS:
        return plain.lower()
    if isinstance(plain, int) and not isinstance(plain, bool):
        for name, number in FILTERS.items():
            if number == plain:
                return name
    raise ValueError(f"interpolation must be one of {list(FILTERS)}, not {value!r}")


def warp_filter_name(value: Interpolation) -> str:
    name = filter_name(value)
    if name not in WARP_FILTERS:
        raise ValueError(f"interpolation must be one of {list(WARP_FILTERS)} here, not {name!r}")
    return name


def check_padding_mode(mode: object) -> None:
    if mode not in PADDING_MODES:
        raise ValueError(f"padding_mode must be one of {list(PADDING_MODES)}, not {mode!r}")


def check_antialias(antialias: bool | None) -> None:
    if antialias is False:
        raise ValueError("antialias=False is not offered: Pillow always antialiases, and so do we")


def check_color(value: Fill) -> tuple[int, int, int]:
    """A fill as the warps take it: None is black, fractions are cut off."""
    channels = tuple(value) if isinstance(value, Sequence) else (0 if value is None else value,)
    if isinstance(value, str) or len(channels) not in (1, MAX_CHANNELS):
        raise ValueError(f"fill must be one number or three, not {value!r}")
    first, second, third = channels * (MAX_CHANNELS // len(channels))
    return (
        int(check_number("fill", first, 0, 255)),
        int(check_number("fill", second, 0, 255)),
        int(check_number("fill", third, 0, 255)),
    )


def check_degrees(name: str, value: float | Sequence[float]) -> tuple[float, float]:
    """One number x is the range [-x, x]."""
    if isinstance(value, Sequence):
        return check_range(name, value, low=-MAX_DEGREES, high=MAX_DEGREES)
    spread = check_number(name, value, 0.0, MAX_DEGREES)
    return -spread, spread


def check_point(name: str, value: Sequence[float]) -> tuple[float, float]:
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        raise ValueError(f"{name} must be (x, y), not {value!r}")
    return check_number(name, value[0], -1e6, 1e6), check_number(name, value[1], -1e6, 1e6)
