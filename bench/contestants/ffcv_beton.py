"""FFCV: its .beton file with JPEG it encoded itself, or with pixels decoded and shrunk beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

from bench.common import (
    MEAN,
    PRE_DECODED,
    RATIO,
    RE_ENCODED,
    SCALE,
    SIZE,
    STD,
    Batch,
    Job,
    Loader,
    Spec,
)

VARIANTS = {
    "ffcv-jpg": Spec("FFCV, jpg mode", RE_ENCODED, "ffcv-jpg.beton", "ffcv"),
    "ffcv-raw": Spec("FFCV, raw mode", PRE_DECODED, "ffcv-raw.beton", "ffcv"),
}

RAW_MAX_SIDE = 500  # the longest side in its own ImageNet recipe
JPEG_QUALITY = 90  # likewise


def prepare(job: Job) -> None:
    import numpy as np
    from ffcv.fields import RGBImageField
    from ffcv.writer import DatasetWriter
    from PIL import Image

    target = job.view / VARIANTS[job.variant].reads
    if target.exists():
        return

    class Files:
        files = job.files()

        def __len__(self) -> int:
            return len(self.files)

        def __getitem__(self, index: int) -> tuple[np.ndarray]:
            return (np.asarray(Image.open(self.files[index]).convert("RGB")),)

    raw = job.variant == "ffcv-raw"
    image = RGBImageField(
        write_mode="raw" if raw else "jpg",
        max_resolution=RAW_MAX_SIDE if raw else None,
        jpeg_quality=JPEG_QUALITY,
    )
    scratch = Path(f"{target}.part")
    DatasetWriter(str(scratch), {"image": image}, num_workers=job.threads).from_indexed_dataset(
        Files()
    )
    scratch.rename(target)


def load(job: Job) -> Loader:
    import numpy as np
    from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader as FfcvLoader
    from ffcv.loader import OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage

    def open_loader() -> Callable[[int], Iterator[Batch]]:
        image = [
            RandomResizedCropRGBImageDecoder((SIZE, SIZE), scale=SCALE, ratio=RATIO),
            RandomHorizontalFlip(),
            NormalizeImage(255 * np.array(MEAN), 255 * np.array(STD), np.float32),
            ToTensor(),
            ToTorchImage(),
        ]
        loader = FfcvLoader(
            str(job.view / VARIANTS[job.variant].reads),
            batch_size=job.batch_size,
            num_workers=job.threads,
            order=OrderOption.RANDOM,
            seed=job.seed,
            os_cache=True,  # its advice when the data fits in memory
            drop_last=True,
            pipelines={"image": image},
        )
        return lambda _epoch: (images for (images,) in loader)

    raw = job.variant == "ffcv-raw"
    stored = f"pixels, longest side {RAW_MAX_SIDE}" if raw else f"JPEG, quality {JPEG_QUALITY}"
    settings = {
        "num_workers": job.threads,
        "order": "RANDOM",
        "os_cache": True,
        "memory_format": "NCHW in channels_last strides, its default",
        "stored": stored,
    }
    return Loader(version("ffcv"), settings, open_loader, to_numpy=lambda batch: batch.numpy())
