"""Transforms: torchvision's arguments, checked where they are written; one sample at a time."""

import dataclasses
import enum

import numpy as np
import pytest

import penstock
from penstock import transforms as T


class InterpolationMode(enum.Enum):
    """As torchvision has it: names as values."""

    BILINEAR = "bilinear"
    BICUBIC = "bicubic"


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: T.Decode(channels=2), "channels"),
        (lambda: T.Decode(mode="RGBA"), "mode"),
        (lambda: T.Resize(0), "size"),
        (lambda: T.Resize((10, -1)), "size"),
        (lambda: T.Resize("big"), "size"),
        (lambda: T.Resize(2.5), "size"),
        (lambda: T.Resize((1, 2, 3)), "size"),
        (lambda: T.Resize(70000), "size"),
        (lambda: T.Resize(10, interpolation="cubic"), "interpolation"),
        (lambda: T.Resize(10, interpolation=9), "interpolation"),
        (lambda: T.Resize(10, max_size=10), "max_size"),
        (lambda: T.Resize((10, 10), max_size=20), "max_size"),
        (lambda: T.Resize(10, antialias=False), "antialias"),
        (lambda: T.CenterCrop(True), "size"),
        (lambda: T.RandomCrop(8, padding=(1, 2, 3)), "padding"),
        (lambda: T.RandomCrop(8, padding=-1), "padding"),
        (lambda: T.RandomCrop(8, padding_mode="wrap"), "padding_mode"),
        (lambda: T.RandomCrop(8, fill=256), "fill"),
        (lambda: T.RandomResizedCrop(8, scale=(0.5, 0.1)), "scale"),
        (lambda: T.RandomResizedCrop(8, scale=0.5), "scale"),
        (lambda: T.RandomResizedCrop(8, ratio=(0.0, 1.0)), "ratio"),
        (lambda: T.RandomResizedCrop(8, ratio=(1.0, float("nan"))), "ratio"),
        (lambda: T.RandomResizedCrop(8, antialias=False), "antialias"),
        (lambda: T.RandomHorizontalFlip(1.5), "p"),
        (lambda: T.RandomVerticalFlip("often"), "p"),
        (lambda: T.ColorJitter(brightness=-1), "brightness"),
        (lambda: T.ColorJitter(contrast=(0.5, 0.1)), "contrast"),
        (lambda: T.ColorJitter(saturation=(-1, 1)), "saturation"),
        (lambda: T.ColorJitter(hue=0.6), "hue"),
        (lambda: T.ColorJitter(hue=(-0.6, 0)), "hue"),
        (lambda: T.Grayscale(2), "num_output_channels"),
        (lambda: T.Normalize((0.5, 0.5), (1, 1)), "mean"),
        (lambda: T.Normalize(0.5, (1, 1, 1)), "std"),
        (lambda: T.Normalize(0.5, 0), "std"),
        (lambda: T.Normalize(0.5, "1"), "std"),
        (lambda: T.ToDtype("float64"), "dtype"),
        (lambda: T.RandomErasing(p=2), "p"),
        (lambda: T.RandomErasing(scale=(0.1, 1.5)), "scale"),
        (lambda: T.RandomErasing(ratio=(-1, 1)), "ratio"),
        (lambda: T.RandomErasing(value="noise"), "value"),
    ],
)
def test_a_wrong_argument_is_named(make, argument):
    with pytest.raises(ValueError, match=rf"^{argument}\b"):
        make()


def test_a_transform_prints_as_it_is_written():
    assert repr(T.RandomHorizontalFlip()) == "RandomHorizontalFlip(p=0.5)"
    assert repr(T.CenterCrop(224)) == "CenterCrop(size=(224, 224))"
    assert repr(T.ToTensor()) == "ToTensor()"
    assert "interpolation='bicubic'" in repr(T.Resize(256, interpolation=3))


def test_transforms_are_values():
    assert T.Resize(8) == T.Resize([8])
    assert hash(T.Normalize([0.5], [0.5])) == hash(T.Normalize(0.5, 0.5))
    with pytest.raises(dataclasses.FrozenInstanceError):
        T.Resize(8).size = 9


@pytest.mark.parametrize("value", ["bicubic", "BICUBIC", 3, InterpolationMode.BICUBIC])
def test_interpolation_may_be_a_name_a_number_or_an_enum(value):
    assert T.Resize(8, value) == T.Resize(8, "bicubic")


