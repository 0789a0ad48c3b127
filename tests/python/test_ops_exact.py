"""Every operation gives the bytes of Pillow and torchvision's PIL path.

Parameters are drawn by penstock, then both sides do the same with them.  Images
are noise in PNG files, so decoding loses nothing and any difference is an
operation's.  A leading CenterCrop to the image's own size changes nothing; it is
there because a pipeline's output size must not depend on the image.
"""

import random

import pytest

penstock = pytest.importorskip("penstock")
Image = pytest.importorskip("PIL.Image")
torch = pytest.importorskip("torch")

from pil_path import import_torchvision, noise, png, to_bytes  # noqa: E402

transforms = import_torchvision()
functional = transforms.functional
Mode = transforms.InterpolationMode

FILTERS = (Mode.NEAREST, Mode.BOX, Mode.BILINEAR, Mode.HAMMING, Mode.BICUBIC, Mode.LANCZOS)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


# What each operation is on the PIL path, given the parameters that were drawn.


def apply_resize(image, _, **arguments):
    return transforms.Resize(**arguments)(image)


def apply_center_crop(image, _, size):
    return functional.center_crop(image, list(size))


def apply_random_crop(
    image, drawn, size, padding=(0, 0, 0, 0), pad_if_needed=False, fill=0, padding_mode="constant"
):
    left, top = padding[0], padding[1]
    image = functional.pad(image, list(padding), fill, padding_mode)
    if pad_if_needed:
        wide, high = max(0, size[1] - image.width), max(0, size[0] - image.height)
        image = functional.pad(image, [wide, high], fill, padding_mode)
        left, top = left + wide, top + high
    return functional.crop(image, drawn["y"] + top, drawn["x"] + left, drawn["h"], drawn["w"])


def apply_random_resized_crop(image, drawn, size, interpolation=Mode.BILINEAR, **_):
    return functional.resized_crop(
        image, drawn["y"], drawn["x"], drawn["h"], drawn["w"], list(size), interpolation
    )


def apply_hflip(image, drawn, p=0.5):
    return functional.hflip(image) if drawn["applied"] else image


def apply_vflip(image, drawn, p=0.5):
    return functional.vflip(image) if drawn["applied"] else image


def apply_color_jitter(image, drawn, **arguments):
    names = ("brightness", "contrast", "saturation", "hue")
    for which in drawn["order"]:
        if arguments.get(names[which]):
            adjust = getattr(functional, "adjust_" + names[which])
            image = adjust(image, drawn["factor"][which])
    return image


def apply_grayscale(image, _, num_output_channels=1):
    return functional.to_grayscale(image, num_output_channels)


def apply_to_tensor(image, _):
    return functional.to_tensor(image)


def apply_to_dtype(image, _, dtype=torch.float32, scale=False):
    from torchvision.transforms.v2 import functional

    return functional.to_dtype(functional.pil_to_tensor(image), dtype, scale=scale)


def apply_normalize(tensor, _, mean, std):
    return functional.normalize(tensor, list(mean), list(std))


def apply_erasing(tensor, drawn, value=0, **_):
    if not drawn["applied"]:
        return tensor
    values = torch.tensor(
        value if isinstance(value, (tuple, list)) else [value], dtype=torch.float32
    )
    return functional.erase(
        tensor, drawn["y"], drawn["x"], drawn["h"], drawn["w"], values[:, None, None]
    )


REFERENCE = {
    "Resize": apply_resize,
    "CenterCrop": apply_center_crop,
    "RandomCrop": apply_random_crop,
    "RandomResizedCrop": apply_random_resized_crop,
    "RandomHorizontalFlip": apply_hflip,
    "RandomVerticalFlip": apply_vflip,
    "ColorJitter": apply_color_jitter,
    "Grayscale": apply_grayscale,
    "ToTensor": apply_to_tensor,
    "ToDtype": apply_to_dtype,
    "Normalize": apply_normalize,
    "RandomErasing": apply_erasing,
}


def reference(image, steps, drawn, dtype, layout):
    for (name, arguments), parameters in zip(steps, drawn, strict=True):
        image = REFERENCE[name](image, parameters, **arguments)
    tensor = functional.pil_to_tensor(image) if isinstance(image, Image.Image) else image
    if dtype is not None:
        tensor = tensor.to(getattr(torch, dtype))
    return tensor if layout == "NCHW" else tensor.permute(1, 2, 0)


