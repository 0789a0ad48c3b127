"""Packs: a dataset in .pen files."""

from penstock import _core
from penstock._core import Dataset
from penstock.loader import Path, to_bytes


def pack(
    data: Dataset | Path,
    path: Path,
    *,
    shard_size: int | str | None = None,
    overwrite: bool = False,
) -> str:
    """Write a dataset into one .pen file, or several, and say what to open them with.

    What is opened is the same dataset: the same ids, keys, labels, classes, fields and hash, and
    so the same stream.

    data        a path, or a Dataset
    path        where to, with .pen at its end
    shard_size  bytes a file may have, or text such as "4GiB"; then files are named
                PATH-000.pen, PATH-001.pen, ... (None: one file)
    overwrite   take the place of files that are there
    """
    dataset = data if isinstance(data, Dataset) else Dataset(data)
    size = 0 if shard_size is None else to_bytes("shard_size", shard_size)
    return _core.pack(dataset, path, size, overwrite)
