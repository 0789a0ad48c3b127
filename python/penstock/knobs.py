"""Settings of a loader that may change while it runs.

    loader.knobs.workers                        what it is now
    loader.knobs.workers = 4                    at once, and pinned: no policy turns it
    loader.knobs.set(workers=4, read_ahead=32)  several together, all or none
    loader.knobs.workers = "auto"               the policy's again
    loader.knobs.shares = (0.6, 0.3, 0, 0.1)    decode, augment, tokenize, transfer; None: free

No knob changes a byte of the stream, and none makes memory go above the budget.
"""

import operator
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

_SHARES = ("share_decode", "share_augment", "share_tokenize", "share_transfer")
Shares = tuple[float, float, float, float]


class Turned(Protocol):
    """What has knobs: the C library's loader, or worker processes."""

    def get_knobs(self) -> dict[str, int | float]: ...
    def set_knobs(self, values: dict[str, float], /) -> None: ...
    def release_knob(self, name: str, /) -> None: ...
    def knob_table(self) -> dict[str, tuple[str, str, float, float, bool, bool]]: ...


class Knob(NamedTuple):
    """A line of the table: what a knob is, and the range it has in this loader."""

    unit: str
    text: str
    min: float
    max: float
    is_integer: bool
    is_pinned: bool


class Knobs:
    """The knobs of one loader: attributes, or a mapping of names to numbers."""

    _loader: Turned

    def __init__(self, loader: Turned) -> None:
        object.__setattr__(self, "_loader", loader)

    def set(self, **values: Any) -> None:
        """Set several together, all or none.  "auto" gives a knob back to the policy."""
        numbers: dict[str, float] = {}
        released: list[str] = []
        if "shares" in values:
            shares = values.pop("shares")
            if isinstance(shares, str) and shares == "auto":
                released.extend(_SHARES)
            else:
                numbers.update(zip(_SHARES, _four(shares), strict=True))
        for name, value in values.items():
            if isinstance(value, str) and value == "auto":
                released.append(name)
            else:
                numbers[name] = _number(name, value)
        if unknown := (set(released) | set(numbers)) - set(self):
            raise ValueError(f"no knob {sorted(unknown)[0]!r}; there are {self._names()}")
        if numbers:
            self._loader.set_knobs(numbers)
        for name in released:
            self._loader.release_knob(name)

    def table(self) -> dict[str, Knob]:
        """What each knob is, its range here, and whether it is pinned."""
        return {name: Knob(*line) for name, line in self._loader.knob_table().items()}

    @property
    def shares(self) -> Shares | None:
        """Of the processor's time: decode, augment, tokenize, transfer; None: not enforced."""
        now = self._loader.get_knobs()
        shares = tuple(now.get(name, 0.0) for name in _SHARES)
        return None if not any(shares) else (shares[0], shares[1], shares[2], shares[3])

    def __getattr__(self, name: str) -> int | float:
        if name.startswith("_"):  # no knob; a copy is asked before it has a loader
            raise AttributeError(name)
        try:
            return self._loader.get_knobs()[name]
        except KeyError:
            raise AttributeError(f"no knob {name!r}; there are {self._names()}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._names():
            raise AttributeError(f"no knob {name!r}; there are {self._names()}")
        self.set(**{name: value})

    def __getitem__(self, name: str) -> int | float:
        return self._loader.get_knobs()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.set(**{name: value})

    def _names(self) -> list[str]:
        return [*self, "shares"] if _SHARES[0] in self.keys() else list(self)

    def keys(self) -> list[str]:
        return list(self._loader.get_knobs())

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def __repr__(self) -> str:
        table = self.table()
        parts = []
        for name, value in self._loader.get_knobs().items():
            if name not in _SHARES:
                parts.append(f"{name}={value}{' (pinned)' if table[name].is_pinned else ''}")
        if "shares" in self._names():
            parts.append(f"shares={self.shares}")
        return f"Knobs({', '.join(parts)})"


def _number(name: str, value: Any) -> float:
    if isinstance(value, float):
        return value
    try:
        if not isinstance(value, bool):
            return operator.index(value)  # NumPy's integers, too
    except TypeError:
        pass
    raise TypeError(f"{name} must be a number or 'auto', not {value!r}")


def _four(shares: Any) -> Shares:
    if shares is None:
        return (0.0, 0.0, 0.0, 0.0)
    try:
        decode, augment, tokenize, transfer = shares
    except (TypeError, ValueError):
        raise ValueError(
            f"shares must be four numbers (decode, augment, tokenize, transfer) that sum to 1, "
            f"or None, not {shares!r}"
        ) from None
    return (
        _number("shares", decode),
        _number("shares", augment),
        _number("shares", tokenize),
        _number("shares", transfer),
    )
