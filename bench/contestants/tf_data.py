"""tf.data, decoding only the crop's window (decode_and_crop_jpeg).

It delivers NHWC, which is what TensorFlow trains on, so nobody has to transpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bench.common import IN_PLACE, MEAN, RATIO, SCALE, SIZE, STD, Batch, Job, Loader, Spec

VARIANTS = {
    "tfdata-autotune": Spec("tf.data, AUTOTUNE", IN_PLACE, "folder", "main"),
    # A dispatcher and a worker, in this process; what a cluster would add is not measured.
    "tfdata-service": Spec("tf.data service, AUTOTUNE", IN_PLACE, "folder", "main"),
    "tfdata-fixed": Spec("tf.data, fixed threads", IN_PLACE, "folder", "main"),
}


_servers: list[Any] = []  # they serve as long as somebody holds them


def _served(tf: Any) -> Any:
    """What sends a dataset through a local dispatcher and worker."""
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    address = dispatcher.target.partition("://")[2]
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
    _servers.extend((dispatcher, worker))
    # Compressing pays where batches travel through a network; these do not.
    return service.distribute(
        processing_mode="parallel_epochs", service=dispatcher.target, compression=None
    )


def load(job: Job) -> Loader:
    import numpy as np
    import tensorflow as tf

    # One layer of parallelism, the map's, so that no more threads than the others' compete for the cores.
    tf.config.threading.set_inter_op_parallelism_threads(job.threads)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    is_tuned = job.variant != "tfdata-fixed"
    calls = tf.data.AUTOTUNE if is_tuned else job.threads
    scale = tf.constant([1 / (255 * s) for s in STD], tf.float32)
    shift = tf.constant([-m / s for m, s in zip(MEAN, STD, strict=True)], tf.float32)
    whole = tf.constant([0.0, 0.0, 1.0, 1.0], shape=[1, 1, 4])

    def decode(path: tf.Tensor) -> tf.Tensor:
        data = tf.io.read_file(path)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.image.extract_jpeg_shape(data),
            bounding_boxes=whole,
            aspect_ratio_range=RATIO,
            area_range=SCALE,
            max_attempts=10,
            use_image_if_no_bounding_boxes=True,
        )
        window = tf.stack([begin[0], begin[1], size[0], size[1]])
        image = tf.image.decode_and_crop_jpeg(data, window, channels=3)
        image = tf.image.resize(image, (SIZE, SIZE))
        image = tf.image.random_flip_left_right(image)
        return image * scale + shift

    def open_loader() -> Callable[[int], Iterator[Batch]]:
        files = [str(path) for path in job.files()]
        options = tf.data.Options()
        options.deterministic = False
        options.threading.private_threadpool_size = job.threads
        dataset = (
            tf.data.Dataset.from_tensor_slices(files)
            .shuffle(len(files), seed=job.seed)
            .map(decode, num_parallel_calls=calls)
            .batch(job.batch_size)
        )
        if job.variant == "tfdata-service":
            # The worker runs what lies before: options that come after are the client's alone.
            dataset = dataset.with_options(options).apply(_served(tf))
        dataset = dataset.prefetch(tf.data.AUTOTUNE if is_tuned else 2).with_options(options)
        return lambda _epoch: iter(dataset)

    settings = {
        "num_parallel_calls": "AUTOTUNE" if is_tuned else job.threads,
        "private_threadpool_size": job.threads,
        "intra_op_threads": 1,
        "deterministic": False,
        "idct": "its default, INTEGER_FAST",
        "resize": "bilinear, not antialiased",
    }
    return Loader(tf.__version__, settings, open_loader, to_numpy=np.asarray, layout="NHWC")
