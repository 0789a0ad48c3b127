"""Items that are alike, so that a batch of them follows from batches of some each: see opening.py.

default_collate goes by the first item: what it makes of numbers of several kinds, or of text beside
lists, depends on which comes first.  It may have been taught other ways.  And items that stand in
the same memory, as of a dataset that fills one buffer or one dict again and again, are all what the
last one was when they are collated.  None of that is seen in a batch afterwards, so it is looked at
here, where the items are.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

_COLLATE = "torch.utils.data._utils.collate"
_SIMPLE = (int, float, bool, str, bytes)


class UnlikeError(ValueError):
    """Batches of some items do not say what a batch of all is."""


def kind_of_all(items: list[Any], collate: Callable[[Any], Any] | None) -> Any:
    """What each of them is, as something that can be compared and pickled.  Raises UnlikeError."""
    if collate is not None and not _is_untaught(collate):
        raise UnlikeError("default_collate was taught other ways")
    kinds = [_kind(item) for item in items]
    if not kinds or any(kind != kinds[0] for kind in kinds):
        raise UnlikeError("items are of different kinds")
    seen: set[int] = set()
    for item in items:
        places = set(_places(item))
        if not seen.isdisjoint(places):
            raise UnlikeError("items stand in the same memory")
        seen |= places
    return kinds[0]


def _is_untaught(collate: Callable[[Any], Any]) -> bool:
    """Whether it is torch's default_collate, with torch's own ways."""
    module = sys.modules.get(_COLLATE)
    if module is None or collate is not module.default_collate:
        return False
    ways = module.default_collate_fn_map.values()
    return all(way.__module__ == _COLLATE or hasattr(way, "is_penstocks") for way in ways)


def _kind(item: Any) -> Any:
    kind = type(item)
    if kind in _SIMPLE:
        return kind.__name__
    if kind is np.ndarray or isinstance(item, np.generic):
        if item.dtype.kind in "biuf" and item.dtype.isnative:
            return kind.__name__, item.dtype.str
    elif kind is tuple or kind is list:
        return kind.__name__, *map(_kind, item)
    elif kind is dict and all(type(key) in _SIMPLE for key in item):
        return "dict", *((key, _kind(value)) for key, value in item.items())
    elif (torch := sys.modules.get("torch")) is not None and kind is torch.Tensor:
        is_plain = item.layout is torch.strided and item.device.type == "cpu"
        if is_plain and not (item.requires_grad or item.is_quantized or item.is_nested):
            return "Tensor", str(item.dtype)
    raise UnlikeError(f"nobody knows about items with {kind.__name__} in them")


def _places(item: Any) -> Iterator[int]:
    """Where things are that may change: all of them are alive, so no two are in one place."""
    if isinstance(item, np.ndarray):
        if item.nbytes:
            yield item.__array_interface__["data"][0]
    elif isinstance(item, dict | tuple | list):
        if not isinstance(item, tuple):
            yield id(item)
        for inner in item.values() if isinstance(item, dict) else item:
            yield from _places(inner)
    elif (data_ptr := getattr(item, "data_ptr", None)) is not None and (place := data_ptr()):
        yield place
