"""Datasets of files named one by one: torchvision's samples, subsets, repeats."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

import penstock
from penstock import Dataset


def files_of(folder: Path) -> tuple[list[str], list[int], list[str]]:
    """What torchvision's ImageFolder has as samples and classes."""
    classes = sorted(place.name for place in folder.iterdir())
    files = sorted(folder.glob("*/*"), key=lambda file: (file.parent.name, file.name))
    return [str(file) for file in files], [classes.index(f.parent.name) for f in files], classes


def test_the_list_of_a_folder_gives_the_folders_stream(folder, ops, digests):
    paths, labels, classes = files_of(folder)
    dataset = Dataset.from_list(paths, labels, classes, root=folder)
    assert dataset.hash == Dataset(folder).hash
    assert (dataset.kind, dataset.classes, dataset.path) == ("list", classes, str(folder))
    want = digests(penstock.Loader(folder, ops, 4, shuffle=True))
    assert digests(penstock.Loader(dataset, ops, 4, shuffle=True)) == want


def test_order_and_repeats_are_kept(folder):
    paths, labels, _ = files_of(folder)
    picks = [5, 0, 5, 21]
    dataset = Dataset.from_list([paths[i] for i in picks], [labels[i] for i in picks], root=folder)
    whole = Dataset(folder)
    assert dataset.keys() == [whole.key(i) for i in picks]
    assert [dataset.read(i) for i in range(4)] == [whole.read(i) for i in picks]
    assert [dataset.label(i) for i in range(4)] == [labels[i] for i in picks]
    assert dataset.find(whole.key(5)) == 0


def test_paths_are_taken_from_the_root_or_from_here(folder, monkeypatch):
    paths, _, _ = files_of(folder)
    relative = [os.path.relpath(path, folder) for path in paths[:3]]
    rooted = Dataset.from_list(relative, root=folder)
    monkeypatch.chdir(folder)
    here = Dataset.from_list([Path(path) for path in relative])
    monkeypatch.chdir("/")
    assert here.hash == rooted.hash
    assert here.read(2) == Path(paths[2]).read_bytes()
    assert here.label(2) == -1
    assert here.classes == []


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor])
def test_labels_come_as_any_sequence(folder, kind):
    paths, labels, _ = files_of(folder)
    dataset = Dataset.from_list(paths, kind(labels))
    assert [dataset.label(i) for i in range(len(paths))] == labels


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((["nowhere.jpg"],), penstock.NotFoundError, "place 0 of the list: no file 'nowhere.jpg'"),
        (([],), penstock.NotFoundError, "empty"),
        ((["a"], [1, 2]), ValueError, "2 labels for 1 paths"),
        ((["a"], ["b"]), TypeError, "str"),
        (("abc",), TypeError, "sequence"),
        (([3],), TypeError, "int"),
        ((["a\0b"],), ValueError, "null"),
        ((3,), TypeError, "sequence"),
    ],
)
def test_what_is_no_list_of_files_is_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        Dataset.from_list(*arguments)


def test_a_label_beyond_the_classes_is_refused(folder):
    paths, _, _ = files_of(folder)
    with pytest.raises(penstock.InvalidError, match="the label 2 is not within -1 to 1"):
        Dataset.from_list(paths[:1], [2], ["a", "b"])
