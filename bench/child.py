"""A process that is told things and answers, line by line."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from contextlib import suppress
from typing import Any


class Lost(Exception):
    """The process ended, or said nothing for too long."""


class Lines:
    """What a process says, line by line, with a time limit."""

    def __init__(self, process: subprocess.Popen[str], errors: Any) -> None:
        self._process, self._errors, self._rest = process, errors, b""
        self._selector = selectors.DefaultSelector()
        assert process.stdout is not None
        self._fd = process.stdout.fileno()
        self._selector.register(self._fd, selectors.EVENT_READ)

    def next(self, seconds: float) -> str:
        deadline = time.monotonic() + seconds
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not self._selector.select(left):
                raise Lost(f"said nothing for {seconds:.0f} s")
            if not (got := os.read(self._fd, 1 << 16)):
                raise Lost(self._last_error())
            self._rest += got
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def _last_error(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines() or ["no message"]
        return f"ended: {lines[-1]}"

    def close(self) -> None:
        self._selector.close()


def tell(process: subprocess.Popen[str], line: str) -> None:
    """Say a line to a process."""
    assert process.stdin is not None
    try:
        process.stdin.write(line + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        raise Lost("ended too early") from None


def end_group(process: subprocess.Popen[str]) -> None:
    """A contestant and all it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
