"""What makes a scenario real, for every contestant alike: a slow file system, competing processes, control
groups, and a page cache that is kept cold. What this machine does not allow raises Unavailable, with a reason."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bench.adapt.scenarios import Phase, Scenario
from bench.common import Unavailable
from bench.control_group import ControlGroup
from bench.datasets import cache_root, input_files

_SOURCE = Path(__file__).with_name("slowfs.c")
_COLD_PAUSE_S = 0.25


def build_slowfs() -> Path:
    """Compile slowfs into the cache, once for each version of its source."""
    target = cache_root() / f"slowfs-{int(_SOURCE.stat().st_mtime)}"
    if target.exists():
        return target
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise Unavailable("no access to /dev/fuse")
    compiler = shutil.which("cc")
    found = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True, check=False
    )
    if compiler is None or found.returncode != 0:
        raise Unavailable("slowfs needs a C compiler and libfuse3-dev")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(f".{os.getpid()}")
    command = [compiler, "-O2", "-std=c11", str(_SOURCE), "-o", str(part), *found.stdout.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"slowfs does not compile: {done.stderr.strip().splitlines()[-1]}")
    part.rename(target)
    return target


class SlowFolder:
    """A folder mounted through slowfs."""

    def __init__(self, mount: Path) -> None:
        self.path = mount

    def set(self, open_ms: float, bytes_per_s: float) -> None:
        with (self.path / ".control").open("w", buffering=-1) as control:
            control.write(f"open_ms={open_ms:g} bytes_per_s={bytes_per_s:g}\n")


@contextmanager
def slow_folder(folder: Path) -> Iterator[SlowFolder]:
    program = build_slowfs()
    with tempfile.TemporaryDirectory(prefix="penstock-slow-") as mount:
        process = subprocess.Popen(
            [program, folder, mount], stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            _wait_for_mount(process, Path(mount))
            yield SlowFolder(Path(mount))
        finally:
            process.terminate()  # it unmounts
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if Path(mount).is_mount():  # somebody still holds a file of it
                subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)
            if process.stderr:
                process.stderr.close()


def _wait_for_mount(process: subprocess.Popen[str], mount: Path) -> None:
    for _ in range(100):
        if mount.is_mount():
            return
        if process.poll() is not None:
            break
        time.sleep(0.05)
    said = (process.stderr.read() if process.stderr and process.poll() is not None else "").strip()
    raise Unavailable(f"slowfs cannot be mounted: {said or 'it does not answer'}")


class Hogs:
    """Processes that never wait; as many as asked for at a time."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []

    def set(self, count: int) -> None:
        while len(self._running) > count:
            hog = self._running.pop()
            hog.kill()
            hog.wait()
        while len(self._running) < count:
            self._running.append(subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]))

    def pids(self) -> list[int]:
        return [hog.pid for hog in self._running]


@contextmanager
def cold_cache(folder: Path) -> Iterator[None]:
    """Throw a folder's pages out of the page cache again and again; of no other's."""
    try:
        files = _distinct(input_files(folder))
        for path in files:
            _throw_out(path)
    except OSError as error:
        raise Unavailable(f"the page cache cannot be kept cold: {error}") from error
    end = threading.Event()

    def chill() -> None:
        while not end.wait(_COLD_PAUSE_S):
            for path in files:
                with suppress(OSError):
                    _throw_out(path)

    thread = threading.Thread(target=chill, name="chill")
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def _distinct(paths: Iterable[Path]) -> list[Path]:
    """One name of each file: a view has many links to few."""
    found: dict[tuple[int, int], Path] = {}
    for path in paths:
        about = path.stat()
        found.setdefault((about.st_dev, about.st_ino), path)
    return list(found.values())


def _throw_out(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


class Stage:
    """Everything a scenario needs, set up once for a run: `view` is where the contestant finds its data."""

    def __init__(self, scenario: Scenario, view: Path | None, exits: ExitStack) -> None:
        self._hogs = Hogs()
        exits.callback(self._hogs.set, 0)
        self._slow = (
            exits.enter_context(slow_folder(view)) if scenario.needs_slowfs and view else None
        )
        self._group: ControlGroup | None = None
        if scenario.needs_cgroup:
            self._group = ControlGroup()
            exits.callback(self._group.remove)
        if scenario.keeps_cold and view:
            exits.enter_context(cold_cache(view / "folder"))
        self.view = self._slow.path if self._slow else view

    def add(self, pid: int) -> None:
        if self._group:
            self._group.add(pid)

    def set(self, phase: Phase) -> None:
        self._hogs.set(phase.hogs)
        if self._slow:
            self._slow.set(phase.open_ms, phase.bytes_per_s)
        if self._group:
            self._group.set(phase.cpu_quota)


@contextmanager
def stage(scenario: Scenario, view: Path | None) -> Iterator[Stage]:
    with ExitStack() as exits:
        yield Stage(scenario, view, exits)
