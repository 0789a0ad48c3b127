"""WebDataset: tar shards, Pillow, workers of PyTorch's DataLoader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import version

from bench.common import IN_PLACE, MEAN, RATIO, SCALE, SIZE, STD, Batch, Job, Loader, Spec

VARIANTS = {
    "webdataset": Spec("WebDataset, PIL", IN_PLACE, "shards", "main"),
}

SHUFFLE_BUFFER = 1000


def load(job: Job) -> Loader:
    import webdataset as wds

    from bench import torchvision_shim  # noqa: F401  (torchvision does not import without it)
    from torchvision import transforms  # isort: skip

    def open_loader() -> Callable[[int], Iterator[Batch]]:
        transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(SIZE, scale=SCALE, ratio=RATIO),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(MEAN, STD, inplace=True),
            ]
        )
        shards = sorted(str(path) for path in (job.view / "shards").glob("*.tar"))
        dataset = (
            wds.WebDataset(shards, shardshuffle=len(shards), seed=job.seed)
            .shuffle(SHUFFLE_BUFFER)
            .decode("pilrgb")
            .to_tuple("jpg")
            .map_tuple(transform)
            .batched(job.batch_size)  # in the workers, as its documentation advises
        )
        loader = wds.WebLoader(
            dataset, batch_size=None, num_workers=job.threads, persistent_workers=True
        )
        return lambda _epoch: (images for (images,) in loader)

    settings = {
        "num_workers": job.threads,
        "persistent_workers": True,
        "shuffle_buffer": SHUFFLE_BUFFER,
        "shards": len(list((job.view / "shards").glob("*.tar"))),
        "batching": "in the workers",
    }
    return Loader(
        version("webdataset"), settings, open_loader, to_numpy=lambda batch: batch.numpy()
    )
