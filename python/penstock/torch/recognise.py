"""Datasets of image files that torchvision knows, told by whose methods they run.

A dataset is what its __getitem__ does.  Whoever inherits that of a class listed here, and
brings nothing of its own to it, is a list of (path, label), a loader and two transforms; all
else is unknown.  torchvision is never imported: a class is known by its module and name.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import index as as_index
from typing import Any

Samples = Sequence[tuple[Any, Any]]

# What ImageFolder accepts and only Pillow reads.
FOREIGN_SUFFIXES = (".bmp", ".pgm", ".ppm", ".tif", ".tiff")
FOLDER = "torchvision.datasets.folder"
LOADERS = ("default_loader", "pil_loader")


class NotRecognised(Exception):
    """Says why; `is_known` if it is a known kind of dataset, used in an unknown way."""

    def __init__(self, reason: str, is_known: bool = True) -> None:
        super().__init__(reason)
        self.is_known = is_known


@dataclass(frozen=True)
class Files:
    """The image files of a dataset, in its own order: file i is its item i."""

    paths: list[str]
    labels: list[int]
    classes: list[str]
    root: str


@dataclass(frozen=True)
class Part:
    """Files that are transformed in one way."""

    files: Files
    transform: Any
    target_transform: Any


def recognise(dataset: Any) -> list[Part]:
    """The parts of a dataset, one after another; more than one for a ConcatDataset."""
    kind = _qualified(type(dataset))
    if kind == "torch.utils.data.dataset.Subset":
        return _subset(dataset)
    if kind == "torch.utils.data.dataset.ConcatDataset":
        return _concatenated([part for inner in dataset.datasets for part in recognise(inner)])
    reader = READERS.get(_qualified(_owner(type(dataset), "__getitem__")))
    if reader is None:
        raise NotRecognised(_unknown(type(dataset)), _is_relative(type(dataset)))
    _check_methods(type(dataset))
    samples = reader(dataset)
    transform, target_transform = _transforms(dataset)
    files = _files(samples, _classes(dataset), os.fspath(getattr(dataset, "root", "")))
    return [Part(files, transform, target_transform)]


# What each class keeps, and where.


def _of_pairs(name: str) -> Callable[[Any], Samples]:
    """A list of (path, label), read by dataset.loader."""

    def read(dataset: Any) -> Samples:
        _check_loader(dataset)
        return getattr(dataset, name)

    return read


def _of_lists(dataset: Any) -> Samples:
    """A list of paths and one of labels, read by dataset.loader."""
    _check_loader(dataset)
    return list(zip(dataset._image_files, dataset._labels, strict=True))


def _of_pets(dataset: Any) -> Samples:
    if list(dataset._target_types) != ["category"]:
        raise NotRecognised(f"its target_types are {dataset._target_types}, not 'category' alone")
    return list(zip(dataset._images, dataset._labels, strict=True))


def _of_signs(dataset: Any) -> Samples:
    return dataset._samples


READERS: dict[str, Callable[[Any], Samples]] = {
    f"{FOLDER}.DatasetFolder": _of_pairs("samples"),  # ImageFolder, ImageNet, EuroSAT, ...
    "torchvision.datasets.clevr.CLEVRClassification": _of_lists,
    "torchvision.datasets.dtd.DTD": _of_lists,
    "torchvision.datasets.fgvc_aircraft.FGVCAircraft": _of_lists,
    "torchvision.datasets.flowers102.Flowers102": _of_lists,
    "torchvision.datasets.food101.Food101": _of_lists,
    "torchvision.datasets.gtsrb.GTSRB": _of_signs,
    "torchvision.datasets.imagenette.Imagenette": _of_pairs("_samples"),
    "torchvision.datasets.oxford_iiit_pet.OxfordIIITPet": _of_pets,
    "torchvision.datasets.places365.Places365": _of_pairs("imgs"),
    "torchvision.datasets.rendered_sst2.RenderedSST2": _of_pairs("_samples"),
    "torchvision.datasets.stanford_cars.StanfordCars": _of_pairs("_samples"),
    "torchvision.datasets.sun397.SUN397": _of_lists,
}
# These hand image and target to dataset.transforms together.
JOINT = ("OxfordIIITPet", "Places365")


# Checks.


def _qualified(cls: type | None) -> str:
    return f"{cls.__module__}.{cls.__qualname__}" if cls else ""


def _owner(cls: type, method: str) -> type | None:
    """The class whose `method` runs."""
    return next((base for base in cls.__mro__ if method in vars(base)), None)


def _is_relative(cls: type) -> bool:
    """Does it inherit from a known class?"""
    return any(_qualified(base) in READERS for base in cls.__mro__)


def _unknown(cls: type) -> str:
    if _is_relative(cls):
        owner = _owner(cls, "__getitem__")
        return f"{_qualified(owner)} overrides __getitem__"
    return f"{_qualified(cls)} is not a dataset that is known here"


def _check_methods(cls: type) -> None:
    owner = _owner(cls, "__getitem__")
    if _owner(cls, "__len__") is not owner:
        raise NotRecognised(f"{_qualified(_owner(cls, '__len__'))} overrides __len__")
    if _owner(cls, "__getitems__") is not None:
        raise NotRecognised(f"{_qualified(_owner(cls, '__getitems__'))} defines __getitems__")


def _check_loader(dataset: Any) -> None:
    loader = dataset.loader
    name = getattr(loader, "__qualname__", type(loader).__qualname__)
    module = getattr(loader, "__module__", "")
    if module != FOLDER or name not in LOADERS:
        raise NotRecognised(f"its loader is {module}.{name}, not torchvision's default_loader")
    if name == "default_loader" and sys.modules["torchvision"].get_image_backend() != "PIL":
        raise NotRecognised("torchvision's image backend is not PIL")


def _transforms(dataset: Any) -> tuple[Any, Any]:
    owner = _owner(type(dataset), "__getitem__")
    if owner is None or owner.__qualname__ not in JOINT:
        return dataset.transform, dataset.target_transform
    joint = dataset.transforms
    if joint is None:
        return None, None
    if _qualified(type(joint)) != "torchvision.datasets.vision.StandardTransform":
        raise NotRecognised("its transforms= act on image and target together")
    return joint.transform, joint.target_transform


def _classes(dataset: Any) -> list[str]:
    """Names by label; ImageNet has several for each, of which the first will do."""
    names = getattr(dataset, "classes", None) or []
    return [str(name if isinstance(name, str) or not name else name[0]) for name in names]


def _files(samples: Samples, classes: list[str], root: str) -> Files:
    if not len(samples):
        raise NotRecognised("it is empty")
    paths = [os.fspath(path) for path, _ in samples]
    foreign = [path for path in paths if path.lower().endswith(FOREIGN_SUFFIXES)]
    if foreign:
        raise NotRecognised(f"only Pillow reads {foreign[0]} and {len(foreign) - 1} more")
    try:
        labels = [as_index(label) for _, label in samples]
    except TypeError:
        raise NotRecognised("its labels are not whole numbers") from None
    return Files(paths, labels, classes, root)


def joined(parts: Sequence[Part]) -> Part:
    """Parts that are transformed alike as one.  Names of classes stay if they are the same."""
    all_files = [part.files for part in parts]
    first = all_files[0]
    is_same = all(files.classes == first.classes for files in all_files)
    root = first.root if all(files.root == first.root for files in all_files) else ""
    files = Files(
        [path for files in all_files for path in files.paths],
        [label for files in all_files for label in files.labels],
        first.classes if is_same else [],
        root,
    )
    return Part(files, parts[0].transform, parts[0].target_transform)


def _concatenated(parts: list[Part]) -> list[Part]:
    first = parts[0]
    if all(
        part.transform is first.transform and part.target_transform is first.target_transform
        for part in parts
    ):
        return [joined(parts)]
    return parts


def _subset(dataset: Any) -> list[Part]:
    parts = recognise(dataset.dataset)
    if len(parts) > 1:
        raise NotRecognised("a Subset of a ConcatDataset whose parts have transforms of their own")
    whole, part = parts[0].files, parts[0]
    try:
        chosen = [as_index(index) for index in dataset.indices]
        picked = [(whole.paths[index], whole.labels[index]) for index in chosen]
    except (TypeError, IndexError):
        raise NotRecognised("the Subset's indices are not positions in its dataset") from None
    files = _files(picked, whole.classes, whole.root)
    return [Part(files, part.transform, part.target_transform)]
