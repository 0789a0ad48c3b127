"""Draw a picture dataset: one folder a shape, JPEG files of many sizes.

    python examples/pictures.py FOLDER [--train 2000] [--val 400]

Each picture shows one shape in a random colour, place, size and angle on a busy
ground, so that a small network has something to learn and a loader has real
files to decode.  Picture i of a split is a function of (split, i) alone.
"""

import argparse
import math
import os
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SHAPES = ("circle", "cross", "crescent", "hexagon", "ring", "square", "star", "triangle")
SPLITS = {"train": 1, "val": 2}
VERSION = 1  # raise it when the drawings change: old folders are then drawn again


def polygon(n_corners: int, inner: float = 1.0) -> list[tuple[float, float]]:
    """Corners on the unit circle; with `inner` < 1, every second one lies that far out."""
    steps = n_corners * (2 if inner < 1 else 1)
    radii = [inner if inner < 1 and i % 2 else 1.0 for i in range(steps)]
    angles = [2 * math.pi * i / steps for i in range(steps)]
    return [(r * math.cos(a), r * math.sin(a)) for r, a in zip(radii, angles, strict=True)]


OUTLINES = {
    "cross": [
        (-0.3, -1), (0.3, -1), (0.3, -0.3), (1, -0.3), (1, 0.3), (0.3, 0.3),
        (0.3, 1), (-0.3, 1), (-0.3, 0.3), (-1, 0.3), (-1, -0.3), (-0.3, -0.3),
    ],
    "hexagon": polygon(6),
    "square": polygon(4),
    "star": polygon(5, inner=0.42),
    "triangle": polygon(3),
}  # fmt: skip


def shape_mask(shape: str, size: tuple[int, int], rng: np.random.Generator) -> Image.Image:
    """A grey mask of the picture's size, 255 where the shape is.  Drawn at double size."""
    width, height = size[0] * 2, size[1] * 2
    radius = min(width, height) * rng.uniform(0.22, 0.38)
    x = rng.uniform(radius, width - radius)
    y = rng.uniform(radius, height - radius)
    turn = rng.uniform(0, 2 * math.pi)
    mask = Image.new("L", (width, height))
    draw = ImageDraw.Draw(mask)

    def disc(dx: float, r: float, value: int) -> None:
        cx, cy = x + dx * math.cos(turn), y + dx * math.sin(turn)
        draw.ellipse((cx - r, cy - r, cx + r, cy + r), fill=value)

    if shape in OUTLINES:
        cos, sin = math.cos(turn) * radius, math.sin(turn) * radius
        draw.polygon(
            [(x + a * cos - b * sin, y + a * sin + b * cos) for a, b in OUTLINES[shape]], 255
        )
    else:
        disc(0, radius, 255)
        if shape == "ring":
            disc(0, radius * 0.6, 0)
        elif shape == "crescent":
            disc(radius * 0.5, radius * 0.85, 0)
    return mask.resize(size, Image.Resampling.BOX)


def ground(size: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """A smooth cloud between two colours, with film grain: (H, W, 3) float32."""
    cells = rng.uniform(0, 1, (rng.integers(3, 7), rng.integers(3, 7))).astype(np.float32)
    cloud = Image.fromarray(cells, "F").resize(size, Image.Resampling.BICUBIC)
    weight = np.asarray(cloud)[..., None]
    low, high = rng.uniform(10, 245, (2, 3)).astype(np.float32)
    grain = rng.standard_normal((size[1], size[0], 1), np.float32)
    return low + (high - low) * weight + grain * np.float32(rng.uniform(2, 14))


def contrasting(colour: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random colour that is not close to `colour`."""
    while True:
        other = rng.uniform(0, 255, 3).astype(np.float32)
        if np.abs(other - colour).sum() > 180:
            return other


def draw(split: str, index: int) -> tuple[str, Image.Image]:
    """The shape's name and the picture."""
    rng = np.random.default_rng((VERSION, SPLITS[split], index))
    shape = SHAPES[index % len(SHAPES)]
    size = tuple(int(side) for side in rng.integers(160, 360, 2))
    pixels = ground(size, rng)
    mask = np.asarray(shape_mask(shape, size, rng), np.float32)[..., None] / 255
    paint = contrasting(pixels.mean((0, 1)), rng)
    mixed = pixels + (paint - pixels) * mask
    return shape, Image.fromarray(mixed.clip(0, 255).astype(np.uint8))


def save(folder: Path, split: str, index: int) -> None:
    shape, picture = draw(split, index)
    picture.save(folder / split / shape / f"{index:05d}.jpg", quality=88)


def make(folder: Path, n_train: int, n_val: int, progress=None) -> None:
    """Draw both splits into `folder`, replacing it; `progress(done, total)` is called now and then.

    The folder appears under its name only when it is complete.
    """
    work = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    try:
        for split in SPLITS:
            for shape in SHAPES:
                (work / split / shape).mkdir(parents=True)
        jobs = [("train", i) for i in range(n_train)] + [("val", i) for i in range(n_val)]
        with ProcessPoolExecutor() as pool:
            results = pool.map(partial(save, work), *zip(*jobs, strict=True), chunksize=50)
            for done, _ in enumerate(results, 1):
                if progress:
                    progress(done, len(jobs))
        shutil.rmtree(folder, ignore_errors=True)
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", type=int, default=2000, metavar="N")
    parser.add_argument("--val", type=int, default=400, metavar="N")
    options = parser.parse_args()
    make(options.folder, options.train, options.val)
    return 0


if __name__ == "__main__":
    sys.exit(main())
