"""bench.builds: which state of the project was measured."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench.builds import UNKNOWN, build, is_stale  # noqa: E402


@pytest.fixture
def tree(tmp_path):
    """A repository with a source, a benchmark and a text."""
    for name in ("src/a.c", "bench/offload/b.py", "docs/c.md"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("first\n")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(root, *words):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


def commit(root):
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "x")


def test_a_build_is_the_last_commit_of_what_is_measured(tree):
    first = build(tree)
    assert len(first) == 12 and int(first, 16)
    (tree / "docs" / "c.md").write_text("second\n")
    (tree / "offload.json").write_text("{}")
    assert build(tree) == first  # texts and results change no figure
    commit(tree)
    assert build(tree) == first
    (tree / "bench" / "offload" / "b.py").write_text("second\n")
    commit(tree)
    assert build(tree) not in (first, UNKNOWN) and "+" not in build(tree)


def test_what_is_not_committed_shows(tree):
    first, found = build(tree), set()
    for name in ("src/a.c", "src/new.c"):
        for text in ("second\n", "third\n"):
            (tree / name).write_text(text)
            found.add(build(tree))
    assert len(found) == 4 and all(of.startswith(f"{first}+") for of in found)


def test_without_a_repository_nothing_is_known(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert build(tmp_path) == UNKNOWN


def test_what_was_built_before_the_sources_changed_is_stale(tree):
    assert not is_stale(tree)  # nothing was built
    (tree / ".venv").mkdir()
    (tree / ".venv" / "installed-penstock").touch()
    for path in tree.rglob("*"):
        os.utime(path, (1000, 1000))
    assert not is_stale(tree)
    os.utime(tree / "docs" / "c.md", (2000, 2000))
    assert not is_stale(tree)
    os.utime(tree / "src" / "a.c", (2000, 2000))
    assert is_stale(tree)
