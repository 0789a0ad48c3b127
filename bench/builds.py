"""Which state of the project is measured, so that runs of different ones are not taken for the same."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from bench.common import ROOT

_SOURCES = ("src", "include", "cli", "python", "meson.build", "meson_options.txt", "pyproject.toml")
_MEASURED = (*_SOURCES, ":(glob)bench/**/*.py")  # what runs, and what measures it
_INSTALLED = Path(".venv", "installed-penstock")  # made by `make build`, after all else
UNKNOWN = "unknown"


def _git(root: Path, *words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, check=True).stdout


def build(root: Path = ROOT) -> str:
    """The last commit that touched what is measured, 12 digits; with "+" and a digest where files differ from it."""
    try:
        commit = _git(root, "rev-list", "-1", "HEAD", "--", *_MEASURED).decode().strip()[:12]
        changes = hashlib.sha256(_git(root, "diff", "--binary", "HEAD", "--", *_MEASURED))
        listed = _git(root, "ls-files", "-z", "--others", "--exclude-standard", "--", *_MEASURED)
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN  # no repository, or no git
    for name in filter(None, listed.decode(errors="surrogateescape").split("\0")):
        changes.update(name.encode(errors="surrogateescape") + b"\0" + (root / name).read_bytes())
    is_clean = changes.digest() == hashlib.sha256().digest()
    return commit if is_clean else f"{commit}+{changes.hexdigest()[:8]}"


def is_stale(root: Path = ROOT) -> bool:
    """Whether what is installed was built before the sources changed: then the commit says nothing about it."""
    try:
        built = (root / _INSTALLED).stat().st_mtime
    except OSError:
        return False  # nothing is installed: who needs it says so
    files = (path for name in _SOURCES for path in [root / name, *(root / name).rglob("*")])
    return any(
        path.is_file() and path.suffix != ".pyc" and path.stat().st_mtime > built for path in files
    )
