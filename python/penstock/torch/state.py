"""Where a loader stands, in a form that can be saved, and how to get there again.

A position is (epoch, batches received).  What else a state holds depends on who orders:

    own order    the seed and the settings that the order is a function of: under 1 KiB
    sampler      where its generators stood when the epoch began ("marks"): to continue, the
                 sampler is asked for the epoch again and what was received is passed over.
                 That is right for any sampler whose order follows from its generators, its
                 own state_dict() and its epoch, also a second and a third time.

A state is what json.dumps takes, unless a sampler's own state_dict() is not.
"""

import base64
import random
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from penstock.errors import StateError
from penstock.torch.order import chain

FORMAT = 1
DRAWING = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
SILENT = (BatchSampler, SequentialSampler, DistributedSampler)


@dataclass
class Progress:
    """One iteration, as far as it has come.  It does not keep the iteration alive."""

    epoch: int
    batches: int = 0  # received, those before a resume included
    is_over: bool = False
    base_seed: int | None = None
    marks: dict[str, Any] | None = None
    copies: Callable[[], Any] | None = None  # of an IterableDataset: where they stand


# Marks: where everything stands that a sampler draws from


def mark_own(loader: torch.utils.data.DataLoader) -> dict[str, Any]:
    """Of the generators and samplers that belong to the loader."""
    samplers = chain(loader)
    return {
        "generators": [_pack(one.get_state()) for one in _generators(loader)],
        "samplers": [_sampler_state(one) for one in samplers],
        "epochs": [_sampler_epoch(one) for one in samplers],
    }


def mark(loader: torch.utils.data.DataLoader) -> dict[str, Any]:
    """Taken before an epoch, of whatever its samplers' order may follow from."""
    samplers, marks = chain(loader), mark_own(loader)
    if any(_draws_globally(one) for one in samplers):
        marks["torch"] = _pack(torch.get_rng_state())
    if any(type(one) not in (*DRAWING, *SILENT) for one in samplers):
        version, numbers, gauss = random.getstate()
        marks["random"] = [version, _pack(np.array(numbers, np.uint32)), gauss]
        marks["numpy"] = _pack_numpy(np.random.get_state())
    return marks


@contextmanager
def marks_restored(loader: torch.utils.data.DataLoader, marks: dict[str, Any]) -> Iterator[None]:
    """Inside, everything stands at the marks.  Afterwards the global generators stand where
    they did before, as if nothing had been drawn; those of the loader and its samplers
    stay where the inside leaves them."""
    outside = torch.get_rng_state(), random.getstate(), np.random.get_state()
    restore_own(loader, marks)
    if "torch" in marks:
        torch.set_rng_state(_unpack(marks["torch"]))
    if "random" in marks:
        version, numbers, gauss = marks["random"]
        random.setstate((version, tuple(_unpack(numbers).numpy().view(np.uint32).tolist()), gauss))
        np.random.set_state(_unpack_numpy(marks["numpy"]))
    try:
        yield
    finally:
        torch.set_rng_state(outside[0])
        random.setstate(outside[1])
        np.random.set_state(outside[2])


def restore_own(loader: torch.utils.data.DataLoader, marks: dict[str, Any]) -> None:
    """Put the generators and samplers that belong to the loader where they were."""
    generators, samplers = _generators(loader), chain(loader)
    if len(generators) != len(marks["generators"]) or len(samplers) != len(marks["samplers"]):
        raise StateError("the state was saved with other samplers or generators")
    for generator, packed in zip(generators, marks["generators"], strict=True):
        generator.set_state(_unpack(packed))
    for sampler, saved in zip(samplers, marks["samplers"], strict=True):
        if saved is not None:
            sampler.load_state_dict(saved)
    for sampler, epoch in zip(samplers, marks["epochs"], strict=True):
        if epoch is not None:
            sampler.set_epoch(epoch)


def _generators(loader: torch.utils.data.DataLoader) -> list[torch.Generator]:
    """Those that were given, each once."""
    owners = [loader, *chain(loader)]
    given = [getattr(one, "generator", None) for one in owners]
    unique = {id(one): one for one in given if isinstance(one, torch.Generator)}
    return list(unique.values())


def _draws_globally(sampler: Any) -> bool:
    if type(sampler) in SILENT:
        return False
    return type(sampler) not in DRAWING or sampler.generator is None


def _sampler_state(sampler: Any) -> Any:
    is_stateful = hasattr(sampler, "state_dict") and hasattr(sampler, "load_state_dict")
    return sampler.state_dict() if is_stateful else None


def _sampler_epoch(sampler: Any) -> int | None:
    epoch = getattr(sampler, "epoch", None)
    return epoch if isinstance(epoch, int) and hasattr(sampler, "set_epoch") else None


def _pack(numbers: torch.Tensor | np.ndarray) -> str:
    return base64.b85encode(zlib.compress(np.asarray(numbers).tobytes())).decode()


def _unpack(text: str) -> torch.Tensor:
    try:
        data = bytearray(zlib.decompress(base64.b85decode(text)))
    except (ValueError, TypeError, zlib.error) as error:
        raise StateError(f"a generator's state is damaged: {error}") from None
    return torch.frombuffer(data, dtype=torch.uint8)


def _pack_numpy(state: Any) -> list[Any]:
    name, key, position, has_gauss, gauss = state
    return [name, _pack(key), int(position), int(has_gauss), float(gauss)]


def _unpack_numpy(packed: list[Any]) -> tuple[Any, ...]:
    name, key, position, has_gauss, gauss = packed
    return name, _unpack(key).numpy().view(np.uint32), position, has_gauss, gauss


# Comparing


def check(saved: dict[str, Any], here: dict[str, Any], is_seed_open: bool) -> None:
    """Refuse to continue another stream, and say what differs.

    is_seed_open  the seed is not given here, so the state's is taken
    """
    if not isinstance(saved, dict) or saved.get("penstock") != FORMAT or "batch" not in saved:
        raise StateError("this is not the state of a DataLoader")
    for name in ("epoch", "batch", "bad"):
        number = saved.get(name)
        if type(number) is not int or not 0 <= number < 2**63:
            raise StateError(f"the state's {name} must be a whole number from 0 on, not {number!r}")
    if here["order"] == "sampler" and not isinstance(saved.get("marks"), dict):
        raise StateError("the state does not say where its sampler stood")
    for name, value in here.items():
        if name == "seed" and is_seed_open:
            continue
        if name not in saved or saved[name] != value:
            raise StateError(
                f"the state was saved with another {name.replace('_', ' ')}: "
                f"{saved.get(name)!r}, and here it is {value!r}"
            )