def assert_same(image, steps, seed=0, dtype=None, layout="NCHW"):
    """penstock and the PIL path agree on the bytes of `steps`, a list of (name, arguments)."""
    data = png(image)
    operations = [getattr(penstock.transforms, name)(**arguments) for name, arguments in steps]
    drawn = penstock.draw(data, operations, seed=seed, epoch=1, sample=seed)
    drawn = drawn[len(drawn) - len(steps) :]  # Decode, where it was added, stands first
    result = penstock.apply(
        data, operations, seed=seed, epoch=1, sample=seed, dtype=dtype, layout=layout
    )
    got = torch.from_dlpack(result)
    want = reference(image.convert("RGB"), steps, drawn, dtype, layout)
    assert tuple(got.shape) == tuple(want.shape)
    assert got.dtype == want.dtype
    if to_bytes(got) != to_bytes(want):
        differing = (got.double() != want.double()).sum().item()
        pytest.fail(f"{differing} of {got.numel()} values differ: {image.size} {steps} {drawn}")


def own_size(image):
    return ("CenterCrop", {"size": (image.height, image.width)})


def sizes(rng):
    """A side: tiny, odd, around a vector's width, or ordinary."""
    return rng.choice(
        (
            rng.randint(1, 4),
            rng.randint(1, 40),
            rng.choice((15, 16, 17, 31, 32, 33)),
            rng.randint(1, 260),
        )
    )


@pytest.mark.parametrize("interpolation", FILTERS, ids=lambda mode: mode.value)
@pytest.mark.parametrize("seed", range(25))
def test_resize_to_a_size(seed, interpolation):
    rng = random.Random(seed)
    image = noise(rng, sizes(rng), sizes(rng), rng.choice(("RGB", "RGB", "L")))
    size = (sizes(rng), sizes(rng))
    assert_same(image, [("Resize", {"size": size, "interpolation": interpolation})])


@pytest.mark.parametrize("interpolation", FILTERS, ids=lambda mode: mode.value)
@pytest.mark.parametrize(
    ("width", "height", "out_width", "out_height"),
    [(1, 1, 9, 9), (9, 9, 1, 1), (1, 2000, 3, 30), (2000, 1, 30, 3), (3, 1500, 200, 2),
     (64, 200, 48, 32), (64, 96, 48, 64), (64, 97, 48, 64), (50, 40, 50, 13), (50, 40, 13, 40),
     (50, 40, 50, 40)],
)  # fmt: skip
def test_resize_of_extreme_shapes_and_either_order_of_passes(
    width, height, out_width, out_height, interpolation
):
    image = noise(random.Random(width * height), width, height)
    size = (out_height, out_width)
    assert_same(image, [("Resize", {"size": size, "interpolation": interpolation})])


@pytest.mark.parametrize("seed", range(30))
def test_resize_of_the_shorter_side_then_center_crop(seed):
    rng = random.Random(seed)
    image = noise(rng, rng.randint(20, 300), rng.randint(20, 300))
    short = rng.randint(10, 120)
    crop = (rng.randint(1, short), rng.randint(1, short))
    steps = [
        ("Resize", {"size": short, "interpolation": rng.choice(FILTERS)}),
        ("CenterCrop", {"size": crop}),
    ]
    assert_same(image, steps)


@pytest.mark.parametrize("seed", range(20))
def test_center_crop_larger_than_the_image_pads_with_black(seed):
    rng = random.Random(seed)
    image = noise(rng, rng.randint(1, 30), rng.randint(1, 30))
    assert_same(image, [("CenterCrop", {"size": (rng.randint(1, 60), rng.randint(1, 60))})])


@pytest.mark.parametrize("interpolation", FILTERS, ids=lambda mode: mode.value)
@pytest.mark.parametrize("seed", range(20))
def test_random_resized_crop(seed, interpolation):
    rng = random.Random(seed)
    image = noise(rng, rng.randint(1, 300), rng.randint(1, 300), rng.choice(("RGB", "RGB", "L")))
    size = (rng.choice((224, 96, rng.randint(1, 100))), rng.choice((224, 96, rng.randint(1, 100))))
    assert_same(
        image, [("RandomResizedCrop", {"size": size, "interpolation": interpolation})], seed
    )


@pytest.mark.parametrize("padding_mode", ["constant", "edge", "reflect", "symmetric"])
@pytest.mark.parametrize("seed", range(20))
def test_random_crop_with_padding(seed, padding_mode):
    rng = random.Random(seed)
    image = noise(rng, rng.randint(9, 50), rng.randint(9, 50), rng.choice(("RGB", "L")))
    padding = tuple(rng.randint(0, 8) for _ in range(4))
    arguments = {"size": (rng.randint(1, 9), rng.randint(1, 9)), "padding": padding}
    if padding_mode == "constant":
        arguments["fill"] = (rng.randrange(256), rng.randrange(256), rng.randrange(256))
    assert_same(image, [("RandomCrop", {**arguments, "padding_mode": padding_mode})], seed)


