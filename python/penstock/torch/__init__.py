"""For PyTorch: the loader with a DataLoader's face.

    from penstock.torch import DataLoader

    loader = DataLoader("train/", batch_size=64, shuffle=True, num_workers=4, transform=[...])
    for images, labels in loader:
        ...

Tensors are the loader's own memory, not copies of it.
"""

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from torch import Tensor, distributed
from torch.utils.dlpack import from_dlpack

from penstock._core import Batch, Dataset
from penstock.loader import Loader, Ops, Options, Path


class DataLoader:
    """Yields (images, labels).  Keywords are those of `penstock.Loader`.

    rank and world_size are taken from torch.distributed when it is initialised and they are
    not given.  batch_size is of this rank, as everywhere in PyTorch.
    """

    def __init__(
        self,
        path: Path | Dataset,
        batch_size: int = 64,
        shuffle: bool = False,
        num_workers: int | Literal["auto"] = "auto",
        seed: int = 0,
        transform: Ops = (),
        *,
        rank: int | None = None,
        world_size: int | None = None,
        **options: Unpack[Options],
    ) -> None:
        if options.get("tail") == "pad":
            raise ValueError("tail='pad' marks repeats in a mask: use penstock.Loader to see it")
        rank, world_size = _place(rank, world_size)
        self.loader = Loader(
            path,
            transform,
            batch_size,
            shuffle,
            seed,
            num_workers,
            rank=rank,
            world_size=world_size,
            **options,
        )

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        # Not a generator: the epoch begins with iter(), as it does for the loader itself.
        return map(tensors, self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def dataset(self) -> Dataset:
        return self.loader.dataset

    def state_dict(self) -> dict[str, Any]:
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loader.load_state_dict(state)

    def set_epoch(self, epoch: int) -> None:
        self.loader.set_epoch(epoch)

    def stats(self) -> dict[str, int]:
        return self.loader.stats()

    def close(self) -> None:
        self.loader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def tensors(batch: Batch) -> tuple[Tensor, Tensor]:
    """(images, labels) of a batch, over its own memory."""
    return from_dlpack(batch["image"]), from_dlpack(batch["label"])


def _place(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """This process's rank and their number: as given, else as torch.distributed has them."""
    if (rank is None) != (world_size is None):
        raise ValueError("rank and world_size are given together or not at all")
    if rank is not None and world_size is not None:
        return rank, world_size
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1
