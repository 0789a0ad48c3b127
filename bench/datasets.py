"""Views: the same images as class folders, as one tar and as shards, in a cache directory.

A view never copies the user's files into the project: class folders are hard links (symbolic links across
file systems), tars live in the cache. A set too small for a steady measurement is repeated until it has
enough images.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from PIL import Image, UnidentifiedImageError

N_CLASSES = 16  # for flat folders, which have no classes of their own
N_SHARDS = 4  # a multiple of the workers, so that each gets the same number
_SUFFIXES = {".jpg", ".jpeg"}


@dataclass(frozen=True)
class View:
    """A prepared data set."""

    name: str
    directory: Path
    images: int  # in one epoch, repeats included
    distinct: int
    file_bytes: int  # of one epoch
    notes: tuple[str, ...]


def cache_root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "penstock-bench"


def refusal(path: Path) -> str | None:
    """Why a file is left out of the common set, or None if every peer can take it."""
    try:
        with Image.open(path) as image:
            if image.format != "JPEG":
                return f"is {image.format}, not JPEG"
            if image.mode not in ("RGB", "L"):
                return f"is {image.mode}, which not every peer turns into RGB"
            image.load()
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        return f"Pillow cannot decode it ({type(error).__name__})"
    return None


def _jpeg_files(source: Path) -> list[Path]:
    return sorted(p for p in source.rglob("*") if p.suffix.lower() in _SUFFIXES and p.is_file())


def _fingerprint(source: Path, files: list[Path], images_min: int) -> str:
    digest = hashlib.sha256(f"{images_min} {N_SHARDS}".encode())
    for path in files:
        digest.update(f"{path.relative_to(source)} {path.stat().st_size}\n".encode())
    return digest.hexdigest()[:12]


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or hard links of other people's files are not allowed
        target.symlink_to(source.resolve())


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


def _write_tars(directory: Path) -> None:
    """One tar with all files, and the same files dealt over shards."""
    files = sorted((directory / "folder").glob("*/*"))
    (directory / "shards").mkdir()
    targets = [
        directory / "all.tar",
        *(directory / "shards" / f"{i:03d}.tar" for i in range(N_SHARDS)),
    ]
    with ExitStack() as stack:
        whole, *shards = [stack.enter_context(tarfile.open(target, "w")) for target in targets]
        for index, path in enumerate(files):
            data = path.read_bytes()
            # One flat number a sample: the shards' readers group by the name up to its first dot.
            for archive in (whole, shards[index % N_SHARDS]):
                _add(archive, f"{index:06d}.jpg", data)


def _link_inside(source: Path, target: Path) -> None:
    """For servers, which follow no link out of their folder."""
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


def _write_folders(
    source: Path, files: list[Path], repeats: int, folder: Path, is_served: bool
) -> None:
    for repeat in range(repeats):
        for index, path in enumerate(files):
            parent = path.relative_to(source).parent.as_posix().replace("/", "_")
            label = parent if parent != "." else f"class{index % N_CLASSES:02d}"
            (folder / label).mkdir(parents=True, exist_ok=True)
            first = folder / label / f"{index:06d}-000.jpg"
            target = folder / label / f"{index:06d}-{repeat:03d}.jpg"
            if is_served:  # what has to be copied is copied once
                _link_inside(first if repeat else path, target)
            else:
                _link(path, target)


def make_view(
    source: Path, images_min: int, name: str | None = None, *, is_served: bool = False
) -> View:
    """Prepare (or find in the cache) the view of `source`, repeated to at least `images_min` images.

    One that is served has only folders, and no link leaves them.
    """
    candidates = _jpeg_files(source)
    if not candidates:
        raise FileNotFoundError(f"no .jpg or .jpeg files in {source.name}")
    name = name or source.resolve().name
    kind = "-served" if is_served else ""
    directory = cache_root() / f"{name}-{_fingerprint(source, candidates, images_min)}{kind}"
    manifest = directory / "manifest.json"
    if not manifest.exists():
        _build(source, candidates, images_min, name, directory, is_served)
    stored = json.loads(manifest.read_text())
    return View(directory=directory, **{**stored, "notes": tuple(stored["notes"])})


def _build(
    source: Path,
    candidates: list[Path],
    images_min: int,
    name: str,
    directory: Path,
    is_served: bool,
) -> None:
    reasons = {path: refusal(path) for path in candidates}
    files = [path for path in candidates if reasons[path] is None]
    if not files:
        raise FileNotFoundError(f"none of the files in {source.name} can be decoded by every peer")
    notes = tuple(f"left out {path.name}: it {why}" for path, why in reasons.items() if why)
    # Built aside and moved, so an interrupted run leaves no half view behind.
    scratch = directory.with_suffix(".part")
    shutil.rmtree(scratch, ignore_errors=True)
    repeats = -(-images_min // len(files))
    _write_folders(source, files, repeats, scratch / "folder", is_served)
    if not is_served:
        _write_tars(scratch)
    view = View(
        name=name,
        directory=directory,
        images=len(files) * repeats,
        distinct=len(files),
        file_bytes=sum(path.stat().st_size for path in files) * repeats,
        notes=notes,
    )
    stored = asdict(view)
    del stored["directory"]
    (scratch / "manifest.json").write_text(json.dumps(stored, indent=1))
    shutil.rmtree(directory, ignore_errors=True)
    scratch.rename(directory)


def input_files(path: Path) -> Iterator[Path]:
    """The files below a contestant's input, or the input itself."""
    if path.is_dir():
        yield from (p for p in path.rglob("*") if p.is_file())
    elif path.exists():
        yield path


def warm(path: Path) -> int:
    """Read an input once so that it is in the page cache; returns its size in bytes."""
    total = 0
    buffer = bytearray(1 << 20)
    for file in input_files(path):
        with suppress(OSError), file.open("rb", buffering=0) as stream:
            while got := stream.readinto(buffer):
                total += got
    return total
