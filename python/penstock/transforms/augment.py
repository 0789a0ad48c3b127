"""Operations that augment: warps, tones, blur, and AutoAugment with its relatives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from penstock.transforms.checks import (
    FILTERS,
    MAX_DEGREES,
    PADDING_MODES,
    Fill,
    Interpolation,
    Setting,
    Spec,
    Transform,
    check_color,
    check_degrees,
    check_fill,
    check_integer,
    check_number,
    check_padding,
    check_padding_mode,
    check_point,
    check_range,
    filter_name,
    warp_filter_name,
)

POLICIES = {"imagenet": 0, "cifar10": 1, "svhn": 2}
MAX_KERNEL = 511  # as the C library's, as are the other limits
MAX_BINS = 1024
MAX_STEPS = 32
MAX_CHAINS = 8


@dataclass(frozen=True)
class Pad(Transform):
    """Add pixels around the image: all sides, (sides, top and bottom), or each (left, top, right,
    bottom)."""

    padding: int | Sequence[int]
    fill: int | Sequence[int] = 0
    padding_mode: Literal["constant", "edge", "reflect", "symmetric"] = "constant"

    def __post_init__(self) -> None:
        check_padding_mode(self.padding_mode)
        self._set(padding=check_padding(self.padding), fill=check_fill(self.fill))

    def _spec(self) -> Spec:
        return "Pad", {
            "pad": check_padding(self.padding),
            "padding_mode": PADDING_MODES[self.padding_mode],
            "fill": check_fill(self.fill),
        }


# Tones


@dataclass(frozen=True)
class _ByChance(Transform):
    """What happens with probability p."""

    p: float = 0.5

    def __post_init__(self) -> None:
        self._set(p=check_number("p", self.p, 0.0, 1.0))

    def _spec(self) -> Spec:
        return type(self).__name__, {"p": self.p}


@dataclass(frozen=True)
class RandomGrayscale(_ByChance):
    """With probability p, keep the luminance only; the number of channels stays."""

    p: float = 0.1


@dataclass(frozen=True)
class RandomInvert(_ByChance):
    """With probability p, turn the image into its negative."""


@dataclass(frozen=True)
class RandomAutocontrast(_ByChance):
    """With probability p, stretch each channel to the whole range."""


@dataclass(frozen=True)
class RandomEqualize(_ByChance):
    """With probability p, flatten each channel's histogram."""


@dataclass(frozen=True)
class RandomPosterize(Transform):
    """With probability p, keep only the highest bits of each value."""

    bits: int
    p: float = 0.5

    def __post_init__(self) -> None:
        self._set(
            bits=check_integer("bits", self.bits, 0, 8), p=check_number("p", self.p, 0.0, 1.0)
        )

    def _spec(self) -> Spec:
        return "RandomPosterize", {"bits": self.bits, "p": self.p}


@dataclass(frozen=True)
class RandomSolarize(Transform):
    """With probability p, invert the values that are not below the threshold."""

    threshold: float
    p: float = 0.5

    def __post_init__(self) -> None:
        self._set(
            threshold=check_number("threshold", self.threshold, -1e6, 1e6),
            p=check_number("p", self.p, 0.0, 1.0),
        )

    def _spec(self) -> Spec:
        return "RandomSolarize", {"threshold": self.threshold, "p": self.p}


@dataclass(frozen=True)
class RandomAdjustSharpness(Transform):
    """With probability p, blur (factor 0) or sharpen (above 1)."""

    sharpness_factor: float
    p: float = 0.5

    def __post_init__(self) -> None:
        self._set(
            sharpness_factor=check_number("sharpness_factor", self.sharpness_factor, 0.0, 1e5),
            p=check_number("p", self.p, 0.0, 1.0),
        )

    def _spec(self) -> Spec:
        return "RandomAdjustSharpness", {"factor": self.sharpness_factor, "p": self.p}


# Warps and blur


def _sampling(interpolation: Interpolation, fill: Fill) -> dict[str, Setting]:
    return {"filter": FILTERS[warp_filter_name(interpolation)], "fill": check_color(fill)}


def _center(center: Sequence[float] | None) -> dict[str, Setting]:
    return {
        "has_center": center is not None,
        "center": (0.0, 0.0) if center is None else check_point("center", center),
    }


