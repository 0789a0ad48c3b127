"""Compiled augmentations: pinned to one strength they give torchvision's pixels."""

import pytest

torch = pytest.importorskip("torch")
v1 = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")
from torchvision.datasets import ImageFolder  # noqa: E402

from compile_checks import Halve, assert_exact, levels_off  # noqa: E402
from penstock import transforms as T  # noqa: E402
from penstock.torch.compiled import Compiled, compile_dataset  # noqa: E402

BOTH = pytest.mark.parametrize("t", [v1, v2], ids=["v1", "v2"])
Mode = v1.InterpolationMode


def line(t, *ops):
    return t.Compose([t.Resize((30, 26)), *ops, t.PILToTensor()])


def compiled(root, *ops, t=v1, exact=False):
    result = compile_dataset(ImageFolder(root, line(t, *ops)), exact=exact)
    assert isinstance(result, Compiled)
    return result


BY_CHANCE = [
    ("RandomInvert", {}),
    ("RandomPosterize", {"bits": 3}),
    ("RandomSolarize", {"threshold": 100}),
    ("RandomSolarize", {"threshold": 100.5}),
    ("RandomAdjustSharpness", {"sharpness_factor": 2}),
    ("RandomAdjustSharpness", {"sharpness_factor": 0.3}),
    ("RandomAutocontrast", {}),
    ("RandomEqualize", {}),
    ("RandomGrayscale", {}),
]


@BOTH
@pytest.mark.parametrize(("name", "arguments"), BY_CHANCE, ids=str)
@pytest.mark.parametrize("p", [0, 1])
def test_operations_by_chance(noises, t, name, arguments, p):
    assert_exact(noises, line(t, getattr(t, name)(**arguments, p=p)))


@BOTH
@pytest.mark.parametrize(
    "name", ["RandomInvert", "RandomEqualize", "RandomPosterize", "RandomSolarize"]
)
def test_some_are_the_same_on_tensors_of_bytes(noises, t, name):
    arguments = {"RandomPosterize": {"bits": 5}, "RandomSolarize": {"threshold": 99}}.get(name, {})
    op = getattr(t, name)(**arguments, p=1)
    assert_exact(noises, t.Compose([t.Resize((30, 26)), t.PILToTensor(), op]))


@BOTH
@pytest.mark.parametrize("name", ["RandomAutocontrast", "RandomAdjustSharpness", "RandomGrayscale"])
def test_some_are_a_level_off_on_tensors_of_bytes(noises, t, name):
    arguments = {"sharpness_factor": 1.7} if name == "RandomAdjustSharpness" else {}
    op = getattr(t, name)(**arguments, p=1)
    assert levels_off(noises, t.Compose([t.Resize((30, 26)), t.PILToTensor(), op])) <= 1


@BOTH
@pytest.mark.parametrize("padding", [3, (3,), (1, 4), (1, 2, 3, 4)], ids=str)
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
def test_pad(noises, t, padding, mode):
    pad = t.Pad(padding, padding_mode=mode)
    assert_exact(noises, line(t, pad))
    assert_exact(noises, t.Compose([t.Resize((30, 26)), t.ToTensor(), pad]))
    if mode == "constant":
        assert_exact(noises, line(t, t.Pad(padding, fill=(5, 100, 250))))


@BOTH
@pytest.mark.parametrize("mode", [Mode.NEAREST, Mode.BILINEAR, Mode.BICUBIC], ids=str)
def test_rotation_and_perspective(noises, t, mode):
    turn = t.RandomRotation((33, 33), mode, fill=(1, 2, 3))
    assert_exact(noises, line(t, turn))
    assert_exact(noises, line(t, t.RandomRotation((-70, -70), mode, center=(3, 5))))
    expand = [t.RandomRotation((40, 40), mode, expand=True), t.CenterCrop(24)]
    assert_exact(noises, line(t, *expand))
    still = line(t, t.RandomPerspective(0, 1, mode))
    if mode is Mode.NEAREST:
        assert_exact(noises, still)
    else:
        assert levels_off(noises, still) <= 1


@BOTH
@pytest.mark.parametrize("mode", [Mode.NEAREST, Mode.BILINEAR, Mode.BICUBIC], ids=str)
def test_affine(noises, t, mode):
    for arguments in (
        {"degrees": (25, 25)},
        {"degrees": 0, "scale": (1.3, 1.3), "fill": (1, 2, 3)},
        {"degrees": (-50, -50), "shear": (10, 10, -5, -5), "center": (4, 9)},
        {"degrees": 0, "shear": (20, 20)},
    ):
        transform = line(t, t.RandomAffine(**arguments, interpolation=mode))
        if t is v2 and mode is not Mode.NEAREST:
            assert levels_off(noises, transform) <= 1
        else:
            assert_exact(noises, transform)


@BOTH
@pytest.mark.parametrize("kernel", [3, (5, 7)])
@pytest.mark.parametrize("sigma", [0.4, 1.3])
def test_blur(noises, t, kernel, sigma):
    assert levels_off(noises, line(t, t.GaussianBlur(kernel, (sigma, sigma)))) <= 1


