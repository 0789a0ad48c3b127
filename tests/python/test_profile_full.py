"""Nothing can be kept because the disk is full, for which a limit on the size of files stands: no
mounting, and so no root."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).with_name("penstock")
LIMIT = 100  # bytes of a file: the profile of the smallest dataset is larger

pytestmark = pytest.mark.usefixtures("plain_remote")

PROGRAM = f"""
import hashlib, resource, signal, sys, warnings
import penstock
from penstock import transforms as T

url, cache = sys.argv[1:3]
if cache:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, ({LIMIT}, {LIMIT}))
options = {{"cache_dir": cache}} if cache else {{}}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    line = [T.RandomResizedCrop(20), T.RandomHorizontalFlip(), T.ToTensor()]
    loader = penstock.Loader(url, line, 4, shuffle=True, seed=5, num_workers=2, **options)
    for _ in range(3):
        for batch in loader:
            print(hashlib.sha256(bytes(memoryview(batch["image"]))).hexdigest())
    loader.close()
for warning in caught:
    print(warning.category.__name__, warning.message, file=sys.stderr)
"""


@contextmanager
def serving(cache: Path, *arguments: object) -> Iterator[str]:
    """A node that can keep nothing either, and neither ignores SIGXFSZ nor is told to."""
    limited = ["prlimit", f"--fsize={LIMIT}", str(COMMAND), "serve", "--listen", "127.0.0.1:0"]
    environment = os.environ | {"PENSTOCK_CACHE": str(cache)}
    with subprocess.Popen(
        [*limited, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as server:
        try:
            line = server.stdout.readline()
            assert line.startswith("serving at http"), server.stderr.read()
            yield line.rpartition("/")[2].strip()
            server.send_signal(signal.SIGTERM)
            assert server.wait(timeout=60) == 0
        finally:
            server.kill()


def test_full_disks_at_both_ends_change_nothing(folder: Path, tmp_path: Path, run_python) -> None:
    want = run_python(PROGRAM, folder, "")
    assert (want.returncode, want.stderr) == (0, ""), want.stderr
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with serving(theirs, "--name", "pictures", folder) as address:
        found = run_python(PROGRAM, f"penstock://{address}/pictures", ours)
    assert found.returncode == 0, found.stderr
    assert found.stdout == want.stdout and len(want.stdout.split()) > 3
    (warning,) = found.stderr.splitlines()
    assert re.match("RuntimeWarning .*not kept for the next run", warning)
    assert "File too large" in warning
    left = [file for file in [*ours.rglob("*"), *theirs.rglob("*")] if file.is_file()]
    assert all(file.suffix == ".lock" for file in left), left


def test_an_older_profile_stays_as_it_was(folder: Path, tmp_path: Path, run_python) -> None:
    ours = tmp_path / "ours"
    generous = PROGRAM.replace(f"({LIMIT}, {LIMIT})", "(10**6, 10**6)")
    with serving(tmp_path / "theirs", "--name", "pictures", folder) as address:
        url = f"penstock://{address}/pictures"
        assert run_python(generous, url, ours).stderr == ""
        (profile,) = ours.glob("*.profile")
        assert profile.stat().st_size > LIMIT
        before = profile.read_bytes()[:-1] + b"?"  # so that all is to be learned again
        profile.write_bytes(before)
        again = run_python(PROGRAM, url, ours)
    assert "not kept for the next run" in again.stderr
    assert profile.read_bytes() == before
