"""Generated photographs, for machines without a data set at hand.

Real photographs have smooth areas, edges and noise at every scale; what matters to a decoder is how many
coefficients survive quantisation. Noise whose amplitude falls with frequency (1/f), plus a few hard-edged
shapes, comes close, and sizes, qualities and subsampling follow the mix of a typical classification set.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

# (width, height), share: mostly 500-pixel web photographs, some large, some thumbnails.
_SIZES = (
    ((500, 375), 0.45),
    ((375, 500), 0.2),
    ((500, 333), 0.15),
    ((1024, 768), 0.12),
    ((160, 120), 0.08),
)
_SUBSAMPLING = ((0, 0.7), (2, 0.3))  # Pillow's codes: 0 is 4:4:4, 2 is 4:2:0
_GREY_SHARE = 0.02
_EXPONENT = 1.25  # slope of the amplitude spectrum; photographs lie between 1 and 1.5


def _spectrum_noise(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    """One channel of 1/f noise, mean 0 and deviation 1."""
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    frequency[0, 0] = 1.0
    phase = rng.uniform(0, 2 * np.pi, frequency.shape)
    wave = np.fft.irfft2(np.exp(1j * phase) / frequency**_EXPONENT, s=(height, width))
    return (wave - wave.mean()) / wave.std()


def _picture(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    light = _spectrum_noise(rng, width, height)
    # Colour varies far less than brightness in photographs.
    channels = [light + 0.35 * _spectrum_noise(rng, width, height) for _ in range(3)]
    pixels = np.stack(channels, axis=-1) * rng.uniform(30, 60) + rng.uniform(80, 160)
    image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for _ in range(int(rng.integers(2, 7))):
        x, y = rng.integers(0, width), rng.integers(0, height)
        w, h = rng.integers(8, width // 2), rng.integers(8, height // 2)
        draw.ellipse(
            (x, y, x + w, y + h), outline=tuple(int(c) for c in rng.integers(0, 256, 3)), width=3
        )
    return image


def generate(directory: Path, count: int = 400, seed: int = 0) -> Path:
    """Write `count` JPEG files unless they are there; returns the directory."""
    marker = directory / f".complete-{count}-{seed}"
    if marker.exists():
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    sizes, size_shares = zip(*_SIZES, strict=True)
    codes, code_shares = zip(*_SUBSAMPLING, strict=True)
    for index in range(count):
        width, height = sizes[rng.choice(len(sizes), p=size_shares)]
        image = _picture(rng, width, height)
        if rng.random() < _GREY_SHARE:
            image = image.convert("L")
        subsampling = int(rng.choice(codes, p=code_shares))
        quality = int(rng.integers(80, 97))
        extra = {} if image.mode == "L" else {"subsampling": subsampling}
        image.save(directory / f"{index:05d}.jpg", quality=quality, **extra)
    marker.touch()
    return directory
