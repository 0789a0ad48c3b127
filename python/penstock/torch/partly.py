"""Items of a partly compiled dataset: the native part, then the rest in Python.

For worker processes.  Everything here can be pickled, and nothing is opened before the
first item is asked for.
"""

from typing import Any

from penstock.torch.compiled import Compiled


def run_item(
    compiled: Compiled, index: int, *, seed: int = 0, epoch: int = 0, occurrence: int = 0
) -> tuple[Any, Any]:
    """(sample, target) of item `index`: read the file, run the native part with the key (seed,
    epoch, index, occurrence), then the Python rest and target_transform.

    The rest draws from the global generators of random, NumPy and torch; who calls seeds them.
    """
    raise NotImplementedError


class PartlyCompiled:
    """A map-style dataset of run_item's items, in place of compiled.dataset.

    `seed` and `epoch` may be set between items; dataset[i] is then
    run_item(compiled, i, seed=seed, epoch=epoch), and item(i, occurrence) a repeat of it.
    """

    def __init__(self, compiled: Compiled, seed: int = 0, epoch: int = 0) -> None:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        raise NotImplementedError
