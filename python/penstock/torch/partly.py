"""Items of a partly compiled dataset: the native part, then the rest in Python.

For worker processes.  Everything here can be pickled if the user's own functions can, and
nothing is opened before the first item is asked for.
"""

from typing import Any, NamedTuple

from penstock._core import Pipeline
from penstock.errors import Error
from penstock.torch.compiled import Compiled


class Key(NamedTuple):
    """An index with the rest of its random key, for epochs and for items that come twice."""

    item: int
    epoch: int
    occurrence: int = 0  # how often this epoch had the item before

    def __index__(self) -> int:
        return self.item


class PartlyCompiled:
    """A map-style dataset with the items of compiled.dataset, in its place.

    The native part of item i is drawn with (seed, epoch, i, occurrence): as in dataset[Key(i,
    epoch, occurrence)], while dataset[i] is Key(i, self.epoch).  The rest draws from the global
    generators of random, NumPy and torch, as it does in torchvision; who calls seeds those.
    """

    def __init__(self, compiled: Compiled, seed: int = 0, epoch: int = 0) -> None:
        self.compiled = compiled
        self.seed = seed
        self.epoch = epoch
        self._pipeline: Pipeline | None = None

    def __len__(self) -> int:
        return len(self.compiled.files.paths)

    def __getitem__(self, key: int | Key) -> tuple[Any, Any]:
        if not isinstance(key, Key):
            key = Key(key, self.epoch)
        index = range(len(self))[key.item]  # negative ones count from the end
        sample = self._native(index, key.epoch, key.occurrence)
        for call in self.compiled.python_rest:
            sample = call(sample)
        target: Any = self.compiled.files.labels[index]
        if self.compiled.target_transform is not None:
            target = self.compiled.target_transform(target)
        return sample, target

    def _native(self, index: int, epoch: int, occurrence: int) -> Any:
        if self._pipeline is None:
            self._pipeline = self.compiled.pipeline()
        path = self.compiled.files.paths[index]
        with open(path, "rb") as file:
            data = file.read()
        try:
            array = self._pipeline.run(data, self.seed, epoch, index, occurrence, None)
        except Error as error:
            error.add_note(f"in {path}")
            raise
        if self.compiled.kind == "pil":
            return _to_pil(array)
        return _to_tensor(array, self.compiled.kind == "image")

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_pipeline": None}


def _to_pil(array: Any) -> Any:
    import numpy as np
    from PIL import Image

    pixels = np.asarray(array)  # (h, w, channels)
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def _to_tensor(array: Any, is_image: bool) -> Any:
    from torch.utils.dlpack import from_dlpack

    tensor = from_dlpack(array)
    if not is_image:
        return tensor
    from torchvision.tv_tensors import Image

    return Image(tensor)
