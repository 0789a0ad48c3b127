"""Penstock, reading class folders or a tar."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.common import IN_PLACE, MEAN, SIZE, STD, Batch, Job, Loader, Spec

VARIANTS = {
    "penstock-folder": Spec("Penstock, folder", IN_PLACE, "folder", "penstock"),
    "penstock-tar": Spec("Penstock, tar", IN_PLACE, "all.tar", "penstock"),
    # What a first epoch is like, in every epoch.
    "penstock-no-index": Spec("Penstock, folder, no index", IN_PLACE, "folder", "penstock"),
}


def load(job: Job) -> Loader:
    import numpy as np

    import penstock

    def open_loader() -> Callable[[int], Iterator[Batch]]:
        transforms = [
            penstock.RandomResizedCrop(SIZE),
            penstock.RandomHorizontalFlip(),
            penstock.ToTensor(),
            penstock.Normalize(MEAN, STD),
        ]
        loader = penstock.Loader(
            job.view / VARIANTS[job.variant].reads,
            transforms,
            batch_size=job.batch_size,
            shuffle=True,
            seed=job.seed,
            num_workers=job.threads,
            index=job.variant != "penstock-no-index",
        )
        # Iterating again is the next epoch.
        return lambda _epoch: (batch["image"] for batch in loader)

    return Loader(
        version=penstock.__version__,
        settings={
            "num_workers": job.threads,
            "shuffle": True,
            "exact": True,
            "index": job.variant != "penstock-no-index",
        },
        open=open_loader,
        to_numpy=np.from_dlpack,
        rows=lambda batch: batch.shape[0],
    )
