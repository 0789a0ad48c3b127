"""What a C user gets: headers, the library and penstock.pc, used through pkg-config alone."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build"))

for tool in ("cc", "meson", "nm", "pkg-config"):
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not in the path", allow_module_level=True)
if not (BUILD / "build.ninja").exists():
    pytest.skip(f"no Meson build in {BUILD.name}; `make test` makes one", allow_module_level=True)


def run(*command, **options) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """`meson install` into a folder of its own; the folder that stands for /."""
    root = tmp_path_factory.mktemp("root")
    tags = "--tags=runtime,devel"
    run("meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", tags, "--destdir", root)
    return root


@pytest.fixture(scope="module")
def library(installed) -> Path:
    return next(path for path in installed.rglob("libpenstock.so.*") if not path.is_symlink())


@pytest.fixture(scope="module")
def exported(library) -> set[str]:
    return {line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines()}


@pytest.fixture(scope="module")
def iterate(installed, library, tmp_path_factory) -> list[str]:
    """The compiled example, with what it takes to run it from where it was installed."""
    program = tmp_path_factory.mktemp("bin") / "iterate"
    environment = os.environ | {
        "PKG_CONFIG_LIBDIR": str(next(installed.rglob("penstock.pc")).parent),
        "PKG_CONFIG_SYSROOT_DIR": str(installed),
    }
    flags = run("pkg-config", "--cflags", "--libs", "penstock", env=environment).split()
    strict = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    run("cc", *strict, ROOT / "examples" / "iterate.c", "-o", program, *flags)
    return ["env", f"LD_LIBRARY_PATH={library.parent}", str(program)]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "pictures"
    script = ROOT / "examples" / "pictures.py"
    run(sys.executable, script, folder, "--train", "40", "--val", "8")
    return folder / "train"


def test_every_public_header_is_installed(installed):
    expected = {path.name for path in (ROOT / "include" / "penstock").glob("*.h")}
    assert {path.name for path in installed.rglob("include/penstock/*.h")} == expected


def test_only_public_names_are_exported(exported):
    assert [name for name in exported if not re.match(r"pen_[a-z]", name)] == []


def test_every_declared_function_is_exported(exported):
    """A declaration without a definition goes unnoticed until someone calls it."""
    headers = (ROOT / "include" / "penstock").glob("*.h")
    text = " ".join(re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL) for path in headers)
    declared = set(re.findall(r"PEN_API\b[^;(]*?\b(pen_\w+)\s*\(", text))
    assert "pen_version" in declared
    assert declared - exported == set()


def test_the_example_walks_through_a_folder(iterate, pictures):
    lines = run(*iterate, pictures, "2").splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "epoch 0 batch 0",
        "epoch 0 batch 1",
        "epoch 1 batch 0",
        "epoch 1 batch 1",
    ]
    assert ": 32 x 3 x 224 x 224," in lines[0]
    assert ": 8 x 3 x 224 x 224," in lines[1]


def test_the_example_prints_the_same_lines_when_run_again(iterate, pictures):
    assert run(*iterate, pictures, "2") == run(*iterate, pictures, "2")


def test_the_example_names_what_it_cannot_open(iterate, tmp_path):
    missing = tmp_path / "nowhere"
    done = subprocess.run([*iterate, missing], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "nowhere" in done.stderr
    assert "PEN_E" in done.stderr