def test_arguments_may_be_numpy_numbers():
    assert T.Resize(np.int64(8)) == T.Resize(8)
    mean = np.array([0.1, 0.2, 0.3])
    assert T.Normalize(mean, mean) == T.Normalize((0.1, 0.2, 0.3), (0.1, 0.2, 0.3))


def test_ops_that_are_no_transforms_are_refused(folder):
    with pytest.raises(TypeError, match="transforms"):
        penstock.Loader(folder, ["resize"])


def test_three_means_do_not_fit_one_channel(folder):
    ops = [T.Resize((8, 8)), T.Grayscale(), T.ToTensor(), T.Normalize((0, 0, 0), (1, 1, 1))]
    with pytest.raises(ValueError, match="1 channel"):
        penstock.Loader(folder, ops)


def test_a_line_without_one_output_size_is_refused(folder):
    with pytest.raises(ValueError, match=r"Resize|size"):
        penstock.Loader(folder, [T.Resize(32)])
    with pytest.raises(ValueError, match="Normalize"):
        penstock.Loader(folder, [T.CenterCrop(8), T.Normalize(0.5, 0.5)])


# One sample at a time


@pytest.fixture
def data(folder):
    return penstock.Dataset(folder).read(0)


def test_draw_tells_what_apply_does(data, ops):
    params = penstock.draw(data, ops, seed=3, epoch=1, sample=7)
    kinds = [p["kind"] for p in params]
    assert kinds == ["Decode", *(type(op).__name__ for op in ops)]
    drawn = penstock.apply(data, ops, seed=3, epoch=1, sample=7)
    given = penstock.apply(data, ops, params, seed=3, epoch=1, sample=7)
    assert bytes(drawn) == bytes(given)


def test_parameters_depend_on_every_part_of_the_key(data, ops):
    def drawn(**key):
        return penstock.draw(data, ops, **key)

    assert drawn(seed=1) == drawn(seed=1)
    keys = [{}, {"seed": 1}, {"epoch": 1}, {"sample": 1}, {"occurrence": 1}, {"seed": 2**64 - 1}]
    assert len({repr(drawn(**key)) for key in keys}) == len(keys)


def test_given_parameters_are_followed(data):
    ops = [T.RandomCrop(16), T.RandomHorizontalFlip(0.0)]
    params = penstock.draw(data, ops)
    params[1] |= {"x": 3, "y": 5}
    params[2] |= {"applied": True}
    got = np.asarray(penstock.apply(data, ops, params, layout="NHWC"))
    pixels = np.asarray(penstock.decode(data))
    assert np.array_equal(got, pixels[5:21, 3:19][:, ::-1])


def test_parameters_that_do_not_fit_are_refused(data):
    ops = [T.RandomCrop(16)]
    params = penstock.draw(data, ops)
    for wrong in (
        params[:1],
        [],
        [{}, {}],
        [params[0], params[1] | {"x": 10**6}],
        [params[0], params[1] | {"w": 2**40}],
        [params[0], params[1] | {"colour": 1}],
        [params[1], params[0]],
    ):
        with pytest.raises(ValueError, match=r"\w"):
            penstock.apply(data, ops, wrong)


def test_apply_gives_one_image_without_a_batch_dimension(data, ops):
    assert penstock.apply(data, ops).shape == (3, 32, 32)
    assert penstock.apply(data, ops, layout="NHWC", dtype="float16").dtype == "float16"


def test_decode_gives_the_whole_image_or_a_window(data):
    info = penstock.probe(data)
    pixels = np.asarray(penstock.decode(data))
    assert pixels.shape == (info["height"], info["width"], 3)
    window = np.asarray(penstock.decode(data, window=(4, 2, 10, 9)))
    assert np.array_equal(window, pixels[2:11, 4:14])
    assert penstock.decode(memoryview(data), channels=1).shape == (*pixels.shape[:2], 1)


@pytest.mark.parametrize("window", [(0, 0, 10**6, 1), (0, 0, 0, 5), (-1, 0, 5, 5), (39, 0, 5, 5)])
def test_a_window_outside_the_image_is_refused(data, window):
    with pytest.raises(ValueError, match=r"\w"):
        penstock.decode(data, window=window)


def test_a_seed_outside_64_bits_is_refused(data, ops, folder):
    for seed in (-1, 2**64):
        with pytest.raises(ValueError, match="seed"):
            penstock.draw(data, ops, seed=seed)
        with pytest.raises(ValueError, match="seed"):
            penstock.Loader(folder, ops, seed=seed)