@dataclass(frozen=True)
class RandomRotation(Transform):
    """Rotate by an angle from [-degrees, degrees], or from a range, counter-clockwise.

    `expand=True` grows the image to hold all of it; a later crop or Resize fixes the size.
    """

    degrees: float | Sequence[float]
    interpolation: Interpolation = "nearest"
    expand: bool = False
    center: Sequence[float] | None = None
    fill: Fill = 0

    def __post_init__(self) -> None:
        self._set(
            degrees=check_degrees("degrees", self.degrees),
            interpolation=warp_filter_name(self.interpolation),
            expand=bool(self.expand),
            center=None if self.center is None else check_point("center", self.center),
            fill=check_color(self.fill),
        )

    def _spec(self) -> Spec:
        return "RandomRotation", {
            "degrees": check_degrees("degrees", self.degrees),
            "expand": self.expand,
            **_center(self.center),
            **_sampling(self.interpolation, self.fill),
        }


@dataclass(frozen=True)
class RandomAffine(Transform):
    """Rotate, shift (by up to a share of the sides), scale and shear (degrees) around the centre."""

    degrees: float | Sequence[float]
    translate: Sequence[float] | None = None
    scale: Sequence[float] | None = None
    shear: float | Sequence[float] | None = None
    interpolation: Interpolation = "nearest"
    fill: Fill = 0
    center: Sequence[float] | None = None

    def __post_init__(self) -> None:
        self._set(
            degrees=check_degrees("degrees", self.degrees),
            translate=None if self.translate is None else self._shares(),
            scale=None if self.scale is None else check_range("scale", self.scale, 1e-3, 1e3),
            shear=None if self.shear is None else self._shears(),
            interpolation=warp_filter_name(self.interpolation),
            fill=check_color(self.fill),
            center=None if self.center is None else check_point("center", self.center),
        )

    def _shares(self) -> tuple[float, float]:
        shares = (0.0, 0.0) if self.translate is None else check_point("translate", self.translate)
        return check_number("translate", shares[0], 0, 1), check_number(
            "translate", shares[1], 0, 1
        )

    def _shears(self) -> tuple[float, float, float, float]:
        """A number or a pair is for x; four numbers are a range for x and one for y."""
        shear: float | Sequence[float] = 0.0 if self.shear is None else self.shear
        if isinstance(shear, Sequence) and not isinstance(shear, str) and len(shear) == 4:
            x = check_range("shear", shear[:2], -MAX_DEGREES, MAX_DEGREES)
            return *x, *check_range("shear", shear[2:], -MAX_DEGREES, MAX_DEGREES)
        return *check_degrees("shear", shear), 0.0, 0.0

    def _spec(self) -> Spec:
        return "RandomAffine", {
            "degrees": check_degrees("degrees", self.degrees),
            "translate": self._shares(),
            "scale": (1.0, 1.0) if self.scale is None else self.scale,
            "shear": self._shears(),
            **_center(self.center),
            **_sampling(self.interpolation, self.fill),
        }


@dataclass(frozen=True)
class RandomPerspective(Transform):
    """With probability p, move the corners inwards by up to `distortion_scale` of half a side."""

    distortion_scale: float = 0.5
    p: float = 0.5
    interpolation: Interpolation = "bilinear"
    fill: Fill = 0

    def __post_init__(self) -> None:
        self._set(
            distortion_scale=check_number("distortion_scale", self.distortion_scale, 0.0, 1.0),
            p=check_number("p", self.p, 0.0, 1.0),
            interpolation=warp_filter_name(self.interpolation),
            fill=check_color(self.fill),
        )

    def _spec(self) -> Spec:
        return "RandomPerspective", {
            "distortion_scale": self.distortion_scale,
            "p": self.p,
            **_sampling(self.interpolation, self.fill),
        }


@dataclass(frozen=True)
class GaussianBlur(Transform):
    """Blur with a kernel of an odd size, one number or (width, height), and a sigma or a range."""

    kernel_size: int | Sequence[int]
    sigma: float | Sequence[float] = (0.1, 2.0)

    def __post_init__(self) -> None:
        self._set(kernel_size=self._sides(), sigma=self._sigmas())

    def _sides(self) -> tuple[int, int]:
        size = self.kernel_size
        sides = tuple(size) if isinstance(size, Sequence) else (size,)
        if isinstance(size, str) or len(sides) not in (1, 2):
            raise ValueError(f"kernel_size must be one whole number or two, not {size!r}")
        for side in sides:
            if check_integer("kernel_size", side, 1, MAX_KERNEL) % 2 == 0:
                raise ValueError(f"kernel_size must be odd, not {side}")
        return int(sides[0]), int(sides[-1])

    def _sigmas(self) -> tuple[float, float]:
        pair = self.sigma if isinstance(self.sigma, Sequence) else (self.sigma, self.sigma)
        least, most = check_range("sigma", pair, low=0.0, high=1e4, is_open=True)
        return least, most

    def _spec(self) -> Spec:
        width, height = self._sides()
        return "GaussianBlur", {"kernel_w": width, "kernel_h": height, "sigma": self._sigmas()}


