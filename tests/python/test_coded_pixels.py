"""Coded pixels, decoded by what docs/protocol.md says of them and by nothing else."""

import bisect
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from node_process import Node, frames_of, order, serving
from PIL import Image

import penstock
from penstock.sample import pipeline as compiled

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "protocol.md").read_text()

# ---- a decoder ----


def tables() -> list[list[tuple[int, int, int | None]]]:
    """For each shape, (first slot, share, residual) by slot; None is the escape."""
    found = []
    lines = re.findall(r"^\| (\d+) \| ([\dx ]+) \| (\d+) \|$", PAGE, re.MULTILINE)
    assert [int(number) for number, _, _ in lines] == list(range(24))
    for _, words, escape in lines:
        shares = []
        for word in words.split():
            share, _, times = word.partition("x")
            shares += [int(share)] * int(times or 1)
        slots: list[tuple[int, int, int | None]] = []
        for size, share in enumerate(shares):
            for residual in (size, -size) if size else (0,):
                slots += [(len(slots), share, residual)] * share
        slots += [(len(slots), int(escape), None)] * int(escape)
        assert len(slots) == 4096
        found.append(slots)
    return found


SHAPES = tables()
PLAIN = [(slot & ~15, 16, struct.unpack("b", bytes([slot >> 4]))[0]) for slot in range(4096)]
ACTIVITY_FROM = [
    int(n) for n in re.search(r"^\| activity from \| (.*) \|$", PAGE, re.MULTILINE)[1].split("|")
]


class Units:
    def __init__(self, code: bytes) -> None:
        self.units = list(struct.unpack(f"<{len(code) // 2}H", code))[::-1]
        self.n_escapes = 0

    def take(self, state: int, slots: list) -> tuple[int, int | None]:
        slot = state % 4096
        first, share, residual = slots[slot]
        state = (state >> 12) * share + slot - first
        if state < 32768:
            state = state << 16 | self.units.pop()
        return state, residual

    def take_residual(self, state: int, shape: int) -> tuple[int, int]:
        state, residual = self.take(state, SHAPES[shape])
        if residual is None:
            self.n_escapes += 1
            state, residual = self.take(state, PLAIN)
        return state, residual


def predict(planes, sizes, y: int, x: int, c: int, width: int) -> tuple[int, int]:
    """The guess, and the activity."""

    def at(what, x, y):
        return int(what[y][min(max(x, 0), width - 1)][c])

    def size(x):
        return int(sizes[y][x][c]) if x >= 0 else 0

    activity = 2 * size(x - 1) + size(x - 2)
    if y == 0:
        return at(planes, x - 1, y) if x else 128, activity
    n, nw, ne = (at(planes, x + i, y - 1) for i in (0, -1, 1))
    w = at(planes, x - 1, y) if x else n
    activity += abs(n - nw) + abs(n - ne) + abs(w - nw)
    activity += sum(at(sizes, x + i, y - 1) for i in (-1, 0, 1))
    guess = (3 * w + 3 * n - 2 * nw + 2) >> 2
    return min(max(guess, min(w, n, ne)), max(w, n, ne)), activity


def decode(code: bytes, width: int, height: int, channels: int) -> tuple[bytes, int]:
    """The pixels, and how many escapes there were."""
    if code[0] == 0:
        return code[1:], 0
    assert code[0] == 1
    head = 1 + 16 * channels
    shapes = [code[1 + 16 * c : 17 + 16 * c] for c in range(channels)]
    states = list(struct.unpack_from(f"<{channels}I", code, head))
    units = Units(code[head + 4 * channels :])
    planes = np.zeros((height, width, channels), np.int64)
    sizes = np.zeros_like(planes)
    for y, x, c in np.ndindex(planes.shape):
        guess, activity = predict(planes, sizes, y, x, c, width)
        shape = shapes[c][bisect.bisect_right(ACTIVITY_FROM, activity) - 1]
        states[c], residual = units.take_residual(states[c], shape)
        planes[y, x, c] = (guess + residual) % 256
        sizes[y, x, c] = abs(residual)
    assert not units.units
    assert states == [32768] * channels
    if channels == 3:
        green, red, blue = planes[..., 0], planes[..., 1], planes[..., 2]
        planes = np.stack([red + green - 128, green, blue + green - 128], axis=-1) % 256
    return planes.astype(np.uint8).tobytes(), units.n_escapes


# ---- what nodes send ----


def parcels(node: Node, count: int, form: int, line) -> list[bytes]:
    items = [[number, 3, 0, 2, 1 << form] for number in range(count)]
    status, _, body = node.ask("POST", "/v1/data/data/samples", order(items, line.hash))
    assert status == 200
    frames = frames_of(body)
    return [frames[number][2] for number in range(count)]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Smooth ones, noise, something between, colour and grey, of some odd sizes."""
    place = tmp_path / "data" / "a"
    place.mkdir(parents=True)
    chance = np.random.default_rng(3)
    for number in range(24):
        height, width = 1 + number * 5 % 37, 1 + number * 11 % 41
        ramp = np.add.outer(np.arange(height) * 3, np.arange(width) * 2)[..., None] + [0, 40, 90]
        spread = [0, 3, 12, 50, 300][number % 5]
        noise = chance.integers(-spread, spread + 1, ramp.shape)
        dots = 200 * (chance.random((height, width, 1)) < 0.02)
        pixels = ((ramp + noise + dots) % 256).astype(np.uint8)
        image = Image.fromarray(pixels if number % 3 else pixels[..., 0])
        image.save(place / f"{number:02}.png")
    return place.parent


def test_what_the_page_says_decodes_what_a_node_sends(pictures: Path) -> None:
    line = compiled([penstock.RandomHorizontalFlip(), penstock.Resize((64, 64))])
    n_escapes, shapes, kinds = 0, set(), set()
    with serving(pictures) as node:
        path = f"/v1/pipelines/{line.hash}"
        assert node.ask("PUT", path, line.description.encode())[0] == 201
        plain, coded = (parcels(node, 24, form, line) for form in (2, 3))
    for one, other in zip(plain, coded, strict=True):
        assert (one[1], other[1]) == (2, 3)
        channels, width, height = one[3], *struct.unpack_from("<II", one, 16)
        assert one[2:4] + one[8:24] == other[2:4] + other[8:24]
        pixels, n = decode(other[48:], width, height, channels)
        assert pixels == one[48:]
        kinds.add((other[48], channels))
        n_escapes += n
        if other[48]:
            shapes |= set(other[49 : 49 + 16 * channels])
    assert kinds == {(0, 1), (0, 3), (1, 1), (1, 3)}  # stored and coded, grey and colour
    assert n_escapes > 0
    assert len(shapes) > 8


def test_the_page_has_the_tables_of_the_source() -> None:
    check = [sys.executable, ROOT / "scripts" / "pixel-tables", "--check"]
    run = subprocess.run(check, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
