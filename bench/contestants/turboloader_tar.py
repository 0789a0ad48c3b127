"""TurboLoader: a tar decoded on the fly, or its TBL-RAW file of pixels decoded and shrunk beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from bench.common import IN_PLACE, PRE_DECODED, SIZE, Batch, Job, Loader, Spec

VARIANTS = {
    "turboloader": Spec("TurboLoader, tar", IN_PLACE, "all.tar", "main"),
    "turboloader-antialias": Spec("TurboLoader, tar, antialiased", IN_PLACE, "all.tar", "main"),
    "turboloader-raw": Spec("TurboLoader, TBL-RAW 256x256", PRE_DECODED, "turboloader.tbl", "main"),
}

STORED_SIZE = (
    256  # its documentation: somewhat larger than the training size, to leave room for the crop
)


def prepare(job: Job) -> None:
    import turboloader

    target = job.view / "turboloader.tbl"
    if target.exists():
        return
    scratch = Path(f"{target}.part")
    turboloader.preprocess_to_tbl(str(job.view / "all.tar"), str(scratch), image_size=STORED_SIZE)
    scratch.rename(target)


def load(job: Job) -> Loader:
    import numpy as np
    import turboloader

    antialias = job.variant == "turboloader-antialias"

    def open_loader() -> Callable[[int], Iterator[Batch]]:
        loader = turboloader.DataLoader(
            str(job.view / VARIANTS[job.variant].reads),
            batch_size=job.batch_size,
            num_workers=job.threads,
            image_size=SIZE,
            output_format="pytorch",
            transform=turboloader.ImageNetNormalize(),
            shuffle=True,
            seed=job.seed,
            train_aug=True,
            antialias=antialias,
        )

        def epoch(number: int) -> Iterator[Batch]:
            loader.set_epoch(number)
            return (images for images, _meta in loader)

        return epoch

    settings = {
        "train_aug": True,
        "antialias": antialias,
        "threads": f"its own pool, held to {job.threads} cores by affinity",
        "prefetch_batches": "its default",
    }
    if job.variant == "turboloader-raw":
        settings["stored"] = f"{STORED_SIZE}x{STORED_SIZE} RGB, resized without regard to shape"
    return Loader(turboloader.__version__, settings, open_loader, to_numpy=np.asarray)
