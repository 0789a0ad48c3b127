"""Descriptions of pipelines and what is drawn are what docs/protocol.md says, and no more."""

import json
import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import encoded
from node_process import Node, crc32c, frames_of, order, serving
from PIL import Image

from penstock import transforms as T
from penstock.sample import pipeline

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
SECTION = PAGE.split("### Descriptions of pipelines")[1].split("### What is drawn")[0]

# ---- descriptions ----

IMAGE_OPS = [
    T.Resize(20), T.CenterCrop(8), T.RandomCrop(8), T.Pad(1), T.RandomResizedCrop(8),
    T.RandomHorizontalFlip(), T.RandomVerticalFlip(), T.RandomGrayscale(), T.RandomInvert(),
    T.RandomAutocontrast(), T.RandomEqualize(), T.RandomPosterize(4), T.RandomSolarize(128),
    T.RandomAdjustSharpness(2), T.ColorJitter(0.4), T.Grayscale(3), T.RandomRotation(10),
    T.RandomRotation(10, center=(1, 2)), T.RandomAffine(10), T.RandomPerspective(),
    T.GaussianBlur(3), T.AutoAugment(), T.RandAugment(), T.TrivialAugmentWide(), T.AugMix(),
    T.RandomApply([T.RandomInvert()]), T.RandomChoice([T.RandomInvert(), T.RandomEqualize()]),
    T.RandomOrder([T.RandomInvert()]), T.RandomChoice([T.Compose([T.RandomInvert()])]),
]  # fmt: skip
TENSOR_OPS = [T.ToDtype(scale=True), T.Normalize(0.5, 0.25), T.RandomErasing(value="random")]


def documented() -> dict[str, list[str]]:
    found = {}
    for names, settings in re.findall(r"^\| (`[A-Z].*?) \| (.*) \|$", SECTION, re.MULTILINE):
        for name in re.findall(r"`(\w+)`", names):
            found[name] = re.findall(r"`([a-z_]+)`", settings)
    return found


