"""Every augmentation gives the bytes of torchvision's PIL path, given what was drawn.

Parameters are drawn by penstock; torchvision's functional calls (its _apply_op for
AutoAugment and its relatives) then do the same with them.  Images are noise in PNG files,
so decoding loses nothing and any difference is an operation's.
"""

import io
import random
from fractions import Fraction

import pytest

penstock = pytest.importorskip("penstock")
Image = pytest.importorskip("PIL.Image")
torch = pytest.importorskip("torch")

from pil_path import import_torchvision, noise, png, to_bytes  # noqa: E402

from penstock import transforms as T  # noqa: E402

transforms = import_torchvision()
functional = transforms.functional
Mode = transforms.InterpolationMode
apply_primitive = transforms.autoaugment._apply_op

WARP_MODES = ("nearest", "bilinear", "bicubic")
FILLS = (0, 77, (200, 10, 90))

# What each operation is on the PIL path, given the parameters that were drawn.


def pad(image, _, op):
    return functional.pad(image, list(op.padding), fill_of(image, op), op.padding_mode)


def color_jitter(image, drawn, op):
    names = ("brightness", "contrast", "saturation", "hue")
    for which in drawn["order"]:
        if getattr(op, names[which]):
            image = getattr(functional, "adjust_" + names[which])(image, drawn["factor"][which])
    return image


def rotation(image, drawn, op):
    return functional.rotate(
        image, drawn["angle"], Mode(op.interpolation), op.expand, op.center, fill_of(image, op)
    )


def affine(image, drawn, op):
    return functional.affine(
        image,
        drawn["angle"],
        list(drawn["translate"]),
        drawn["scale"],
        list(drawn["shear"]),
        Mode(op.interpolation),
        fill_of(image, op),
        op.center,
    )


def corners(image, drawn):
    """What functional.perspective calls startpoints and endpoints."""
    right, bottom = image.width - 1, image.height - 1
    points = drawn["points"]
    return (
        [[0, 0], [right, 0], [right, bottom], [0, bottom]],
        [list(points[i : i + 2]) for i in range(0, 8, 2)],
    )


