"""How the global generators of Python, NumPy and torch are seeded while a dataset runs.

    ItemSeeding   every item from (seed, epoch, sample, occurrence): the law holds for
                  datasets that draw from global generators, whatever the worker count
    TorchSeeding  base_seed + worker id once a worker, as torch does (batches go to workers
                  in turn, so that the same seeds meet the same items)
    NoSeeding     as forked
"""

from dataclasses import dataclass


class Seeding:
    """What a worker does with generators.  The parent's own are left as they were."""

    in_turn = False  # whether batch i must go to worker i % n


@dataclass(frozen=True)
class NoSeeding(Seeding):
    """Generators stay as they are: num_workers=0 of torch."""


@dataclass(frozen=True)
class TorchSeeding(Seeding):
    """torch's own: Python's and torch's generators get base_seed + worker id, NumPy's a state
    derived from both.  Draw base_seed as torch does, when an epoch's workers are made."""

    base_seed: int
    in_turn = True


@dataclass(frozen=True)
class ItemSeeding(Seeding):
    """Every item's own seed, from (seed, epoch, sample, occurrence)."""

    seed: int = 0