# AutoAugment and its relatives


@dataclass(frozen=True)
class AutoAugment(Transform):
    """A pair of primitives from a policy that was learned on ImageNet, CIFAR-10 or SVHN."""

    policy: Literal["imagenet", "cifar10", "svhn"] | Any = "imagenet"  # Any: torchvision's enum
    interpolation: Interpolation = "nearest"
    fill: Fill = None

    def __post_init__(self) -> None:
        policy = getattr(self.policy, "value", self.policy)
        if policy not in POLICIES:
            raise ValueError(f"policy must be one of {list(POLICIES)}, not {self.policy!r}")
        self._set(
            policy=policy,
            interpolation=warp_filter_name(self.interpolation),
            fill=check_color(self.fill),
        )

    def _spec(self) -> Spec:
        return "AutoAugment", {
            "policy": POLICIES[self.policy],
            **_sampling(self.interpolation, self.fill),
        }


@dataclass(frozen=True)
class RandAugment(Transform):
    """`num_ops` primitives in turn, chosen from 14, all of one magnitude."""

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: Interpolation = "nearest"
    fill: Fill = None

    def __post_init__(self) -> None:
        bins = check_integer("num_magnitude_bins", self.num_magnitude_bins, 2, MAX_BINS)
        self._set(
            num_ops=check_integer("num_ops", self.num_ops, 1, MAX_STEPS),
            magnitude=check_integer("magnitude", self.magnitude, 0, bins - 1),
            num_magnitude_bins=bins,
            interpolation=warp_filter_name(self.interpolation),
            fill=check_color(self.fill),
        )

    def _spec(self) -> Spec:
        return "RandAugment", {
            "num_ops": self.num_ops,
            "magnitude": self.magnitude,
            "num_magnitude_bins": self.num_magnitude_bins,
            **_sampling(self.interpolation, self.fill),
        }


@dataclass(frozen=True)
class TrivialAugmentWide(Transform):
    """One primitive of 14, of any magnitude."""

    num_magnitude_bins: int = 31
    interpolation: Interpolation = "nearest"
    fill: Fill = None

    def __post_init__(self) -> None:
        self._set(
            num_magnitude_bins=check_integer(
                "num_magnitude_bins", self.num_magnitude_bins, 2, MAX_BINS
            ),
            interpolation=warp_filter_name(self.interpolation),
            fill=check_color(self.fill),
        )

    def _spec(self) -> Spec:
        return "TrivialAugmentWide", {
            "num_magnitude_bins": self.num_magnitude_bins,
            **_sampling(self.interpolation, self.fill),
        }


@dataclass(frozen=True)
class AugMix(Transform):
    """The image, mixed with `mixture_width` versions of it that chains of primitives made.

    torchvision makes a tensor of the image for this, and so its pixels are those of its tensor
    functions: interpolation is nearest or bilinear, and a fill is not offered.
    """

    severity: int = 3
    mixture_width: int = 3
    chain_depth: int = -1  # not positive: 1 to 3, drawn for each chain
    alpha: float = 1.0
    all_ops: bool = True
    interpolation: Interpolation = "bilinear"
    fill: Fill = None

    def __post_init__(self) -> None:
        if self.fill is not None:
            raise ValueError(f"fill must be None here, not {self.fill!r}")
        if filter_name(self.interpolation) not in ("nearest", "bilinear"):
            raise ValueError(
                f"interpolation must be nearest or bilinear here, not {self.interpolation!r}"
            )
        width = check_integer("mixture_width", self.mixture_width, 1, MAX_CHAINS)
        self._set(
            severity=check_integer("severity", self.severity, 1, 10),
            mixture_width=width,
            chain_depth=check_integer(
                "chain_depth", self.chain_depth, -(2**31), MAX_STEPS // width
            ),
            alpha=check_number("alpha", self.alpha, 0.01, 1e6),
            all_ops=bool(self.all_ops),
            interpolation=filter_name(self.interpolation),
        )

    def _spec(self) -> Spec:
        return "AugMix", {
            "severity": self.severity,
            "mixture_width": self.mixture_width,
            "chain_depth": self.chain_depth,
            "alpha": self.alpha,
            "all_ops": self.all_ops,
            **_sampling(self.interpolation, self.fill),
        }
