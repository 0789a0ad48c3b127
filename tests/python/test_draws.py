"""What is drawn has torchvision's distributions.

Both sides draw a few thousand times from fixed seeds, so every test has one result.
Continuous values are compared by the largest distance between the two empirical
distributions, counts by chi-square; bounds are far beyond what chance gives.
"""

import random
from collections import Counter

import numpy as np
import pytest

penstock = pytest.importorskip("penstock")
torch = pytest.importorskip("torch")

from pil_path import import_torchvision, noise, png  # noqa: E402

from penstock import transforms as T  # noqa: E402
from penstock.sample import pipeline  # noqa: E402

transforms = import_torchvision()
autoaugment = transforms.autoaugment

N = 2500
WIDTH, HEIGHT = 61, 44
IMAGE = noise(random.Random(0), WIDTH, HEIGHT)
SIZE = T.CenterCrop((HEIGHT, WIDTH))


def draws(op, n=N):
    """n times what is drawn for `op` and its members."""
    line, data = pipeline([SIZE, op, SIZE]), png(IMAGE)
    return [line.draw(data, 5, 0, sample, 0)[2:-1] for sample in range(n)]


def assert_same_distribution(ours, theirs):
    """Kolmogorov and Smirnov's distance; chance alone gives this much once in 10,000 times."""
    ours, theirs = np.sort(np.asarray(ours, float)), np.sort(np.asarray(theirs, float))
    values = np.concatenate([ours, theirs])
    below = [np.searchsorted(side, values, "right") / len(side) for side in (ours, theirs)]
    distance = np.abs(below[0] - below[1]).max()
    assert distance < 2.2 * np.sqrt(1 / len(ours) + 1 / len(theirs))


def assert_same_counts(ours, theirs):
    """Chi-square of two counters with equal totals."""
    cells = set(ours) | set(theirs)
    square = sum((ours[c] - theirs[c]) ** 2 / (ours[c] + theirs[c]) for c in cells)
    freedom = len(cells) - 1
    assert square < freedom + 5 * np.sqrt(2 * freedom) + 5, (ours, theirs)


def assert_chances(counts, chances):
    """Chi-square of counts against known chances."""
    n = sum(counts.values())
    assert set(counts) <= {cell for cell, chance in chances.items() if chance > 0}
    square = sum((counts[c] - n * p) ** 2 / (n * p) for c, p in chances.items() if p > 0)
    assert square < len(chances) + 5 * np.sqrt(2 * len(chances)) + 5, counts


@pytest.fixture(autouse=True)
def seeds():
    torch.manual_seed(11)
    random.seed(11)


@pytest.mark.parametrize("degrees", [25, (10, 100)])
def test_rotation(degrees):
    ours = [p["angle"] for (p,) in draws(T.RandomRotation(degrees))]
    theirs = transforms.RandomRotation(degrees)
    assert_same_distribution(ours, [theirs.get_params(theirs.degrees) for _ in range(N)])


@pytest.mark.parametrize(
    "arguments",
    [
        {"degrees": 0},
        {"degrees": 30, "translate": (0.2, 0.5), "scale": (0.5, 2.0), "shear": 12},
        {"degrees": (5, 9), "translate": (1.0, 0.0), "shear": (-5, 20, 3, 4)},
    ],
)
def test_affine(arguments):
    ours = [p for (p,) in draws(T.RandomAffine(**arguments))]
    op = transforms.RandomAffine(**arguments)
    theirs = [
        op.get_params(op.degrees, op.translate, op.scale, op.shear, [WIDTH, HEIGHT])
        for _ in range(N)
    ]
    assert_same_distribution([p["angle"] for p in ours], [p[0] for p in theirs])
    assert_same_distribution([p["scale"] for p in ours], [p[2] for p in theirs])
    for axis in (0, 1):
        moves = Counter(p["translate"][axis] for p in ours)
        assert_same_counts(moves, Counter(p[1][axis] for p in theirs))
        assert_same_distribution([p["shear"][axis] for p in ours], [p[3][axis] for p in theirs])


@pytest.mark.parametrize("scale", [0.1, 0.5, 0.7, 1.0])
def test_perspective(scale):
    ours = [p["points"] for (p,) in draws(T.RandomPerspective(scale, 1.0))]
    theirs = [
        np.ravel(transforms.RandomPerspective.get_params(WIDTH, HEIGHT, scale)[1]).tolist()
        for _ in range(N)
    ]
    for place in range(8):
        assert_same_counts(
            Counter(points[place] for points in ours), Counter(points[place] for points in theirs)
        )


def test_blur():
    ours = [p["sigma"] for (p,) in draws(T.GaussianBlur(3, (0.3, 1.9)))]
    theirs = [transforms.GaussianBlur.get_params(0.3, 1.9) for _ in range(N)]
    assert_same_distribution(ours, theirs)


@pytest.mark.parametrize(
    "op",
    [T.RandomGrayscale(), T.RandomInvert(0.2), T.RandomPosterize(3, 0.9), T.RandomSolarize(9),
     T.RandomAdjustSharpness(2, 0.0), T.RandomAutocontrast(1.0), T.RandomEqualize(0.4),
     T.RandomPerspective(0.5, 0.35), T.RandomApply([T.RandomInvert(1.0)], 0.8)],
    ids=lambda op: type(op).__name__,
)  # fmt: skip
def test_chances(op):
    counts = Counter(drawn[0]["applied"] for drawn in draws(op))
    assert_chances(counts, {True: op.p, False: 1 - op.p})


