"""Which datasets are compiled, what is refused and why, and how that is told."""

import re
import warnings
from pathlib import Path

import pytest
from PIL import Image

torch = pytest.importorskip("torch")
v1 = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")
from torch.utils.data import ConcatDataset, Dataset, Subset, random_split  # noqa: E402
from torchvision import datasets  # noqa: E402
from torchvision.datasets import DatasetFolder, ImageFolder  # noqa: E402
from torchvision.datasets.folder import default_loader, pil_loader  # noqa: E402

from penstock.torch.compiled import (  # noqa: E402
    Compiled,
    NotCompiled,
    compile_dataset,
    warn_of_python,
)
from penstock.torch.explain import explain  # noqa: E402
from penstock.torch.partly import PartlyCompiled  # noqa: E402

LINE = v1.Compose([v1.Resize((12, 10)), v1.ToTensor()])
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def double(label):
    return 2 * label


def assert_compiled(dataset):
    """Item by item as it is in torch."""
    result = compile_dataset(dataset)
    assert isinstance(result, Compiled), result.reason
    items = PartlyCompiled(result)
    assert len(items) == len(dataset)
    for number in range(len(dataset)):
        (ours, label), (theirs, other) = items[number], dataset[number]
        assert torch.equal(ours, theirs)
        assert label == other
    return result


def refusal(dataset):
    result = compile_dataset(dataset)
    assert isinstance(result, NotCompiled)
    assert any(step.why for step in result.steps)
    return result


# Datasets.


def test_image_folders_are_compiled(folder):
    result = assert_compiled(ImageFolder(folder, LINE))
    assert result.is_native
    assert result.files.classes == ["ant", "bee", "cat"]
    assert result.files.root == str(folder)
    assert_compiled(ImageFolder(folder, LINE, target_transform=double))
    assert_compiled(ImageFolder(folder, LINE, loader=pil_loader))
    assert_compiled(ImageFolder(folder, LINE, is_valid_file=lambda path: path.endswith(".png")))
    assert_compiled(ImageFolder(str(folder) + "/", LINE))


def test_dataset_folders_are_compiled_with_torchvisions_loader(folder):
    assert_compiled(DatasetFolder(folder, default_loader, (".jpg",), LINE))
    reason = refusal(DatasetFolder(folder, Image.open, (".jpg",), LINE)).reason
    assert "loader is PIL.Image.open" in reason


class OtherClasses(ImageFolder):
    """Chooses its files in its own way, and reads them as everybody does."""

    def find_classes(self, directory):
        return ["cat", "ant"], {"cat": 0, "ant": 1}


class OtherItems(ImageFolder):
    def __getitem__(self, index):
        return super().__getitem__(index)[0]


class OtherLength(ImageFolder):
    def __len__(self):
        return 3


class OtherLoader(ImageFolder):
    def loader(self, path):
        return Image.open(path).convert("L").convert("RGB")

    def __init__(self, *arguments):
        super().__init__(*arguments)
        del self.loader


class OtherBatches(ImageFolder):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


def test_a_subclass_is_compiled_unless_it_reads_differently(folder):
    result = assert_compiled(OtherClasses(folder, LINE))
    assert result.files.classes == ["cat", "ant"]
    for cls, reason in (
        (OtherItems, "OtherItems overrides __getitem__"),
        (OtherLength, "OtherLength overrides __len__"),
        (OtherLoader, "OtherLoader.loader"),
        (OtherBatches, "OtherBatches defines __getitems__"),
    ):
        result = refusal(cls(folder, LINE))
        assert reason in result.reason
        assert result.is_known


def test_subsets_are_compiled(folder):
    dataset = ImageFolder(folder, LINE)
    assert_compiled(Subset(dataset, [5, 2, 2, 7]))
    assert_compiled(Subset(Subset(dataset, range(10)), torch.tensor([1, 9])))
    for part in random_split(dataset, [0.7, 0.3]):
        assert_compiled(part)
    assert "positions" in refusal(Subset(dataset, ["a"])).reason
    assert "positions" in refusal(Subset(dataset, [100])).reason
    assert "empty" in refusal(Subset(dataset, [])).reason


