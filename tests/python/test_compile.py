"""Compiled transforms give torchvision's own tensors, or say why not.

Where a transform is random, its parameters are pinned (p=1, a range of one value, a crop as
large as the image), so that both sides must agree to the bit.  That what is drawn has
torchvision's distribution is the draws' own test; here the operations must be the right ones.
"""

import pickle

import pytest

import penstock
from penstock import transforms as T

torch = pytest.importorskip("torch")
v1 = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")
from torchvision.datasets import ImageFolder  # noqa: E402

from compile_checks import Halve, assert_exact, levels_off  # noqa: E402
from penstock.torch.compiled import NotCompiled, compile_dataset  # noqa: E402
from penstock.torch.partly import Key, PartlyCompiled  # noqa: E402

# Advice that torchvision gives about what is tested here.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Anti-alias option"),
]

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Mode = v1.InterpolationMode
MODES = (Mode.NEAREST, Mode.NEAREST_EXACT, Mode.BILINEAR, Mode.BICUBIC, Mode.BOX, Mode.HAMMING,
         Mode.LANCZOS)  # fmt: skip


def ends(t):
    """Ways from a PIL image to a tensor."""
    return [
        [t.ToTensor()],
        [t.PILToTensor()],
        [t.ToTensor(), t.Normalize(MEAN, STD)],
        [t.ToTensor(), t.Normalize([0.5], [0.25], inplace=True)],
        [t.PILToTensor(), t.ConvertImageDtype(torch.float32), t.Normalize(MEAN, STD)],
        [t.PILToTensor(), t.ConvertImageDtype(torch.float16)],
        [t.PILToTensor(), t.ConvertImageDtype(torch.bfloat16)],
        [t.ToTensor(), t.Normalize(MEAN, STD), t.ConvertImageDtype(torch.float16)],
        [t.ToTensor(), t.RandomErasing(p=0), t.Normalize(MEAN, STD), t.RandomErasing(p=0)],
    ]


@pytest.mark.parametrize("t", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize("number", range(9))
def test_every_way_to_a_tensor(noises, t, number):
    assert_exact(noises, t.Compose([t.Resize(20), t.CenterCrop(16), *ends(t)[number]]))


@pytest.mark.parametrize(
    "end",
    [
        [v2.ToImage()],
        [v2.ToImage(), v2.ToPureTensor()],
        [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)],
        [v2.ToImage(), v2.ToDtype(torch.float32), v2.Normalize([118.0], [60.0])],
        [v2.ToImage(), v2.ToDtype(torch.float16, scale=True), v2.ToPureTensor()],
        [v2.ToDtype(torch.float32, scale=True), v2.ToImage(), v2.ToDtype(torch.uint8)],
        [v2.PILToTensor(), v2.ToImage(), v2.ToDtype({"others": torch.float32}, scale=True)],
        [v2.ToImage(), v2.ToDtype({torch.Tensor: torch.float16, "others": torch.float32})],
        [v2.ToImage(), v2.ToDtype({"others": None}), v2.Identity(), v2.RGB()],
        [v2.ToTensor(), v2.ToImage(), v2.RandomErasing(p=0, value=(1, 2, 3))],
    ],
    ids=str,
)
def test_every_way_of_v2_to_a_tensor(noises, end):
    assert_exact(noises, v2.Compose([v2.Resize((20, 24)), *end]))