def test_a_member_happens_only_where_its_group_does():
    op = T.RandomApply([T.RandomInvert(0.5), T.Compose([T.RandomEqualize(1.0)])], 0.3)
    counts = Counter(tuple(p["applied"] for p in drawn) for drawn in draws(op))
    chances = {(True, True, True, True): 0.15, (True, False, True, True): 0.15,
               (False, False, False, False): 0.7}  # fmt: skip
    assert_chances(counts, chances)


@pytest.mark.parametrize("p", [None, [1, 0, 3], [0.25, 0.25, 0.5]])
def test_choice(p):
    op = T.RandomChoice([T.RandomInvert(1.0), T.RandomEqualize(1.0), T.GaussianBlur(3)], p)
    counts = Counter(drawn[0]["order"] for drawn in draws(op))
    weights = p or [1, 1, 1]
    assert_chances(counts, {(i,): w / sum(weights) for i, w in enumerate(weights)})
    for drawn in draws(op, 50):
        (chosen,) = drawn[0]["order"]
        assert [p["applied"] for p in drawn[1:]] == [i == chosen for i in range(3)]


def test_order():
    op = T.RandomOrder([T.RandomInvert(1.0), T.RandomEqualize(1.0), T.GaussianBlur(3)])
    counts = Counter(drawn[0]["order"] for drawn in draws(op))
    assert len(counts) == 6
    assert_chances(counts, dict.fromkeys(counts, 1 / 6))


# AutoAugment and its relatives: what torchvision would do is written down instead of done.


@pytest.fixture
def recorded(monkeypatch):
    steps = []

    def record(image, name, magnitude, **_):
        steps.append((name, magnitude))
        return image

    monkeypatch.setattr(autoaugment, "_apply_op", record)

    def run(transform):
        steps.clear()
        transform(IMAGE)
        return tuple(steps)

    return run


@pytest.mark.parametrize("policy", ["imagenet", "cifar10", "svhn"])
def test_auto_augment(policy, recorded):
    ours = Counter(p["steps"] for (p,) in draws(T.AutoAugment(policy)))
    op = transforms.AutoAugment(transforms.AutoAugmentPolicy(policy))
    assert_same_counts(ours, Counter(recorded(op) for _ in range(N)))


@pytest.mark.parametrize(
    "arguments", [{}, {"num_ops": 1, "magnitude": 0}, {"magnitude": 6, "num_magnitude_bins": 7}]
)
def test_rand_augment(arguments, recorded):
    ours = Counter(p["steps"] for (p,) in draws(T.RandAugment(**arguments)))
    op = transforms.RandAugment(**arguments)
    assert_same_counts(ours, Counter(recorded(op) for _ in range(N)))


@pytest.mark.parametrize("bins", [2, 5, 31])
def test_trivial_augment(bins, recorded):
    ours = Counter(p["steps"] for (p,) in draws(T.TrivialAugmentWide(bins)))
    op = transforms.TrivialAugmentWide(bins)
    assert_same_counts(ours, Counter(recorded(op) for _ in range(N)))


def magnitudes(space):
    """Every (primitive, magnitude) of torchvision's space, signs included."""
    found = set()
    for name, (values, is_signed) in space.items():
        for value in values.reshape(-1).tolist():
            found |= {(name, value), (name, -value)} if is_signed else {(name, value)}
    return found


@pytest.mark.parametrize("bins", [3, 10, 31])
def test_magnitudes_are_those_of_torchvision_to_the_bit(bins):
    ours = {step for (p,) in draws(T.TrivialAugmentWide(bins), 8000) for step in p["steps"]}
    assert ours == magnitudes(transforms.TrivialAugmentWide()._augmentation_space(bins))
    space = transforms.RandAugment()._augmentation_space(bins, (HEIGHT, WIDTH))
    ours = {
        step
        for magnitude in range(bins)
        for (p,) in draws(T.RandAugment(8, magnitude, bins), 60)
        for step in p["steps"]
    }
    assert ours == magnitudes(space)


@pytest.mark.parametrize("arguments", [{}, {"severity": 7, "mixture_width": 5, "all_ops": False,
                                            "chain_depth": 2, "alpha": 0.3}])  # fmt: skip
def test_aug_mix(arguments, recorded, monkeypatch):
    weights = []
    sample = torch._sample_dirichlet

    def remember(parameters):
        weights.append(sample(parameters)[0].tolist())
        return torch.tensor([weights[-1]])

    op = transforms.AugMix(**arguments)
    monkeypatch.setattr(op, "_sample_dirichlet", remember)
    ours = [p for (p,) in draws(T.AugMix(**arguments), 1000)]
    theirs = [recorded(op) for _ in range(1000)]
    assert_same_counts(
        Counter(step for p in ours for chain in p["chains"] for step in chain),
        Counter(step for steps in theirs for step in steps),
    )
    lengths = Counter(sum(map(len, p["chains"])) for p in ours)
    assert_same_counts(lengths, Counter(map(len, theirs)))
    assert_same_distribution([p["weights"][0] for p in ours], [w[0] for w in weights[::2]])
    mixed = [image[1] * chains[0] for image, chains in zip(*[iter(weights)] * 2, strict=True)]
    assert_same_distribution([p["weights"][1] for p in ours], mixed)
    assert max(abs(sum(p["weights"]) - 1) for p in ours) < 1e-6
