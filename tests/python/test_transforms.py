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
        (lambda: T.Pad(-1), "padding"),
        (lambda: T.Pad(1, padding_mode="wrap"), "padding_mode"),
        (lambda: T.Pad(1, fill=300), "fill"),
        (lambda: T.RandomGrayscale(2), "p"),
        (lambda: T.RandomInvert(-0.1), "p"),
        (lambda: T.RandomPosterize(9), "bits"),
        (lambda: T.RandomPosterize(2.5), "bits"),
        (lambda: T.RandomSolarize("dark"), "threshold"),
        (lambda: T.RandomAdjustSharpness(-1), "sharpness_factor"),
        (lambda: T.RandomRotation(-5), "degrees"),
        (lambda: T.RandomRotation((5, 1)), "degrees"),
        (lambda: T.RandomRotation(5, "lanczos"), "interpolation"),
        (lambda: T.RandomRotation(5, center=3), "center"),
        (lambda: T.RandomRotation(5, fill=(1, 2)), "fill"),
        (lambda: T.RandomAffine(5, translate=(0.1, 1.2)), "translate"),
        (lambda: T.RandomAffine(5, scale=(0, 1)), "scale"),
        (lambda: T.RandomAffine(5, shear=(1, 2, 3)), "shear"),
        (lambda: T.RandomAffine(5, shear=(1, 2, 4, 3)), "shear"),
        (lambda: T.RandomPerspective(1.5), "distortion_scale"),
        (lambda: T.GaussianBlur(4), "kernel_size"),
        (lambda: T.GaussianBlur((3, 3, 3)), "kernel_size"),
        (lambda: T.GaussianBlur(3, 0), "sigma"),
        (lambda: T.GaussianBlur(3, (2, 1)), "sigma"),
        (lambda: T.AutoAugment("mnist"), "policy"),
        (lambda: T.RandAugment(0), "num_ops"),
        (lambda: T.RandAugment(2, 31), "magnitude"),
        (lambda: T.TrivialAugmentWide(1), "num_magnitude_bins"),
        (lambda: T.AugMix(severity=11), "severity"),
        (lambda: T.AugMix(mixture_width=9), "mixture_width"),
        (lambda: T.AugMix(chain_depth=11), "chain_depth"),
        (lambda: T.AugMix(alpha=0), "alpha"),
        (lambda: T.AugMix(fill=0), "fill"),
        (lambda: T.AugMix(interpolation="bicubic"), "interpolation"),
        (lambda: T.RandomApply([]), "transforms"),
        (lambda: T.RandomApply(T.RandomInvert()), "transforms"),
        (lambda: T.RandomApply([print]), "transforms"),
        (lambda: T.RandomApply([T.RandomInvert()], 2), "p"),
        (lambda: T.RandomOrder([T.RandomInvert()] * 33), "transforms"),
        (lambda: T.RandomChoice([T.RandomInvert()], [1, 2]), "p"),
        (lambda: T.RandomChoice([T.RandomInvert()], [0]), "p"),
        (lambda: T.RandomChoice([T.RandomInvert()], [-1]), "p"),
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


def test_groups_hold_operations_on_images(data):
    for op in (T.ToTensor(), T.Normalize(0.5, 0.5), T.RandomErasing()):
        with pytest.raises(ValueError, match="cannot be in a group"):
            penstock.draw(data, [T.CenterCrop(8), T.RandomApply([op])])
    with pytest.raises(ValueError, match="channels"):
        penstock.draw(data, [T.CenterCrop(8), T.RandomApply([T.Grayscale(1)])])
    with pytest.raises(ValueError, match="size depends"):
        penstock.draw(data, [T.CenterCrop(8), T.RandomApply([T.CenterCrop(4)])])


def test_an_outer_compose_is_its_operations_written_out(data):
    crop, end = T.RandomCrop(16), [T.ToTensor(), T.Normalize(0.5, 0.5)]
    group = T.RandomApply([T.Compose([T.RandomInvert(1.0)])], 1.0)
    composed = T.Compose([crop, T.Compose([group, T.Compose([])]), T.Compose(end)])
    flat = [crop, group, *end]
    assert penstock.draw(data, composed) == penstock.draw(data, flat)
    assert bytes(penstock.apply(data, composed)) == bytes(penstock.apply(data, flat))
    assert [p["kind"] for p in penstock.draw(data, composed)][2:5] == [
        "RandomApply",
        "Compose",
        "RandomInvert",
    ]


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


EVERYTHING = [
    T.Pad(2, (1, 2, 3)),
    T.RandomApply([T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.RandomGrayscale()], 0.8),
    T.RandomChoice([T.RandomRotation(30), T.RandomAffine(9, (0.1, 0.2), (0.8, 1.2), 8)], [1, 2]),
    T.RandomOrder([T.RandomPerspective(), T.GaussianBlur(3), T.RandomInvert()]),
    T.RandomPosterize(3),
    T.RandomSolarize(99),
    T.RandomAdjustSharpness(2),
    T.RandomAutocontrast(),
    T.RandomEqualize(),
    T.AutoAugment(),
    T.RandAugment(),
    T.TrivialAugmentWide(),
    T.AugMix(),
    T.RandomRotation(20, expand=True),
    T.CenterCrop(24),
]


def test_drawn_parameters_of_every_operation_can_be_given(data):
    kinds = set()
    for sample in range(40):
        params = penstock.draw(data, EVERYTHING, sample=sample)
        kinds |= {p["kind"] for p in params if p["applied"]}
        drawn = penstock.apply(data, EVERYTHING, sample=sample)
        given = penstock.apply(data, EVERYTHING, params, sample=sample)
        assert bytes(drawn) == bytes(given)
    assert len(kinds) == 22  # Decode and 21 others have happened


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("RandomChoice", {"order": (0, 1)}),
        ("RandomChoice", {"order": (5,)}),
        ("RandomChoice", {"order": ("first",)}),
        ("RandomOrder", {"order": (0, 0, 1)}),
        ("RandomOrder", {"order": tuple(range(40))}),
        ("RandomRotation", {"angle": float("nan")}),
        ("RandAugment", {"steps": (("Melt", 0.5),)}),
        ("RandAugment", {"steps": ("Rotate",)}),
        ("RandAugment", {"steps": (("Rotate", "far"),)}),
        ("RandAugment", {"steps": (("Rotate", 1e9),)}),
        ("RandAugment", {"steps": (("Rotate", 1.0),) * 40}),
        ("AugMix", {"chains": ()}),
        ("AugMix", {"weights": (1.0,) * 20}),
        ("AugMix", {"weights": (9.0, 0.0, 0.0, 0.0)}),
        ("Pad", {"order": ()}),
    ],
)
def test_foreign_parameters_of_new_kinds_are_checked(data, kind, change):
    params = penstock.draw(data, EVERYTHING)
    at = max(i for i, p in enumerate(params) if p["kind"] == kind)
    assert params[at]["applied"]
    params[at] = params[at] | change
    with pytest.raises((ValueError, TypeError), match=r"\w"):
        penstock.apply(data, EVERYTHING, params)


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