def test_concatenations_are_compiled_if_their_transforms_agree(folder, spoiled):
    mine, equal = ImageFolder(folder, LINE), ImageFolder(folder, v1.Compose(LINE.transforms))
    both = assert_compiled(ConcatDataset([mine, Subset(mine, [1, 2])]))
    assert both.files.classes == ["ant", "bee", "cat"]
    assert_compiled(ConcatDataset([mine, equal]))
    assert_compiled(Subset(ConcatDataset([mine, mine]), [40, 1]))
    other = ImageFolder(folder, v1.Compose([v1.Resize((9, 9)), v1.ToTensor()]))
    assert "different transforms" in refusal(ConcatDataset([mine, other])).reason
    doubled = ImageFolder(folder, LINE, target_transform=double)
    assert "target_transform" in refusal(ConcatDataset([mine, doubled])).reason
    assert "ConcatDataset" in refusal(Subset(ConcatDataset([mine, equal]), [1])).reason
    reason = refusal(ConcatDataset([mine, OtherItems(folder, LINE)])).reason
    assert "OtherItems" in reason


def test_files_that_only_pillow_reads_stay_in_python(folder, tmp_path):
    (tmp_path / "a").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "a" / "one.bmp")
    assert "one.bmp" in refusal(ImageFolder(tmp_path, LINE)).reason


