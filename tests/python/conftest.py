"""Datasets made on the spot, and what the tests share to look at streams.

Pictures are small and differ in size, format and colour, so that a test sees the
shapes of real data in milliseconds.  Nothing outside the test's folder is read.
"""

import contextlib
import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from node_double import Node
from PIL import Image

import penstock
from penstock import transforms as T

# torchvision has no build for the CPU alone.  Its Python part works without its compiled
# operators once their names exist, which must be before anyone imports it.
SCHEMAS = (
    "nms(Tensor a, Tensor b, float c) -> Tensor",
    "qnms(Tensor a, Tensor b, float c) -> Tensor",
    "roi_align(Tensor a, Tensor b, float c, int d, int e, int f, bool g) -> Tensor",
    "roi_pool(Tensor a, Tensor b, float c, int d, int e) -> (Tensor, Tensor)",
    "ps_roi_align(Tensor a, Tensor b, float c, int d, int e, int f) -> (Tensor, Tensor)",
    "ps_roi_pool(Tensor a, Tensor b, float c, int d, int e) -> (Tensor, Tensor)",
    "deform_conv2d(Tensor a) -> Tensor",
)
try:
    import torchvision  # noqa: F401
except ImportError:
    pass  # tests that need it skip themselves
except RuntimeError:
    import torch

    OPERATORS = torch.library.Library("torchvision", "DEF")  # they live as long as this object
    for schema in SCHEMAS:
        OPERATORS.define(schema)

N_PICTURES = 23  # prime: no batch size divides it
CLASSES = ("ant", "bee", "cat")
JPEG = {"quality": 90}


def picture(number: int, width: int = 0, height: int = 0) -> Image.Image:
    """A picture with edges and gradients, different for every number."""
    rng = np.random.default_rng(number)
    width = width or 40 + number * 7 % 50
    height = height or 36 + number * 11 % 60
    y, x = np.mgrid[:height, :width]
    planes = [(x * rng.integers(1, 9) + y * rng.integers(1, 9)) % 256 for _ in range(3)]
    pixels = np.stack(planes, axis=-1) + rng.integers(0, 20, (height, width, 3))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def encoded(number: int) -> tuple[str, bytes]:
    """(extension, bytes): mostly JPEG, some PNG and WebP, some grey."""
    image, out = picture(number), io.BytesIO()
    if number % 7 == 3:
        image.save(out, "PNG")
        return "png", out.getvalue()
    if number % 7 == 5:
        image.save(out, "WEBP", lossless=True)
        return "webp", out.getvalue()
    if number % 7 == 6:
        image = image.convert("L")
    image.save(out, "JPEG", **JPEG)
    return "jpg", out.getvalue()


def write_folder(root: Path, count: int) -> Path:
    for number in range(count):
        extension, data = encoded(number)
        place = root / CLASSES[number % len(CLASSES)]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:04}.{extension}").write_bytes(data)
    return root


