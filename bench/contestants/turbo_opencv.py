"""The transform that PyTorch and Grain users write by hand for speed: libjpeg-turbo and OpenCV."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

from bench.common import MEAN, RATIO, SCALE, SIZE, STD

_ATTEMPTS = 10


def random_crop(width: int, height: int, rng: random.Random) -> tuple[int, int, int, int]:
    """(left, top, width, height) of a RandomResizedCrop window."""
    for _ in range(_ATTEMPTS):
        area = width * height * rng.uniform(*SCALE)
        ratio = math.exp(rng.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return rng.randint(0, width - w), rng.randint(0, height - h), w, h
    w, h = min(width, round(height * RATIO[1])), min(height, round(width / RATIO[0]))
    return (width - w) // 2, (height - h) // 2, w, h


class TurboTransform:
    """A JPEG file to float32 CHW; one a thread.

    libjpeg-turbo's handle cannot be sent to a worker process, so it is made at the first call.
    """

    def __init__(self) -> None:
        self._decoder: Any = None

    def _start(self) -> None:
        import cv2
        import turbojpeg

        cv2.setNumThreads(
            0
        )  # the loader's workers are the parallelism; a pool in each would oversubscribe
        self._decoder = turbojpeg.TurboJPEG()

    def __call__(self, path: Path, rng: random.Random) -> Any:
        import cv2
        import numpy as np
        import turbojpeg

        if self._decoder is None:
            self._start()
        pixels = self._decoder.decode(path.read_bytes(), pixel_format=turbojpeg.TJPF_RGB)
        left, top, width, height = random_crop(pixels.shape[1], pixels.shape[0], rng)
        crop = pixels[top : top + height, left : left + width]
        # Area averaging is OpenCV's advice for shrinking; enlarging with it would give blocks.
        filter_ = cv2.INTER_AREA if width >= SIZE and height >= SIZE else cv2.INTER_LINEAR
        image = cv2.resize(crop, (SIZE, SIZE), interpolation=filter_)
        if rng.random() < 0.5:
            image = cv2.flip(image, 1)
        # Plane by plane into its place: no float32 HWC image in between.
        out = np.empty((3, SIZE, SIZE), np.float32)
        for channel in range(3):
            np.multiply(
                image[:, :, channel], np.float32(1 / (255 * STD[channel])), out=out[channel]
            )
            out[channel] -= np.float32(MEAN[channel] / STD[channel])
        return out
