"""tf.data and DALI over items that Python makes: what each offers to somebody who has a function and no files.

tf.data calls it from threads (`numpy_function` in a parallel map), which waits well and computes badly: one thread
has Python's lock. Its service takes no Python functions. DALI calls it from processes (a parallel external source).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from bench.common import Batch, Loader
from bench.items import Items, items_of

_POOL = 16  # threads that AUTOTUNE may use
# DALI's processes, which it does not tune: as many as DataLoaders are best with.
_PROCESSES = {"sleepy": 8, "heavy": len(os.sched_getaffinity(0))}


class Shuffled:
    """Items in a new order each epoch, by what DALI says of a sample."""

    def __init__(self, kind: str, batch_size: int, seed: int) -> None:
        self._items, self._seed = items_of(kind), seed
        self.n_batches = len(self._items) // batch_size
        self._epoch, self._order = -1, []

    def __call__(self, sample: Any) -> Any:
        import numpy as np

        if sample.iteration >= self.n_batches:
            raise StopIteration
        if sample.epoch_idx != self._epoch:
            order = np.random.default_rng((self._seed, sample.epoch_idx))
            self._epoch, self._order = sample.epoch_idx, order.permutation(len(self._items))
        return self._items[int(self._order[sample.idx_in_epoch])]


def _tf_data(items: Items, batch_size: int, seed: int) -> Loader:
    import numpy as np
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(_POOL)
    tf.config.threading.set_intra_op_parallelism_threads(1)

    def make(index: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(lambda i: items[int(i)], [index], tf.float32, stateful=False)

    def open_loader() -> Callable[[int], Iterator[Batch]]:
        options = tf.data.Options()
        options.deterministic = False
        options.threading.private_threadpool_size = _POOL
        dataset = (
            tf.data.Dataset.range(len(items))
            .shuffle(len(items), seed=seed)
            .map(make, num_parallel_calls=tf.data.AUTOTUNE)
            .batch(batch_size, drop_remainder=True)
            .prefetch(tf.data.AUTOTUNE)
            .with_options(options)
        )
        return lambda _epoch: iter(dataset)

    settings = {"num_parallel_calls": "AUTOTUNE", "private_threadpool_size": _POOL}
    return Loader(tf.__version__, settings, open_loader, to_numpy=np.asarray)


def _dali(kind: str, batch_size: int, seed: int) -> Loader:
    import numpy as np
    from nvidia import dali
    from nvidia.dali import fn, pipeline_def, types

    source = Shuffled(kind, batch_size, seed)

    @pipeline_def
    def pipeline() -> Any:
        return fn.external_source(
            source, batch=False, parallel=True, dtype=types.FLOAT, prefetch_queue_depth=2
        )

    def open_loader() -> Callable[[int], Iterator[Batch]]:
        pipe = pipeline(
            batch_size=batch_size,
            num_threads=1,
            device_id=None,
            prefetch_queue_depth=2,
            py_num_workers=_PROCESSES[kind],
            py_start_method="spawn",
        )
        pipe.build()

        def epoch(_number: int) -> Iterator[Batch]:
            for _ in range(source.n_batches):
                yield pipe.run()[0].as_tensor()
            pipe.reset()

        return epoch

    settings = {"py_num_workers": _PROCESSES[kind], "prefetch_queue_depth": 2}
    return Loader(
        dali.__version__, settings, open_loader, to_numpy=np.array, rows=lambda b: b.shape()[0]
    )


def load(name: str, kind: str, batch_size: int, seed: int) -> Loader:
    """`name` of the two that take part, imported and not yet made."""
    if name == "dali":
        return _dali(kind, batch_size, seed)
    return _tf_data(items_of(kind), batch_size, seed)
