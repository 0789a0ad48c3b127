"""Items of a partly compiled dataset: the native part, then the rest in Python.

For worker processes.  Everything here can be pickled if the user's own functions can, and
nothing is opened before the first item is asked for.
"""

from typing import Any

from penstock._core import Pipeline
from penstock.torch.compiled import Compiled


class PartlyCompiled:
    """A map-style dataset with the items of compiled.dataset, in its place.

    Item i is drawn with the key (seed, epoch, i, occurrence) as far as it is native; `seed` and
    `epoch` may be set at any time, and item() takes all of them.  The rest draws from the global
    generators of random, NumPy and torch, as it does in torchvision; who calls seeds those.
    """

    def __init__(self, compiled: Compiled, seed: int = 0, epoch: int = 0) -> None:
        self.compiled = compiled
        self.seed = seed
        self.epoch = epoch
        self._pipeline: Pipeline | None = None

    def __len__(self) -> int:
        return len(self.compiled.files.paths)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.item(index, self.seed, self.epoch)

    def item(self, index: int, seed: int, epoch: int, occurrence: int = 0) -> tuple[Any, Any]:
        """(sample, target); `occurrence` counts the times an epoch has had this item before."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"item {index} of {len(self)}")
        index %= len(self)
        compiled = self.compiled
        sample = self._native(index, seed, epoch, occurrence)
        for call in compiled.python_rest:
            sample = call(sample)
        target = compiled.files.labels[index]
        if compiled.target_transform is not None:
            target = compiled.target_transform(target)
        return sample, target

    def _native(self, index: int, seed: int, epoch: int, occurrence: int) -> Any:
        if self._pipeline is None:
            self._pipeline = self.compiled.pipeline()
        with open(self.compiled.files.paths[index], "rb") as file:
            data = file.read()
        array = self._pipeline.run(data, seed, epoch, index, occurrence, None)
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
