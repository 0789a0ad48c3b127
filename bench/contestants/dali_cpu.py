"""DALI without a GPU: the decoder that knows the crop, or decoding first and cropping after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bench.common import IN_PLACE, MEAN, RATIO, SCALE, SIZE, STD, Batch, Job, Loader, Spec

VARIANTS = {
    "dali-fused": Spec("DALI CPU, image_random_crop", IN_PLACE, "folder", "main"),
    "dali-split": Spec("DALI CPU, decode then crop", IN_PLACE, "folder", "main"),
}

PREFETCH = 2
READERS = 16  # processes that read from a slow source: as many as tf.data has threads, and DataLoaders processes


class ShuffledFiles:
    """Files in a new order each epoch, for DALI's own reading processes. Its file reader has one thread, and maps
    files: from a slow source it would read one at a time, or before the clock began."""

    def __init__(self, job: Job) -> None:
        self._files, self._seed = job.files(), job.seed
        self._n_batches = len(self._files) // job.batch_size
        self._epoch, self._order = -1, []

    def __call__(self, sample: Any) -> Any:
        import numpy as np

        if sample.iteration >= self._n_batches:
            raise StopIteration
        if sample.epoch_idx != self._epoch:
            order = np.random.default_rng((self._seed, sample.epoch_idx)).permutation(
                len(self._files)
            )
            self._epoch, self._order = sample.epoch_idx, order
        return np.fromfile(self._files[self._order[sample.idx_in_epoch]], dtype=np.uint8)


def _images(fn: Any, types: Any, encoded: Any, fused: bool) -> Any:
    area = {"random_area": SCALE, "random_aspect_ratio": RATIO, "num_attempts": 10}
    if not fused:
        decoded = fn.decoders.image(encoded, device="cpu", output_type=types.RGB)
        return fn.random_resized_crop(decoded, size=(SIZE, SIZE), **area)
    window = fn.decoders.image_random_crop(encoded, device="cpu", output_type=types.RGB, **area)
    return fn.resize(window, size=(SIZE, SIZE))


def load(job: Job) -> Loader:
    import numpy as np
    from nvidia import dali
    from nvidia.dali import fn, pipeline_def, types

    fused = job.variant == "dali-fused"

    @pipeline_def
    def pipeline() -> Any:
        if job.is_slow:
            encoded = fn.external_source(
                ShuffledFiles(job),
                batch=False,
                parallel=True,
                dtype=types.UINT8,
                prefetch_queue_depth=PREFETCH,
            )
        else:
            encoded, _label = fn.readers.file(
                file_root=str(job.view / "folder"),
                random_shuffle=True,
                seed=job.seed,
                initial_fill=len(job.files()),  # as good a shuffle as the others'
            )
        return fn.crop_mirror_normalize(
            _images(fn, types, encoded, fused),
            dtype=types.FLOAT,
            output_layout="CHW",
            mean=[255 * m for m in MEAN],
            std=[255 * s for s in STD],
            mirror=fn.random.coin_flip(),
        )

    def open_loader() -> Callable[[int], Iterator[Batch]]:
        pipe = pipeline(
            batch_size=job.batch_size,
            num_threads=job.threads,
            device_id=None,
            prefetch_queue_depth=PREFETCH,
            seed=job.seed,
            py_num_workers=READERS if job.is_slow else 1,
            py_start_method="spawn",
        )
        pipe.build()
        batches = len(job.files()) // job.batch_size

        def epoch(_number: int) -> Iterator[Batch]:
            # The pipeline's own buffer, not the copy its PyTorch iterator makes: the best case for DALI.
            # It runs on over the end of an epoch without a gap.
            for _ in range(batches):
                yield pipe.run()[0].as_tensor()
            if job.is_slow:
                pipe.reset()

        return epoch

    settings = {
        "num_threads": job.threads,
        "prefetch_queue_depth": PREFETCH,
        "reading": f"{READERS} processes" if job.is_slow else "its file reader",
        "output": "its own buffer, without a copy",
        "resize": "linear, antialiased",
    }
    return Loader(
        dali.__version__, settings, open_loader, to_numpy=np.array, rows=lambda b: b.shape()[0]
    )