@pytest.mark.parametrize("padding_mode", ["constant", "edge"])
@pytest.mark.parametrize("seed", range(10))
def test_random_crop_pads_if_needed(seed, padding_mode):
    rng = random.Random(seed)
    image = noise(rng, rng.randint(1, 40), rng.randint(1, 40))
    arguments = {"size": (30, 30), "pad_if_needed": True, "padding_mode": padding_mode}
    assert_same(image, [("RandomCrop", arguments)], seed)


@pytest.mark.parametrize("name", ["RandomHorizontalFlip", "RandomVerticalFlip"])
@pytest.mark.parametrize("seed", range(25))
def test_flips(seed, name):
    rng = random.Random(seed)
    image = noise(rng, sizes(rng), sizes(rng), rng.choice(("RGB", "L")))
    assert_same(image, [own_size(image), (name, {"p": 0.7})], seed)


@pytest.mark.parametrize(
    "arguments",
    [{"brightness": 0.9}, {"contrast": 0.9}, {"saturation": 0.9}, {"hue": 0.5},
     {"brightness": (1.5, 4.0)}, {"contrast": (1.5, 4.0)}, {"saturation": (1.5, 4.0)},
     {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}],
    ids=lambda arguments: "-".join(arguments),
)  # fmt: skip
@pytest.mark.parametrize("seed", range(20))
def test_color_jitter(seed, arguments):
    rng = random.Random(seed)
    image = noise(rng, sizes(rng), sizes(rng), rng.choice(("RGB", "RGB", "L")))
    assert_same(image, [own_size(image), ("ColorJitter", arguments)], seed)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("seed", range(10))
def test_grayscale(seed, channels):
    rng = random.Random(seed)
    image = noise(rng, sizes(rng), sizes(rng))
    assert_same(image, [own_size(image), ("Grayscale", {"num_output_channels": channels})])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", [None, "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("norms", [0, 1, 2])
def test_to_tensor_and_normalize(norms, mode, dtype, layout):
    for seed in range(6):
        rng = random.Random(seed)
        image = noise(rng, sizes(rng), sizes(rng), mode)
        steps = [own_size(image), ("ToTensor", {})]
        steps += [("Normalize", {"mean": MEAN, "std": STD})] * norms
        assert_same(image, steps, dtype=dtype, layout=layout)


def test_every_value_of_every_channel_survives_normalize():
    ramp = bytes(value for value in range(256) for _ in range(3))
    image = Image.frombytes("RGB", (256, 1), ramp)
    for seed in range(40):
        rng = random.Random(seed)
        mean = tuple(rng.random() for _ in range(3))
        std = tuple(rng.uniform(0.05, 1.0) for _ in range(3))
        steps = [own_size(image), ("ToTensor", {}), ("Normalize", {"mean": mean, "std": std})]
        assert_same(image, steps)


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("dtype", [None, "float16", "bfloat16"])
@pytest.mark.parametrize("norms", [0, 1])
def test_to_dtype_is_the_one_of_v2(scale, dtype, norms):
    ramp = bytes(value for value in range(256) for _ in range(3))
    image = Image.frombytes("RGB", (256, 1), ramp)
    steps = [own_size(image), ("ToDtype", {"dtype": torch.float32, "scale": scale})]
    steps += [("Normalize", {"mean": MEAN, "std": STD})] * norms
    assert_same(image, steps, dtype=dtype)


@pytest.mark.parametrize("value", [0, 0.5, (0.1, 0.2, 0.3)])
@pytest.mark.parametrize("dtype", [None, "float16"])
@pytest.mark.parametrize("is_before_normalize", [False, True])
def test_random_erasing_with_a_value(value, dtype, is_before_normalize):
    for seed in range(8):
        image = noise(random.Random(seed), 40, 31)
        erase = [("RandomErasing", {"p": 0.8, "value": value})]
        norm = [("Normalize", {"mean": MEAN, "std": STD})]
        tail = erase + norm if is_before_normalize else norm + erase
        assert_same(image, [own_size(image), ("ToTensor", {}), *tail], seed, dtype)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("seed", range(15))
def test_the_usual_training_pipeline(seed, layout):
    rng = random.Random(seed)
    image = noise(
        rng, rng.randint(100, 400), rng.randint(100, 400), rng.choice(("RGB", "RGB", "L"))
    )
    steps = [
        ("RandomResizedCrop", {"size": (112, 112)}),
        ("RandomHorizontalFlip", {}),
        ("ColorJitter", {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}),
        ("ToTensor", {}),
        ("Normalize", {"mean": MEAN, "std": STD}),
    ]
    assert_same(image, steps, seed, layout=layout)