def test_v2_multiplies_where_v1_divides(noises):
    divided = assert_exact(noises, v1.Compose([v1.Resize((9, 9)), v1.ToTensor()]))
    line = v2.Compose([v2.Resize((9, 9)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    multiplied = assert_exact(noises, line)
    assert divided.ops[-1] == T.ToTensor()
    assert multiplied.ops[-1] == T.ToDtype(scale=True)


@pytest.mark.parametrize("t", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_resize_with_every_filter(noises, t, mode):
    for arguments in (
        {"size": (30, 18)},
        {"size": (30, 18), "antialias": False},  # nothing to a PIL image
        {"size": (130, 140), "antialias": None},
    ):
        line = [t.Resize(interpolation=mode, **arguments), t.PILToTensor()]
        assert_exact(noises, t.Compose(line))
    line = [t.RandomResizedCrop(12, (1, 1), (1, 1), interpolation=mode), t.PILToTensor()]
    assert_exact(noises, t.Compose([t.Resize((40, 40)), *line]))


@pytest.mark.parametrize("t", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize("arguments", [{"size": 24}, {"size": [24]}, {"size": (24,)},
                                       {"size": 24, "max_size": 30}, {"size": 24, "interpolation": 3}],
                         ids=str)  # fmt: skip
def test_resize_of_the_shorter_side(noises, t, arguments):
    assert_exact(noises, t.Compose([t.Resize(**arguments), t.CenterCrop((20, 18)), t.ToTensor()]))


@pytest.mark.parametrize("t", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize("size", [1, (7, 9), [15], 200])
def test_center_crop(noises, t, size):
    assert_exact(noises, t.Compose([t.CenterCrop(size), t.ToTensor()]))
    assert_exact(noises, t.Compose([t.ToTensor(), t.CenterCrop(size)]))
    assert_exact(noises, t.Compose([t.PILToTensor(), t.CenterCrop(size)]))


PADDINGS = [(4, (28, 28)), ((4,), (28, 28)), ((2, 5), (30, 24)), ((1, 2, 3, 4), (26, 24))]


@pytest.mark.parametrize("t", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize(("padding", "size"), PADDINGS, ids=str)
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
def test_random_crop_pads_as_it_is_told(noises, t, padding, size, mode):
    crop = t.RandomCrop(size, padding=padding, padding_mode=mode)
    if mode == "constant":
        filled = t.RandomCrop(size, padding=padding, fill=(9, 100, 255))
        assert_exact(noises, t.Compose([t.Resize((20, 20)), filled, t.ToTensor()]))
    assert_exact(noises, t.Compose([t.Resize((20, 20)), crop, t.ToTensor()]))
    assert_exact(noises, t.Compose([t.Resize((20, 20)), t.PILToTensor(), crop]))
    assert_exact(noises, t.Compose([t.Resize((20, 20)), t.ToTensor(), crop]))
    if mode != "constant":
        norm = t.Normalize(MEAN, STD)
        assert_exact(noises, t.Compose([t.Resize((20, 20)), t.ToTensor(), norm, crop]))


@pytest.mark.parametrize("t", [v1, v2], ids=["v1", "v2"])
def test_random_crop_pads_if_needed(noises, t):
    crop = t.RandomCrop((20, 20), pad_if_needed=True, fill=7)
    dataset = ImageFolder(noises, t.Compose([t.Resize((20, 20)), crop, t.ToTensor()]))
    assert compile_dataset(dataset).ops[1] == T.RandomCrop(20, pad_if_needed=True, fill=7)
    assert_exact(noises, dataset.transform)


@pytest.mark.parametrize("t", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize("name", ["RandomHorizontalFlip", "RandomVerticalFlip"])
@pytest.mark.parametrize("p", [0, 1])
def test_flips_anywhere(noises, t, name, p):
    flip, size = getattr(t, name)(p), t.Resize((20, 24))
    norm = t.Normalize(MEAN, STD)
    assert_exact(noises, t.Compose([flip, size, t.ToTensor()]))
    assert_exact(noises, t.Compose([size, t.PILToTensor(), flip]))
    assert_exact(noises, t.Compose([size, t.ToTensor(), flip, norm]))
    assert_exact(noises, t.Compose([size, t.ToTensor(), norm, flip]))
    half = t.ConvertImageDtype(torch.float16)
    assert_exact(noises, t.Compose([size, t.ToTensor(), half, flip]))


@pytest.mark.parametrize("t", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation", "hue"])
def test_color_jitter_of_a_fixed_strength(noises, t, name):
    for factor in (0.3,) if name == "hue" else (0.0, 0.4, 1.7):
        jitter = t.ColorJitter(**{name: (factor, factor)})
        assert_exact(noises, t.Compose([t.Resize((30, 30)), jitter, t.ToTensor()]))


@pytest.mark.parametrize("t", [v1, v2], ids=["v1", "v2"])
def test_brightness_of_tensors_of_bytes(noises, t):
    jitter = t.ColorJitter(brightness=(1.3, 1.3))
    assert_exact(noises, t.Compose([t.Resize((30, 30)), t.PILToTensor(), jitter]))


@pytest.mark.parametrize("t", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize("channels", [1, 3])
def test_grayscale(noises, t, channels):
    gray = t.Grayscale(channels)
    norm = t.Normalize([0.5], [0.25])
    assert_exact(noises, t.Compose([t.Resize((30, 30)), gray, t.ToTensor(), norm]))
    assert_exact(noises, t.Compose([gray, t.CenterCrop(30), t.RandomVerticalFlip(1), t.ToTensor()]))
    assert_exact(noises, t.Compose([t.CenterCrop(30), gray, gray]), is_native=False)
    for name, factor in (("brightness", 1.4), ("contrast", 0.6), ("saturation", 1.8), ("hue", 0.2)):
        jitter = t.ColorJitter(**{name: (factor, factor)})
        assert_exact(noises, t.Compose([t.CenterCrop(30), gray, jitter, t.ToTensor()]))


def test_arguments_of_random_operations_arrive(noises):
    for t in (v1, v2):
        line = [
            t.RandomResizedCrop((24, 20), (0.2, 0.9), (0.5, 2.0), Mode.BICUBIC),
            t.RandomHorizontalFlip(0.25),
            t.RandomVerticalFlip(0.75),
            t.ColorJitter(0.1, (0.5, 0.75), 0.3, 0.05),
            t.RandomCrop((18, 16), (1, 2, 3, 4), True, (1, 2, 3)),
            t.ToTensor(),
            t.Normalize(MEAN, STD),
            t.RandomErasing(0.3, (0.1, 0.2), (0.4, 2.5), "random"),
            t.RandomErasing(1, value=(1, 2, 3)),
        ]
        result = compile_dataset(ImageFolder(noises, t.Compose(line)))
        assert result.is_native
        specs = T.specs(result.ops)
        assert specs == T.specs(
            [
                T.RandomResizedCrop((24, 20), (0.2, 0.9), (0.5, 2.0), "bicubic"),
                T.RandomHorizontalFlip(0.25),
                T.RandomVerticalFlip(0.75),
                T.ColorJitter(0.1, (0.5, 0.75), 0.3, 0.05),
                T.RandomCrop((18, 16), (1, 2, 3, 4), True, (1, 2, 3)),
                T.ToTensor(),
                T.Normalize(MEAN, STD),
                T.RandomErasing(0.3, (0.1, 0.2), (0.4, 2.5), "random"),
                T.RandomErasing(1, value=(1, 2, 3)),
            ]
        )


def test_composes_may_be_nested_and_lists(noises):
    inner = v1.Compose([v1.ToTensor(), v1.Compose([v1.Normalize(MEAN, STD)])])
    line = v1.Compose([torch.nn.Sequential(v1.Resize((12, 12))), inner])
    result = assert_exact(noises, line)
    again = compile_dataset(ImageFolder(noises), [v1.Resize((12, 12)), inner])
    assert again.ops == result.ops


def test_the_transforms_of_pretrained_weights(noises):
    from torchvision.transforms._presets import ImageClassification

    preset = ImageClassification(crop_size=20, resize_size=24, interpolation=Mode.BICUBIC)
    result = assert_exact(noises, preset)
    assert result.ops[:2] == [T.Resize(24, "bicubic"), T.CenterCrop(20)]
    late = compile_dataset(ImageFolder(noises, v1.Compose([v1.CenterCrop(30), preset])))
    assert late.python_rest == [preset]  # it may be given anything there


def test_a_loaders_transform_comes_after_the_datasets_own(noises):
    dataset = ImageFolder(noises, v1.Resize((12, 12)))
    result = compile_dataset(dataset, v1.ToTensor())
    assert result.is_native
    assert result.ops == [T.Resize((12, 12)), T.ToTensor()]


def test_penstocks_own_transforms_are_taken_as_they_are(noises):
    ops = [T.RandomResizedCrop(12), T.ToTensor()]
    result = compile_dataset(ImageFolder(noises), ops)
    assert result.is_native
    assert (result.ops, result.dtype) == (ops, "float32")
    assert compile_dataset(ImageFolder(noises), T.CenterCrop(8)).dtype == "uint8"
    with pytest.raises(TypeError, match="mix"):
        compile_dataset(ImageFolder(noises, v1.Resize((12, 12))), ops)


# Pillow's pixels where torchvision's tensor kernels would round differently.


@pytest.mark.parametrize("t", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize("to_tensor", ["ToTensor", "PILToTensor"])
def test_near_operations_on_tensors_are_one_level_off_at_most(noises, t, to_tensor):
    begin, small = getattr(t, to_tensor)(), t.Resize((24, 24))
    square = t.RandomResizedCrop((17, 30), (1, 1), (1, 1))
    for line in (
        [begin, t.Resize((30, 25))],
        [begin, t.Resize((100, 110), antialias=True)],
        [small, begin, square],
        [small, begin, t.Grayscale(3)],
    ):
        assert (
            0 < levels_off(noises, t.Compose(line)) <= 1.001
        )  # half a level twice, and weights in fixed point


# A line that is cut.


@pytest.mark.parametrize("t", [v1, v2], ids=["v1", "v2"])
def test_the_rest_runs_in_python_on_what_it_expects(noises, t):
    size, norm = t.Resize((16, 12)), t.Normalize(MEAN, STD)
    for line, n_native in (
        ([size, Halve(), t.ToTensor()], 1),
        ([size, t.Grayscale(1), Halve(), t.ToTensor()], 2),
        ([size, t.PILToTensor(), Halve()], 2),
        ([size, t.ToTensor(), Halve(), norm], 2),
        ([size, t.ToTensor(), norm, Halve(), t.RandomHorizontalFlip(1)], 3),
        ([t.Resize(20), t.CenterCrop(16), t.Lambda(lambda x: x), t.ToTensor()], 2),
    ):
        result = assert_exact(noises, t.Compose(line), is_native=False)
        assert result.python_rest == line[n_native:]
        assert [step.where for step in result.steps].count("python") == len(line) - n_native
    result = assert_exact(noises, v2.Compose([v2.Resize((9, 9)), v2.ToImage(), Halve()]), False)
    assert result.kind == "image"


def test_the_native_part_ends_where_the_size_is_known(noises):
    line = [v1.CenterCrop(20), v1.Resize(14, max_size=15), Halve(), v1.ToTensor()]
    result = assert_exact(noises, v1.Compose(line), is_native=False)
    assert result.ops == [T.CenterCrop(20)]
    assert "one size" in result.steps[2].why
    line = [v1.Resize(14), Halve(), v1.CenterCrop(10), v1.ToTensor()]
    result = compile_dataset(ImageFolder(noises, v1.Compose(line)))
    assert isinstance(result, NotCompiled)
    assert "Halve" in result.reason
    result = compile_dataset(ImageFolder(noises, v1.Compose([v1.Resize(14), v1.ToTensor()])))
    assert "differ in size" in result.reason


def test_native_randomness_is_the_keys(noises):
    line = v1.Compose([v1.RandomResizedCrop(16), v1.RandomHorizontalFlip(), v1.ToTensor(), Halve()])
    result = compile_dataset(ImageFolder(noises, line))
    items = PartlyCompiled(result, seed=3)
    first = items[Key(2, 5, 1)][0]
    data = (noises / "class0" / "4.png").read_bytes()
    wanted = penstock.apply(data, result.ops, seed=3, epoch=5, sample=2, occurrence=1)
    assert torch.equal(first, torch.from_dlpack(wanted) / 2)
    others = [items[Key(2, 5)], items[Key(2, 6)], items[2], PartlyCompiled(result, 4)[Key(2, 5, 1)]]
    assert not any(torch.equal(first, sample) for sample, _ in others)
    assert torch.equal(items[-6][0], items[2][0])
    with pytest.raises(IndexError):
        items[8]


def test_a_bad_file_is_named(noises, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "broken.png").write_bytes(b"no image")
    items = PartlyCompiled(compile_dataset(ImageFolder(tmp_path, v1.Resize((9, 9)))))
    with pytest.raises(penstock.DataError) as caught:
        items[0]
    assert "broken.png" in caught.value.__notes__[0]


def test_results_can_be_pickled(noises):
    line = v2.Compose([v2.RandomResizedCrop(16), v2.ToImage(), v2.ToDtype(torch.float32), Halve()])
    items = PartlyCompiled(compile_dataset(ImageFolder(noises, line)), seed=1)
    wanted = items[3][0]  # opens the pipeline, which does not travel
    copy = pickle.loads(pickle.dumps(items))
    assert torch.equal(copy[3][0], wanted)


def test_native_batches_are_the_ones_that_torch_collates(folder):
    """JPEG, PNG and WebP, through the loader itself."""
    line = [v2.Resize((24, 20)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    dataset = ImageFolder(folder, v2.Compose([*line, v2.Normalize(MEAN, STD)]))
    result = compile_dataset(dataset, exact=True)
    native = result.native() if hasattr(penstock.Dataset, "from_list") else folder
    ours = penstock.Loader(native, result.ops, 5, dtype=result.dtype)
    theirs = torch.utils.data.DataLoader(dataset, 5)
    for batch, (images, labels) in zip(ours, theirs, strict=True):
        assert type(images) is torch.Tensor
        assert torch.equal(torch.from_dlpack(batch["image"]), images)
        assert batch["label"].tolist() == labels.tolist()