def operations(ops: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for op in ops:
        yield op
        yield from operations(op.get("ops", []))


def test_settings_of_operations_are_those_of_the_table() -> None:
    table, seen = documented(), {}
    for op in IMAGE_OPS:
        text = pipeline([op, T.CenterCrop(8), *TENSOR_OPS]).description
        line = json.loads(text)
        assert list(line) == ["numerics", "dtype", "layout", "ops"]
        assert text.isascii() and not re.search(r"\s", text)
        for found in operations(line["ops"]):
            name, *settings = found
            assert name == "op"
            assert settings == table[found["op"]], found["op"]
            seen[found["op"]] = True
    assert seen.keys() == table.keys()


def test_the_example_is_a_description() -> None:
    example = re.search(r"^    (\{.*\})$", SECTION, re.MULTILINE)[1]
    line = [T.RandomHorizontalFlip(), T.CenterCrop(8), T.ToTensor()]
    assert pipeline(line).description == example


@pytest.mark.parametrize("number", [0.8, 0.5, 1.0, 0.0, 1e-5, 1 / 3, 0.1])
def test_floats_have_nine_digits(number: float) -> None:
    text = pipeline([T.RandomInvert(number), T.CenterCrop(8)]).description
    assert f'"RandomInvert","p":{float(np.float32(number)):.9g}}}' in text
    assert all(f"`{written}`" in SECTION for written in ("0.800000012", "9.99999975e-06"))


# ---- what an answer answers ----


def test_the_example_of_what_was_asked_is_right() -> None:
    section = PAGE.split("## What an answer answers")[1].split("\n## ")[0]
    target, told = re.search(r"7470(/\S+).*\n    Penstock-Asked: (\w+)", section).groups()
    body = re.search(r"-d '(.*?)'", section)
    assert told == f"{crc32c(target.encode() + (body[1].encode() if body else b'')):08x}"


def test_answers_say_what_they_answer(noise: Any) -> None:
    """To a request that was another one on its way, a client gets another checksum."""
    node, _ = noise
    items = order([[0, 0, 0, 0, 1]])
    for method, path, body, status in [
        ("POST", "/v1/data/noise/samples", items, 200),
        ("POST", "/v1/data/noise/samples", items[:-1], 400),
        ("POST", "/v1/data/noisf/samples", items, 404),
        ("PUT", "/v1/pipelines/05c88d86e8911da4fe6395fd614e39f7", b"{}", 422),
        ("GET", "/v1/data/noise/manifest?page=0&fields=1", None, 200),
        ("GET", "/v1/data/noise/samples/%30", None, 200),
        ("DELETE", "/v1", None, 405),
    ]:
        found, headers, _ = node.ask(method, path, body)
        assert found == status
        assert headers["Penstock-Asked"] == f"{crc32c(path.encode() + (body or b'')):08x}"


# ---- what is drawn ----


def philox(counter: list[int], seed: int) -> list[int]:
    """Ten rounds, as published."""
    (a, b, c, d), low, high, mask = counter, seed & 0xFFFFFFFF, seed >> 32, 0xFFFFFFFF
    for _ in range(10):
        left, right = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (right >> 32) ^ b ^ low, right & mask, (left >> 32) ^ d ^ high, left & mask
        low, high = (low + 0x9E3779B9) & mask, (high + 0xBB67AE85) & mask
    return [a, b, c, d]


class Draws:
    """The numbers of one operation."""

    def __init__(self, seed: int, epoch: int, sample: int, occurrence: int, op: int) -> None:
        self.seed, self.block, self.words = seed, 0, []
        self.counter = [sample & 0xFFFFFFFF, sample >> 32, epoch, occurrence | op << 16]

    def word(self) -> int:
        if not self.words:
            a, b, c, d = self.counter
            self.words = philox([a, b | self.block << 8, c, d], self.seed)
            self.block += 1
        return self.words.pop()

    def unit(self) -> float:
        return self.word() / 2**32

    def range(self, low: float, high: float) -> float:
        return low + (high - low) * self.unit()

    def below(self, n: int) -> int:
        high = self.word()
        return ((high << 32 | self.word()) * n) >> 64

    def order(self, n: int) -> tuple[int, ...]:
        found = list(range(n))
        for i in range(n - 1, 0, -1):
            j = self.below(i + 1)
            found[i], found[j] = found[j], found[i]
        return tuple(found)

    def box(self, width: int, height: int) -> tuple[int, ...] | None:
        """RandomResizedCrop's, or None after ten attempts."""
        scale = [float(np.float32(number)) for number in (0.08, 1)]
        ratio = [math.log(float(np.float32(number))) for number in (3 / 4, 4 / 3)]
        for _ in range(10):
            area = width * height * self.range(*scale)
            shape = math.exp(self.range(*ratio))
            w, h = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
            if 0 < w <= width and 0 < h <= height:
                y = self.below(height - h + 1)
                return self.below(width - w + 1), y, w, h
        return None


LINE = [
    T.RandomHorizontalFlip(0.3),
    T.RandomCrop((30, 34)),
    T.RandomOrder([T.RandomInvert(), T.RandomApply([T.RandomEqualize()], p=0.8), T.Pad(0)]),
    T.RandomResizedCrop(20),
    T.ColorJitter(0.4, 0.3, 0.2, 0.1),
]
JITTER = [(0.6, 1.4), (0.7, 1.3), (0.8, 1.2), (-0.1, 0.1)]


@pytest.mark.parametrize("sample", [0, 1, 22, 2**32 - 1, 2**32 + 5, 2**40 - 1])
@pytest.mark.parametrize(
    ("seed", "epoch", "occurrence"), [(5, 0, 0), (2**63 + 9, 2**32 - 1, 65535)]
)
def test_what_is_drawn_is_what_the_page_says(
    sample: int, seed: int, epoch: int, occurrence: int
) -> None:
    line, file = pipeline(LINE), encoded(0)[1]  # 40 x 36
    _, flip, crop, group, invert, apply, equalize, _, box, jitter = line.draw(
        file, seed, epoch, sample, occurrence
    )

    def draws(op: int) -> Draws:
        return Draws(seed, epoch, sample, occurrence, op)

    assert flip["applied"] == (draws(1).unit() < float(np.float32(0.3)))
    at = draws(2)
    assert (crop["y"], crop["x"]) == (at.below(36 - 30 + 1), at.below(40 - 34 + 1))
    assert group["order"] == draws(3).order(3)
    assert invert["applied"] == (draws(4).unit() < 0.5)
    assert apply["applied"] == (draws(5).unit() < float(np.float32(0.8)))
    if apply["applied"]:
        assert equalize["applied"] == (draws(6).unit() < 0.5)
    expected = draws(8).box(34, 30)
    assert expected is None or tuple(box[name] for name in "xywh") == expected
    at = draws(9)
    assert jitter["order"] == at.order(4)
    ranges = [[float(np.float32(end)) for end in ends] for ends in JITTER]
    assert jitter["factor"] == tuple(float(np.float32(at.range(*ends))) for ends in ranges)


# ---- where pixels with cut 1 stand ----

SUPPORT = {"bilinear": 1.0, "bicubic": 2.0, "lanczos": 3.0, "box": 0.5, "hamming": 1.0}
SIZES = [(400, 200), (201, 333), (150, 150)]


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, list[Image.Image]]]:
    """Files of more bytes than their pixels have."""
    root, chance = tmp_path_factory.mktemp("noise"), np.random.default_rng(1)
    images = [
        Image.fromarray(chance.integers(0, 256, (height, width, 3), np.uint8))
        for width, height in SIZES
    ]
    for number, image in enumerate(images):
        image.save(root / f"{number}.png")
    with serving("--name", "noise", root) as node:
        yield node, images