@BOTH
def test_arguments_of_random_augmentations_arrive(noises, t):
    result = compiled(
        noises,
        t.RandomRotation((-5, 30), Mode.BILINEAR, True, (1, 2), 7),
        t.RandomAffine(10, (0.1, 0.2), (0.8, 1.2), (-3, 3, -4, 4), Mode.NEAREST, 9, (3, 4)),
        t.RandomPerspective(0.3, 0.7, Mode.BICUBIC, (1, 2, 3)),
        t.GaussianBlur((3, 5), (0.2, 1.5)),
        t.RandomGrayscale(0.2),
        t.Pad((1, 2), 3, "edge"),
        t.AutoAugment(v1.AutoAugmentPolicy.SVHN, Mode.BILINEAR, [1, 2, 3]),
        t.RandAugment(3, 7, 21, Mode.BILINEAR, [4, 5, 6]),
        t.TrivialAugmentWide(11, Mode.BICUBIC),
        t.AugMix(4, 2, 3, 0.5, False, Mode.BILINEAR),
        t.CenterCrop(20),
        t=t,
    )
    assert result.is_native, result.steps
    assert T.specs(result.ops) == T.specs(
        [
            T.Resize((30, 26)),
            T.RandomRotation((-5, 30), "bilinear", True, (1, 2), 7),
            T.RandomAffine(10, (0.1, 0.2), (0.8, 1.2), (-3, 3, -4, 4), "nearest", 9, (3, 4)),
            T.RandomPerspective(0.3, 0.7, "bicubic", (1, 2, 3)),
            T.GaussianBlur((3, 5), (0.2, 1.5)),
            T.RandomGrayscale(0.2),
            T.Pad((1, 2), padding_mode="edge"),
            T.AutoAugment("svhn", "bilinear", (1, 2, 3)),
            T.RandAugment(3, 7, 21, "bilinear", (4, 5, 6)),
            T.TrivialAugmentWide(11, "bicubic"),
            T.AugMix(4, 2, 3, 0.5, False, "bilinear"),
            T.CenterCrop(20),
        ]
    )


def test_policies_of_v1_are_exact_and_v2_says_what_differs(noises):
    for name in ("AutoAugment", "RandAugment", "TrivialAugmentWide", "AugMix"):
        assert compiled(noises, getattr(v1, name)(), exact=True).is_native
        assert "thresholds" in compiled(noises, getattr(v2, name)(), t=v2, exact=True).reason
        assert compiled(noises, getattr(v2, name)(), t=v2).is_native


@BOTH
def test_groups(noises, t):
    flip, invert = t.RandomHorizontalFlip(1), t.RandomInvert(1)
    assert_exact(noises, line(t, t.RandomApply([flip, invert], 1)))
    assert_exact(noises, line(t, t.RandomApply(torch.nn.ModuleList([flip, invert]), 0)))
    assert_exact(noises, line(t, t.RandomChoice([flip, invert], p=[0, 1])))
    assert_exact(noises, line(t, t.RandomOrder([flip, invert])))
    nested = t.RandomChoice([t.Compose([flip, t.RandomApply([invert], 1)])])
    assert_exact(noises, line(t, nested))


def test_groups_keep_what_they_hold(noises):
    jitter, native = v1.ColorJitter(0.4, 0.4), T.ColorJitter((0.6, 1.4), (0.6, 1.4))
    result = compiled(
        noises,
        v1.RandomApply([jitter, v1.RandomGrayscale(0.3)], 0.7),
        v1.RandomChoice([jitter, v1.RandomInvert(0.2)], [1, 3]),
        v1.RandomChoice([jitter]),
        v1.RandomOrder([v1.RandomInvert(0.2), jitter]),
    )
    assert result.is_native
    assert T.specs(result.ops[1:]) == T.specs(
        [
            T.RandomApply([native, T.RandomGrayscale(0.3)], 0.7),
            T.RandomChoice([native, T.RandomInvert(0.2)], [1, 3]),
            T.RandomChoice([native]),
            T.RandomOrder([T.RandomInvert(0.2), native]),
        ]
    )


def test_a_groups_size_is_known_only_if_all_ways_lead_to_it(noises):
    crop, other = v1.RandomCrop(20), v1.RandomCrop(18)
    for group, is_sized in (
        (v1.RandomApply([crop], 0.5), False),
        (v1.RandomChoice([crop, other]), False),
        (v1.RandomChoice([crop, v1.CenterCrop(20)]), True),
        (v1.RandomApply([v1.Pad(4), v1.RandomCrop((30, 26))]), True),
    ):
        result = compiled(noises, group, Halve())
        assert (len(result.ops) == 2) == is_sized, group
        if not is_sized:
            assert compiled(noises, group, v1.CenterCrop(16)).is_native


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (v1.RandomApply([Halve()]), "Halve"),
        (v1.RandomChoice([v1.ToTensor(), v1.PILToTensor()]), "changes the type"),
        (v1.RandomOrder([v1.RandomInvert(), v1.Lambda(abs)]), "a Python function"),
        (v1.RandomApply([v1.Grayscale(1)]), "changes the type"),
        (v1.RandomAffine(10, interpolation=Mode.LANCZOS), "interpolation"),
        (v1.RandomRotation(10, fill=300), "fill"),
        (v1.Pad(-3), "padding"),
        (v1.AugMix(mixture_width=40), "mixture_width"),
        (v1.AugMix(fill=[1, 2, 3]), "fill"),
    ],
    ids=str,
)
def test_what_cannot_be_native_is_refused(noises, op, reason):
    result = compiled(noises, op)
    assert result.python_rest[0] is op
    assert reason in result.reason
