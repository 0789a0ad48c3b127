"""What tests of compiled datasets share: items compared with torchvision's own."""

import numpy as np
import torch
from PIL import Image
from torchvision.datasets import ImageFolder

from penstock.torch.compiled import Compiled, NotCompiled, compile_dataset
from penstock.torch.partly import PartlyCompiled


class Halve:
    """Somebody's own transform."""

    def __call__(self, sample):
        if isinstance(sample, Image.Image):
            return sample.point(lambda value: value // 2)
        return sample / 2


def assert_same(ours, theirs):
    assert type(ours) is type(theirs)
    if isinstance(theirs, Image.Image):
        assert ours.mode == theirs.mode
        assert np.array_equal(np.asarray(ours), np.asarray(theirs))
    else:
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert torch.equal(ours, theirs)


def assert_exact(root, transform, is_native=True):
    """Compiled, with torchvision's values to the bit, and its types."""
    dataset = ImageFolder(root, transform)
    result = compile_dataset(dataset, exact=True)
    assert isinstance(result, Compiled), result.reason
    assert result.is_native == is_native, result.steps
    items = PartlyCompiled(result)
    assert len(items) == len(dataset)
    for number in range(len(dataset)):
        (ours, label), (theirs, other) = items[number], dataset[number]
        assert label == other
        assert_same(ours, theirs)
    return result


def levels_off(root, transform):
    """By how many levels a line is off that says it is, and is not compiled if `exact`."""
    dataset = ImageFolder(root, transform)
    result = compile_dataset(dataset)
    assert isinstance(result, Compiled)
    assert result.is_native
    assert any("one level" in step.why for step in result.steps)
    refused = compile_dataset(dataset, exact=True)
    assert isinstance(refused, NotCompiled) or refused.python_rest
    assert "one level" in refused.reason
    items, worst = PartlyCompiled(result), 0.0
    for number in range(len(dataset)):
        ours, theirs = items[number][0], dataset[number][0]
        assert ours.dtype == theirs.dtype
        scale = 255 if theirs.dtype.is_floating_point else 1
        worst = max(worst, ((ours.double() - theirs.double()).abs().max() * scale).item())
    return worst