def behind_decode(node: Node, line: list[T.Transform], count: int) -> list[tuple[int, ...]]:
    """(width, height, pixels) of each sample as it is behind one operation."""
    wanted = pipeline(line)
    node.ask("PUT", f"/v1/pipelines/{wanted.hash}", wanted.description.encode())
    items = [[number, 0, 0, 1, 1 << 2] for number in range(count)]
    frames = frames_of(node.ask("POST", "/v1/data/noise/samples", order(items, wanted.hash))[2])
    found = []
    for number in range(count):
        parcel = frames[number][2]
        form, cut, channels, _, x, y, width, height = struct.unpack_from("<x3BI4i", parcel)
        assert (form, cut, channels, x, y) == (2, 1, 3, 0, 0)
        found.append((width, height, parcel[48:]))
    return found


def columns(size: int, out: int, first: int, count: int, support: float) -> tuple[int, int]:
    """From the first to behind the last; of rows likewise."""
    if size == out:
        return first, first + count
    reach = support * max(size / out, 1)
    begin, end = ((column + 0.5) * size / out for column in (first, first + count - 1))
    return max(0, int(begin - reach + 0.5)), min(size, int(end + reach + 0.5))


def middle(size: int, crop: int) -> int:
    return round((size - crop) / 2)


@pytest.mark.parametrize("filter_name", SUPPORT)
@pytest.mark.parametrize("out", [(30, 40), (200, 50), (600, 500)])
@pytest.mark.parametrize("crop", [(24, 30), None])
def test_pixels_behind_decode_are_the_window_of_a_resize(
    out: tuple[int, int], crop: tuple[int, int] | None, filter_name: str, noise: Any
) -> None:
    node, images = noise
    (h, w), (ch, cw) = out, crop or out
    line = [T.Resize(out, interpolation=filter_name), *([T.CenterCrop(crop)] if crop else [])]
    sent = behind_decode(node, line, len(images))
    for image, (width, height, pixels) in zip(images, sent, strict=True):
        left, right = columns(image.width, w, middle(w, cw), cw, SUPPORT[filter_name])
        top, bottom = columns(image.height, h, middle(h, ch), ch, SUPPORT[filter_name])
        assert (width, height) == (right - left, bottom - top)
        assert pixels == image.crop((left, top, right, bottom)).tobytes()


def box_of(op: T.Transform, image: Image.Image, draws: Draws) -> tuple[int, ...]:
    """x, y, width, height."""
    width, height = image.size
    if isinstance(op, T.RandomResizedCrop):
        return draws.box(width, height)
    if isinstance(op, T.CenterCrop):
        return middle(width, 80), middle(height, 90), 80, 90
    y = draws.below(height - 90 + 1)
    return draws.below(width - 80 + 1), y, 80, 90


def test_pixels_behind_decode_are_the_box_of_a_crop(noise: Any) -> None:
    node, images = noise
    for op in (T.RandomResizedCrop(30), T.RandomCrop((90, 80)), T.CenterCrop((90, 80))):
        sent = behind_decode(node, [op, T.CenterCrop(8)], len(images))
        for number, (width, height, pixels) in enumerate(sent):
            x, y, w, h = box_of(op, images[number], Draws(3, 0, number, 0, 1))
            assert (width, height) == (w, h)
            assert pixels == images[number].crop((x, y, x + w, y + h)).tobytes()


def test_pixels_behind_decode_alone_are_the_whole_image(noise: Any) -> None:
    node, images = noise
    for line in ([T.RandomHorizontalFlip(), T.CenterCrop(8)], [T.Pad(2), T.CenterCrop(8)]):
        for image, sent in zip(images, behind_decode(node, line, len(images)), strict=True):
            assert sent == (*image.size, image.tobytes())