def true_coefficients(start, end):
    """The solution of functional._get_perspective_coeffs's equations, then rounded to float32."""
    rows = []
    for (x, y), (u, v) in zip(end, start, strict=True):
        rows.append([*map(Fraction, (x, y, 1, 0, 0, 0, -u * x, -u * y, u))])
        rows.append([*map(Fraction, (0, 0, 0, x, y, 1, -v * x, -v * y, v))])
    for i in range(8):
        pivot = next(row for row in range(i, 8) if rows[row][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for row in range(8):
            if row != i:
                factor = rows[row][i]
                rows[row] = [a - factor * b for a, b in zip(rows[row], rows[i], strict=True)]
    return torch.tensor([float(row[8]) for row in rows], dtype=torch.float32).tolist()


def perspective(image, drawn, op):
    """With the true coefficients: torch's least squares misses their last bit now and then."""
    coefficients = true_coefficients(*corners(image, drawn))
    return transforms._functional_pil.perspective(
        image,
        coefficients,
        {"nearest": 0, "bilinear": 2, "bicubic": 3}[op.interpolation],
        fill_of(image, op),
    )


def blur(image, drawn, op):
    return functional.gaussian_blur(image, list(op.kernel_size), [drawn["sigma"]] * 2)


def primitives(image, drawn, op):
    for name, magnitude in drawn["steps"]:
        image = apply_primitive(image, name, magnitude, Mode(op.interpolation), fill_of(image, op))
    return image


def affine_grid(theta, w, h, ow, oh):
    """torchvision's _gen_affine_grid with the product's order of operations spelled out.

    torch leaves it to its matrix library, which adds the three terms otherwise on processors of
    another make; the stream must not. This is what it does on Intel's.
    """
    x = torch.arange(ow) - (ow - 1) * 0.5
    y = (torch.arange(oh) - (oh - 1) * 0.5)[:, None]
    axes = []
    for (a, b, c), size in zip(theta[0], (w, h), strict=True):
        a, b, c = a / (0.5 * size), b / (0.5 * size), c / (0.5 * size)
        first = x * a
        fused = (y.double() * b.double() + first.double()).float()
        axes.append((first + y * b if 6 * ow * oh < 400 else fused) + c)
    return torch.stack(axes, dim=-1)[None]


@pytest.fixture(autouse=True)
def same_grid(monkeypatch):
    monkeypatch.setattr(transforms._functional_tensor, "_gen_affine_grid", affine_grid)


def aug_mix(image, drawn, op):
    """The loops of torchvision's AugMix, which works on tensors."""
    batch = functional.pil_to_tensor(image)[None]
    weights = torch.tensor(drawn["weights"], dtype=torch.float32)[:, None, None, None, None]
    mix = weights[0] * batch
    for chain, weight in zip(drawn["chains"], weights[1:], strict=True):
        augmented = batch
        for name, magnitude in chain:
            augmented = apply_primitive(augmented, name, magnitude, Mode(op.interpolation), op.fill)
        mix.add_(weight * augmented)
    return functional.to_pil_image(mix[0].to(torch.uint8))


def fill_of(image, op):
    return op.fill if image.mode == "RGB" else op.fill[0]


REFERENCE = {
    T.CenterCrop: lambda image, _, op: functional.center_crop(image, list(op.size)),
    T.RandomCrop: lambda image, p, op: functional.crop(image, p["y"], p["x"], p["h"], p["w"]),
    T.Resize: lambda image, _, op: functional.resize(image, list(op.size), Mode(op.interpolation)),
    T.RandomHorizontalFlip: lambda image, *_: functional.hflip(image),
    T.RandomVerticalFlip: lambda image, *_: functional.vflip(image),
    T.Grayscale: lambda image, _, op: functional.to_grayscale(image, op.num_output_channels),
    T.RandomGrayscale: lambda image, *_: functional.rgb_to_grayscale(image, len(image.getbands())),
    T.RandomInvert: lambda image, *_: functional.invert(image),
    T.RandomAutocontrast: lambda image, *_: functional.autocontrast(image),
    T.RandomEqualize: lambda image, *_: functional.equalize(image),
    T.RandomPosterize: lambda image, _, op: functional.posterize(image, op.bits),
    T.RandomSolarize: lambda image, _, op: functional.solarize(image, op.threshold),
    T.RandomAdjustSharpness: lambda image, _, op: functional.adjust_sharpness(
        image, op.sharpness_factor
    ),
    T.Pad: pad,
    T.ColorJitter: color_jitter,
    T.RandomRotation: rotation,
    T.RandomAffine: affine,
    T.RandomPerspective: perspective,
    T.GaussianBlur: blur,
    T.AutoAugment: primitives,
    T.RandAugment: primitives,
    T.TrivialAugmentWide: primitives,
    T.AugMix: aug_mix,
}
GROUPS = (T.Compose, T.RandomApply, T.RandomChoice, T.RandomOrder)


def count(op):
    """How many parameters belong to an operation and what it holds."""
    return 1 + sum(map(count, op.transforms)) if isinstance(op, GROUPS) else 1


def apply_tree(image, op, drawn):
    """Do what the first of `drawn` says, with the members behind it."""
    if not isinstance(op, GROUPS):
        return REFERENCE[type(op)](image, drawn[0], op) if drawn[0]["applied"] else image
    starts = [1 + sum(map(count, op.transforms[:i])) for i in range(len(op.transforms))]
    for member in drawn[0]["order"]:
        image = apply_tree(image, op.transforms[member], drawn[starts[member] :])
    return image


def assert_same(image, ops, seed=0, data=None):
    """penstock and the PIL path agree on the bytes; `data` is the image where it is no PNG."""
    data = data or png(image)
    key = {"seed": seed, "epoch": 1, "sample": seed}
    drawn = penstock.draw(data, ops, **key)
    decode = [T.Decode()] if not isinstance(ops[0], T.Decode) else []
    want = image.convert("RGB" if decode else ops[0].mode)
    at = 0
    for op in [*decode, *ops]:
        if not isinstance(op, T.Decode):
            want = apply_tree(want, op, drawn[at:])
        at += count(op)
    assert at == len(drawn)
    want = functional.pil_to_tensor(want)
    got = torch.from_dlpack(penstock.apply(data, ops, **key))
    given = torch.from_dlpack(penstock.apply(data, ops, drawn, **key))
    assert to_bytes(got) == to_bytes(given)
    assert tuple(got.shape) == tuple(want.shape)
    if to_bytes(got) != to_bytes(want):
        differing = (got != want).sum().item()
        pytest.fail(f"{differing} of {got.numel()} values differ: {image.size} {ops} {drawn}")


def own_size(image):
    return T.CenterCrop((image.height, image.width))


def some_image(seed, low=1, high=80):
    rng = random.Random(seed)
    mode = rng.choice(("RGB", "RGB", "L"))
    return noise(rng, rng.randint(low, high), rng.randint(low, high), mode)


def with_mode(ops, seed):
    """A pipeline of one channel, now and then."""
    return [T.Decode(mode="L"), *ops] if seed % 5 == 4 else ops


@pytest.mark.parametrize(
    "op",
    [
        T.RandomGrayscale(0.7),
        T.RandomInvert(0.7),
        T.RandomAutocontrast(1.0),
        T.RandomEqualize(1.0),
        T.RandomPosterize(3, 0.9),
        T.RandomPosterize(1, 1.0),
        T.RandomPosterize(8, 1.0),
        T.RandomSolarize(128, 0.9),
        T.RandomSolarize(63.5, 1.0),
        T.RandomAdjustSharpness(0.0, 1.0),
        T.RandomAdjustSharpness(2.0, 0.9),
        T.RandomAdjustSharpness(0.37, 1.0),
        T.ColorJitter(0.4, 0.4, 0.4, 0.1),
    ],
    ids=repr,
)
@pytest.mark.parametrize("seed", range(10))
def test_tones(op, seed):
    image = some_image(seed)
    assert_same(image, with_mode([own_size(image), op], seed), seed)


@pytest.mark.parametrize("padding_mode", ["constant", "edge", "reflect", "symmetric"])
@pytest.mark.parametrize("seed", range(10))
def test_pad(padding_mode, seed):
    rng = random.Random(seed)
    image = some_image(seed, low=9)
    fill = (3, 200, 90) if seed % 5 != 4 else 17
    op = T.Pad(tuple(rng.randint(0, 8) for _ in range(4)), fill, padding_mode)
    assert_same(image, with_mode([own_size(image), op], seed), seed)
    size = (
        image.height + op.padding[1] + op.padding[3],
        image.width + op.padding[0] + op.padding[2],
    )
    assert_same(image, with_mode([op, T.CenterCrop(size)], seed), seed)


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("mode", WARP_MODES)
@pytest.mark.parametrize("seed", range(12))
def test_rotation(mode, fill, seed):
    rng = random.Random(seed)
    image = some_image(seed)
    center = (rng.randint(0, image.width), rng.uniform(0, image.height)) if seed % 3 == 0 else None
    op = T.RandomRotation(180, mode, False, center, fill)
    assert_same(image, with_mode([own_size(image), op], seed), seed)


@pytest.mark.parametrize("mode", WARP_MODES)
@pytest.mark.parametrize("seed", range(12))
def test_rotation_that_expands(mode, seed):
    image = some_image(seed)
    center = (3, 5) if seed % 3 == 0 else None
    op = T.RandomRotation(180, mode, True, center, (9, 200, 40))
    assert_same(image, [op, T.CenterCrop((50, 60))], seed)
    assert_same(image, [op, T.Resize((50, 60))], seed)


@pytest.mark.parametrize("angle", [0, 90, 180, 270, -90, 360, 45])
@pytest.mark.parametrize("expand", [False, True])
def test_rotation_by_quarters(angle, expand):
    for size in ((20, 31), (24, 24)):
        image = noise(random.Random(angle), *size)
        op = T.RandomRotation((angle, angle), "nearest", expand)
        assert_same(image, [op, T.CenterCrop((40, 40))])


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("mode", WARP_MODES)
@pytest.mark.parametrize("seed", range(12))
def test_affine(mode, fill, seed):
    rng = random.Random(seed)
    image = some_image(seed)
    center = (rng.uniform(0, image.width), rng.randint(0, image.height)) if seed % 3 == 0 else None
    shear = (None, 20, (-10, 30), (-10, 30, -20, 20))[seed % 4]
    op = T.RandomAffine(40, (0.2, 0.3), (0.6, 1.7), shear, mode, fill, center)
    assert_same(image, with_mode([own_size(image), op], seed), seed)


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("mode", WARP_MODES)
@pytest.mark.parametrize("seed", range(12))
def test_perspective(mode, fill, seed):
    image = some_image(seed)
    op = T.RandomPerspective((0.5, 1.0, 0.1)[seed % 3], 0.9, mode, fill)
    assert_same(image, with_mode([own_size(image), op], seed), seed)


def test_perspective_is_nearly_always_what_torch_makes_of_it():
    n_same, op = 0, T.RandomPerspective(p=1.0)
    for seed in range(50):
        image = noise(random.Random(seed), 64, 48)
        data, ops = png(image), [own_size(image), op]
        drawn = penstock.draw(data, ops, sample=seed)[-1]
        want = functional.perspective(image, *corners(image, drawn), Mode.BILINEAR, 0)
        got = penstock.apply(data, ops, sample=seed, layout="NHWC")
        n_same += bytes(got) == want.tobytes()
    assert n_same >= 45


@pytest.mark.parametrize("mode", WARP_MODES)
@pytest.mark.parametrize("seed", range(12))
def test_blur_and_warp_of_larger_images(mode, seed):
    image = some_image(seed, low=100, high=300)
    ops = [
        T.RandomRotation(30, mode, fill=(1, 2, 3)),
        T.GaussianBlur((5, 9)),
        T.RandomAffine((-90, 90), shear=10, interpolation=mode),
    ]
    assert_same(image, with_mode([own_size(image), ops[seed % 3]], seed), seed)


@pytest.mark.parametrize("kernel", [1, 3, 5, (9, 3), 23])
@pytest.mark.parametrize("seed", range(8))
def test_gaussian_blur(kernel, seed):
    image = some_image(seed, low=12)
    op = T.GaussianBlur(kernel, (0.1, 3.0))
    assert_same(image, with_mode([own_size(image), op], seed), seed)


@pytest.mark.parametrize("op", [T.RandAugment, T.TrivialAugmentWide], ids=lambda op: op.__name__)
@pytest.mark.parametrize("mode", WARP_MODES)
@pytest.mark.parametrize("fill", [None, (200, 10, 90)])
def test_rand_and_trivial_augment(op, mode, fill):
    for seed in range(60):
        image = some_image(seed, low=4)
        assert_same(
            image, with_mode([own_size(image), op(interpolation=mode, fill=fill)], seed), seed
        )


@pytest.mark.parametrize("policy", ["imagenet", "cifar10", "svhn"])
@pytest.mark.parametrize("fill", [None, (200, 10, 90)])
def test_auto_augment(policy, fill):
    for seed in range(80):
        image = some_image(seed, low=4)
        mode = WARP_MODES[seed % 3]
        op = T.AutoAugment(policy, mode, fill)
        assert_same(image, with_mode([own_size(image), op], seed), seed)


@pytest.fixture
def one_thread():
    """Sums of torch depend on how many threads share them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("severity", [1, 3, 10])
def test_aug_mix(mode, severity, one_thread):
    for seed in range(40):
        image = some_image(seed, low=4)
        op = T.AugMix(severity, interpolation=mode, chain_depth=(-1, 1, 4)[seed % 3])
        assert_same(image, with_mode([own_size(image), op], seed), seed)


GROUPED = [
    T.RandomApply([T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.RandomInvert()], p=0.8),
    T.RandomChoice([T.RandomRotation(30), T.RandomHorizontalFlip(1.0), T.GaussianBlur(3)]),
    T.RandomChoice([T.RandomInvert(1.0), T.RandomPosterize(2, 1.0)], p=[0.2, 0.8]),
    T.RandomOrder([T.RandomSolarize(100, 1.0), T.RandomEqualize(1.0), T.RandomInvert(0.5)]),
    T.RandomChoice(
        [
            T.Compose([]),
            T.Compose([T.Pad(3, (9, 8, 7)), T.RandomCrop((16, 16))]),
            T.RandomOrder(
                [
                    T.RandomApply([T.Resize((20, 30)), T.RandomAffine(30, fill=(1, 2, 3))], 0.7),
                    T.CenterCrop((18, 22)),
                ]
            ),
        ]
    ),
]


@pytest.mark.parametrize("group", GROUPED, ids=range(len(GROUPED)))
def test_groups(group):
    for seed in range(30):
        image = some_image(seed, low=16)
        assert_same(image, [own_size(image), group, T.CenterCrop((24, 24))], seed)
        assert_same(image, [group, T.CenterCrop((24, 24))], seed)


def test_a_crop_in_a_group_is_no_window_for_what_stands_beside_it():
    """Resize followed by a crop is one step, but not where one of the two is chosen."""
    group = T.RandomChoice([T.Resize((30, 30)), T.CenterCrop((20, 20))])
    for seed in range(10):
        assert_same(some_image(seed, low=20), [group, T.Resize((10, 10))], seed)


def test_a_group_that_begins_with_a_resize_of_a_jpeg():
    """Rows go from the decoder into a resize that comes first, whoever chose it."""
    ways = [
        T.Resize((30, 34)),
        T.Compose([T.RandomHorizontalFlip(1.0), T.Resize((20, 64))]),
        T.Compose([T.Resize((90, 21), "bicubic"), T.RandomInvert(1.0)]),
    ]
    for seed in range(12):
        file = io.BytesIO()
        some_image(seed, low=40, high=90).save(file, "JPEG", quality=90)
        image, data = Image.open(file), file.getvalue()
        assert_same(image, [T.RandomChoice(ways), T.CenterCrop((40, 40))], seed, data)


@pytest.mark.parametrize("seed", range(20))
def test_a_long_line_of_everything(seed):
    image = some_image(seed, low=40, high=120)
    ops = [
        T.Resize((48, 56)),
        T.RandomHorizontalFlip(),
        T.Pad(4, (10, 20, 30)),
        T.RandomApply([T.RandomAffine(15, (0.1, 0.1))], 0.5),
        T.RandAugment(3, 12),
        T.RandomChoice([T.GaussianBlur(5), T.RandomAdjustSharpness(2.0)], [3, 1]),
        T.RandomOrder([T.RandomGrayscale(0.3), T.TrivialAugmentWide(), T.RandomInvert(0.2)]),
        T.RandomRotation(10, "bilinear", True),
        T.CenterCrop(50),
    ]
    assert_same(image, ops, seed)
