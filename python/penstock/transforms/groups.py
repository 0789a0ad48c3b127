"""Groups: operations that hold operations.

A group holds operations on images, and other groups; ToTensor and what follows it stand
behind.  Only `Compose`, where it is not inside another group, may hold those too: it is
then the same as writing its operations out.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from penstock.transforms.checks import Setting, Spec, Transform, check_number

MAX_MEMBERS = 32  # as the C library's
MAX_WEIGHT = 1e9


@dataclass(frozen=True)
class _Group(Transform):
    transforms: Sequence[Transform]

    def __post_init__(self) -> None:
        self._set(transforms=_members(self.transforms))

    def _settings(self) -> dict[str, Setting]:
        return {}

    def _spec(self) -> Spec:
        return type(self).__name__, {"n": len(self.transforms), **self._settings()}

    def _specs(self) -> list[Spec]:
        return [self._spec(), *(spec for member in self.transforms for spec in member._specs())]


@dataclass(frozen=True)
class Compose(_Group):
    """One after the other."""


@dataclass(frozen=True)
class RandomOrder(_Group):
    """All of them, in a random order."""

    def __post_init__(self) -> None:
        self._set(transforms=_some_members(self.transforms))


@dataclass(frozen=True)
class RandomApply(_Group):
    """With probability p all of them, else none."""

    p: float = 0.5

    def __post_init__(self) -> None:
        self._set(transforms=_some_members(self.transforms), p=check_number("p", self.p, 0.0, 1.0))

    def _settings(self) -> dict[str, Setting]:
        return {"p": self.p}


@dataclass(frozen=True)
class RandomChoice(_Group):
    """One of them, with equal chances or chances in proportion to p."""

    p: Sequence[float] | None = None

    def __post_init__(self) -> None:
        members = _some_members(self.transforms)
        self._set(transforms=members, p=None if self.p is None else self._weights(len(members)))

    def _weights(self, count: int) -> tuple[float, ...]:
        if self.p is None:
            return (1.0,) * count
        if isinstance(self.p, str) or not isinstance(self.p, Sequence) or len(self.p) != count:
            raise ValueError(f"p must have a weight for each of {count} transforms, not {self.p!r}")
        weights = tuple(check_number("p", weight, 0.0, MAX_WEIGHT) for weight in self.p)
        if not any(weights):
            raise ValueError("p must have a weight above 0")
        return weights

    def _settings(self) -> dict[str, Setting]:
        weights = self._weights(len(self.transforms))
        return {"weights": weights + (0.0,) * (MAX_MEMBERS - len(weights))}


def _members(transforms: Iterable[Transform]) -> tuple[Transform, ...]:
    try:
        members = tuple(transforms)
    except TypeError:
        raise ValueError(f"transforms must be a list, not {transforms!r}") from None
    for member in members:
        if not isinstance(member, Transform):
            raise ValueError(f"transforms must be penstock.transforms, not {member!r}")
    if len(members) > MAX_MEMBERS:
        raise ValueError(f"transforms must be at most {MAX_MEMBERS}, not {len(members)}")
    return members


def _some_members(transforms: Iterable[Transform]) -> tuple[Transform, ...]:
    members = _members(transforms)
    if not members:
        raise ValueError("transforms must not be empty")
    return members


def flattened(line: Iterable[Transform]) -> Iterator[Transform]:
    """The line with the operations of every outer Compose in its place."""
    for op in line:
        if isinstance(op, Compose):
            yield from flattened(op.transforms)
        else:
            yield op