class Squares(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index * index


def test_other_datasets_are_left_alone():
    result = refusal(Squares())
    assert not result.is_known
    assert "Squares is not a dataset that is known here" in result.reason
    for dataset in ([1, 2], object(), datasets.FakeData(3, (3, 8, 8))):
        assert not refusal(dataset).is_known


def made(cls, **attributes):
    """A dataset of torchvision's as if its files had been downloaded."""
    dataset = cls.__new__(cls)
    for name, value in (
        {"root": "", "transform": LINE, "target_transform": None} | attributes
    ).items():
        setattr(dataset, name, value)
    return dataset


def test_torchvisions_lists_of_files_are_compiled(folder):
    paths = sorted(folder.glob("*/*.jpg"))[:4]
    labels = [3, 1, 2, 0]
    pairs = [(str(path), label) for path, label in zip(paths, labels, strict=True)]
    joint = datasets.vision.StandardTransform(LINE, None)
    lists = {"_image_files": paths, "_labels": labels, "loader": default_loader}
    for dataset in (
        made(datasets.Food101, classes=["a", "b", "c", "d"], **lists),
        made(datasets.Flowers102, **lists),
        made(datasets.DTD, **lists),
        made(datasets.FGVCAircraft, **lists),
        made(datasets.SUN397, **lists),
        made(datasets.CLEVRClassification, **lists),
        made(datasets.Imagenette, _samples=pairs, loader=default_loader),
        made(datasets.StanfordCars, _samples=pairs, loader=default_loader),
        made(datasets.RenderedSST2, _samples=pairs, loader=default_loader),
        made(datasets.GTSRB, _samples=pairs),
        made(datasets.Places365, imgs=pairs, loader=default_loader, transforms=joint),
        made(datasets.OxfordIIITPet, _images=paths, _labels=labels, transforms=joint,
             _target_types=["category"]),
    ):  # fmt: skip
        assert_compiled(dataset)
        assert_compiled(Subset(dataset, [2, 0]))


def test_torchvisions_lists_are_refused_where_targets_are_something_else(folder):
    paths = sorted(folder.glob("*/*.jpg"))[:2]
    no_labels = made(
        datasets.CLEVRClassification,
        _image_files=paths,
        _labels=[None, None],
        loader=default_loader,
    )
    assert "labels" in refusal(no_labels).reason
    masks = made(datasets.OxfordIIITPet, _images=paths, _labels=[0, 1], transforms=None,
                 _target_types=["segmentation"])  # fmt: skip
    assert "target_types" in refusal(masks).reason
    together = made(datasets.Places365, imgs=[(str(paths[0]), 1)], loader=default_loader,
                    transforms=lambda image, target: (image, target))  # fmt: skip
    assert "together" in refusal(together).reason


# Transforms that are refused.


class Gentle(v1.RandomHorizontalFlip):
    pass


class Compose:
    """Another library's."""

    __module__ = "albumentations.core.composition"

    def __call__(self, image):
        return image


def hooked():
    flip = v1.RandomHorizontalFlip()
    flip.register_forward_hook(lambda *_: None)
    return flip


def replaced():
    flip = v2.RandomHorizontalFlip()
    flip.transform = lambda image, params: image
    return flip


def unknown(image):
    return image


SIZE, IMAGE = v1.Resize((12, 12)), v2.ToImage()
REFUSED = [
    ([SIZE, lambda x: x], r"<lambda> \(test_compile_datasets.py:\d+\): a Python function"),
    ([SIZE, unknown], r"unknown \(.*a Python function"),
    ([SIZE, v1.Lambda(unknown)], "Lambda: a Python function"),
    ([SIZE, Gentle()], "Gentle: a subclass of RandomHorizontalFlip"),
    ([SIZE, Compose()], "albumentations.core.composition.Compose is not known"),
    ([SIZE, hooked()], "RandomHorizontalFlip: has hooks"),
    ([SIZE, replaced()], "its transform was replaced"),
    ([SIZE, v1.FiveCrop(8)], "FiveCrop: has no native form"),
    ([SIZE, v2.RandomPhotometricDistort()], "no native form"),
    ([SIZE, v1.RandomCrop(8, padding=-1)], "padding must be within"),
    ([SIZE, v1.RandomCrop(8, padding=2, fill=300)], "fill must be within"),
    ([SIZE, v1.RandomCrop(8, padding=2, fill=0.5)], "whole numbers"),
    ([SIZE, v2.RandomCrop(8, padding=2, fill={Image.Image: 3, "others": 0})], "fill by type"),
    ([SIZE, v1.RandomCrop(8, padding=2, pad_if_needed=True, padding_mode="reflect")], "padding"),
    ([SIZE, v1.RandomResizedCrop(8, scale=(0.9, 0.1))], "scale must be"),
    ([SIZE, v2.Resize(None, max_size=20)], "size=None"),
    ([SIZE, v1.ToTensor(), v1.ToTensor()], "meant for a PIL image"),
    ([SIZE, v1.ConvertImageDtype(torch.float32)], "would receive a PIL image"),
    ([SIZE, v1.PILToTensor(), v1.Normalize(MEAN, STD)], "would receive uint8"),
    ([SIZE, v1.PILToTensor(), v1.RandomErasing()], "would receive uint8"),
    ([SIZE, v1.PILToTensor(), v1.ConvertImageDtype(torch.float64)], "float64 has no native form"),
    ([SIZE, v1.PILToTensor(), v1.ConvertImageDtype(torch.int16)], "int16 has no native form"),
    ([SIZE, v1.ToTensor(), v1.ConvertImageDtype(torch.uint8)], "uint8 has no native form"),
    ([SIZE, v1.ToTensor(), v1.ConvertImageDtype(torch.float16), v1.Normalize(MEAN, STD)],
     "would receive float16"),
    ([SIZE, v1.ToTensor(), v1.Normalize(MEAN, (0.5, 0.0, 0.5))], "std must not be 0"),
    ([SIZE, v1.ToTensor(), v1.Normalize([0.5] * 2, [0.5] * 2)], "mean must have"),
    ([SIZE, v1.Grayscale(), v1.ToTensor(), v1.Normalize(MEAN, STD)], "1 channel"),
    ([SIZE, v1.ToTensor(), v1.RandomErasing(), v1.RandomHorizontalFlip()], "behind RandomErasing"),
    ([SIZE, v1.ToTensor(), v1.Normalize(MEAN, STD), v1.CenterCrop(20)], "behind Normalize"),
    ([SIZE, v1.ToTensor(), v1.Normalize(MEAN, STD), v1.Resize((8, 8))], "behind Normalize"),
    ([SIZE, v1.ToTensor(), v1.RandomCrop(8, padding=2, fill=1)], "only 0 is the same"),
    ([SIZE, v1.ToTensor(), v1.ColorJitter(0.4)], "more than one level"),
    ([SIZE, v1.PILToTensor(), v1.ColorJitter(0, 0.4)], "more than one level"),
    ([SIZE, IMAGE, v2.Resize((8, 8), interpolation=3)], "more than one level"),
    ([SIZE, IMAGE, v2.Resize((8, 8), antialias=False)], "antialias=False"),
    ([SIZE, IMAGE, v2.ToDtype({torch.Tensor: torch.float32})], "says nothing about Image"),
    ([SIZE, v1.Grayscale(), v2.RGB()], "one channel"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "reason"), REFUSED, ids=lambda case: str(case)[:70])
def test_what_cannot_be_native_is_refused_with_a_reason(folder, line, reason):
    result = compile_dataset(ImageFolder(folder, v1.Compose(line)))
    assert isinstance(result, Compiled)
    assert result.python_rest == line[-1:]
    assert result.steps[-1].where == "python"
    assert re.search(reason, result.reason)


def test_another_default_type_keeps_to_tensor_in_python(folder):
    torch.set_default_dtype(torch.float64)
    try:
        result = compile_dataset(ImageFolder(folder, LINE))
    finally:
        torch.set_default_dtype(torch.float32)
    assert "float64" in result.reason
    assert result.python_rest == LINE.transforms[1:]


def test_a_dataset_without_a_transform_runs_in_python(folder):
    result = refusal(ImageFolder(folder))
    assert "no transform" in result.reason


# How it is told.


def test_one_warning_names_what_stays_in_python(folder):
    dataset = ImageFolder(folder, v1.Compose([SIZE, unknown, v1.ToTensor()]))
    with pytest.warns(UserWarning, match=r"unknown .*, ToTensor run in Python.*function"):
        warn_of_python(compile_dataset(dataset))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_python(compile_dataset(dataset))
    with pytest.warns(UserWarning, match="OtherItems and all its transforms.*__getitem__"):
        warn_of_python(compile_dataset(OtherItems(folder, LINE)))


def test_nothing_is_warned_of_where_nothing_could_be_better(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for dataset in (Squares(), ImageFolder(folder, LINE), ImageFolder(folder)):
            warn_of_python(compile_dataset(dataset))


def test_explain_prints_a_table(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    line = v2.Compose([v2.ToImage(), v2.Resize((12, 12)), v2.RandomHorizontalFlip(), unknown])
    explanation = explain(ImageFolder(folder, line, target_transform=double))
    printed = capsys.readouterr().out
    assert printed == f"{explanation}\n"
    rows = printed.splitlines()
    assert rows[0].split() == ["operation", "runs", "why"]
    assert rows[1].split() == ["ImageFolder", "native", "23", "image", "files"]
    assert "not at all" in rows[2]
    assert "Pillow's pixels" in printed
    assert "Python process  a Python function" in printed
    assert "target_transform" in printed
    assert rows[-1] == "Native up to operation 3; 1 more run in Python, in worker processes."
    assert max(map(len, rows)) <= 100
    assert repr(explanation) == f"<Explanation: {rows[-1]}>"


def test_explain_sums_up(folder, capsys):
    line = [v2.ToImage(), v2.Resize((12, 12))]
    assert explain(ImageFolder(folder), line).summary.startswith("All of it is native")
    assert "in Python" in explain(ImageFolder(folder), line, exact=True).summary
    assert "PIL image" in explain(ImageFolder(folder), SIZE).summary
    assert "Squares" in explain(Squares()).summary
    capsys.readouterr()


ABSENT = """
import sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torchvision", "PIL"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Nothing())
import penstock.torch
from penstock.torch.compiled import NotCompiled, compile_dataset
from penstock.torch.explain import explain

assert isinstance(compile_dataset([1, 2, 3]), NotCompiled)
print(explain([1, 2, 3]).summary)
assert "torchvision" not in sys.modules
"""


def test_torchvision_may_be_absent(run_python):
    result = run_python(ABSENT)
    assert result.returncode == 0, result.stderr
    assert "builtins.list is not a dataset that is known here" in result.stdout


def test_the_native_dataset_is_the_list(folder):
    dataset = ImageFolder(folder, LINE)
    result = compile_dataset(Subset(dataset, [9, 3, 3, 20]))
    native = result.native()
    assert len(native) == 4
    assert [native.label(number) for number in range(4)] == result.files.labels
    files = [Path(path).read_bytes() for path in result.files.paths]
    assert [native.read(number) for number in range(4)] == files
    assert str(folder) not in native.key(0)  # the same dataset elsewhere has the same keys
    assert native.classes == ["ant", "bee", "cat"]