def write_tar(path: Path, folder: Path) -> Path:
    """The folder as a WebDataset shard; every third sample has a caption, every fourth JSON."""
    with tarfile.open(path, "w") as tar:
        for file in sorted(folder.glob("*/*")):
            label, number = CLASSES.index(file.parent.name), int(file.stem)
            members = {file.suffix: file.read_bytes(), ".cls": str(label).encode()}
            if number % 3 == 0:
                members[".txt"] = f"picture {number}".encode()
            if number % 4 == 0:
                members[".json"] = b'{"number": %d}' % number
            for suffix, data in members.items():
                member = tarfile.TarInfo(f"{file.parent.name}/{file.stem}{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return path


# A shell that starts this in the background has Ctrl-C ignored, in all that is started here, too.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tar indexes go to the test's folder, here and in child processes."""
    os.environ["PENSTOCK_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("data") / "folder", N_PICTURES)


@pytest.fixture(scope="session")
def shard(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Path:
    return write_tar(tmp_path_factory.mktemp("data") / "shard.tar", folder)


@pytest.fixture(scope="session")
def noises(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of noise in PNG files, every difference in which is an operation's.  Half of it
    is at the ends of the range, where clipping shows; one picture is grey."""
    root = tmp_path_factory.mktemp("noises")
    for number in range(8):
        rng = np.random.default_rng(number)
        pixels = rng.integers(0, 256, (*rng.integers(20, 90, 2), 3))
        if number % 2:
            pixels = np.where(pixels > 127, 255, 0)
        place = root / f"class{number % 2}"
        place.mkdir(exist_ok=True)
        image = Image.fromarray(pixels.astype(np.uint8)).convert("L" if number == 5 else "RGB")
        image.save(place / f"{number}.png")
    return root


@pytest.fixture
def spoiled(tmp_path: Path) -> Path:
    """A folder in which samples 4 and 17 are no images any more."""
    root = write_folder(tmp_path / "spoiled", N_PICTURES)
    files = sorted(root.glob("*/*"), key=lambda file: (file.parent.name, file.name))
    files[4].write_bytes(b"this was a picture once")
    files[17].write_bytes(files[17].read_bytes()[:60])
    return root


@pytest.fixture(scope="session")
def ops() -> list[T.Transform]:
    """Crop, flips, colour, noise: what is usual and random, on the way to a small float tensor."""
    return [
        T.RandomResizedCrop(32, scale=(0.3, 1.0)),
        T.RandomHorizontalFlip(),
        T.RandomVerticalFlip(0.3),
        T.ColorJitter(0.4, 0.4, 0.4, 0.1),
        T.ToTensor(),
        T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        T.RandomErasing(0.5, value="random"),
    ]


@pytest.fixture(scope="session")
def plain_ops() -> list[T.Transform]:
    return [T.Resize((24, 20))]


def batch_digest(batch: penstock.Batch) -> str:
    """A hash over everything a batch says."""
    digest = hashlib.sha256()
    for name in ("image", "label", "mask"):
        digest.update(batch[name])
    digest.update(repr((batch.keys, batch.ids, batch.epoch, batch.index)).encode())
    return digest.hexdigest()


@pytest.fixture(scope="session")
def digests() -> Callable[[Iterable[penstock.Batch]], list[str]]:
    """One hash a batch."""
    return lambda batches: [batch_digest(batch) for batch in batches]


@pytest.fixture(scope="session")
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a program in a new interpreter; a hang ends as a failure, not for ever, and says where
    the program was."""

    def run(code: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        call = [sys.executable, "-X", "faulthandler", "-c", code, *map(str, arguments)]
        pipe = subprocess.PIPE
        usual = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
        with subprocess.Popen(
            call, stdout=pipe, stderr=pipe, text=True, env=usual | environment
        ) as program:
            try:
                out, err = program.communicate(timeout=120)
            except subprocess.TimeoutExpired:
                program.send_signal(signal.SIGABRT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    out, err = program.communicate(timeout=10)
                    pytest.fail(f"it hung\n{out}\n{err}")
                program.kill()
                pytest.fail("it hung, and does not say where")
            return subprocess.CompletedProcess(call, program.returncode, out, err)

    return run


# ---- remote datasets ----


@pytest.fixture
def plain_remote(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the environment but a timeout that no busy machine reaches."""
    for name in ("PENSTOCK_TOKEN", "PENSTOCK_TOKEN_FILE", "PENSTOCK_CA_FILE", "PENSTOCK_OFFLOAD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "30")


@pytest.fixture
def node(folder: Path, shard: Path) -> Iterator[Node]:
    """A storage node that can misbehave."""
    with Node(pictures=folder, shard=shard) as found:
        yield found


@pytest.fixture
def stream(ops: list[T.Transform], digests: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """Hashes of an epoch's batches; `between` is called after each batch."""

    def read(path, workers=3, epochs=1, between=None, policy="fixed", **options):
        # fixed: what nodes are asked to do stays the same
        options["policy"] = policy
        loader = penstock.Loader(path, ops, 4, shuffle=True, seed=5, num_workers=workers, **options)
        found = []
        for _ in range(epochs):
            for batch in loader:
                found += digests([batch])
                if between:
                    between()
        return found

    return read
