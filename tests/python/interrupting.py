"""A program that waits for something, and Ctrl-C or another signal."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def pause(pid: int) -> None:
    """Stop a process.  The signal alone does not: threads go on until one of them has taken it."""
    os.kill(pid, signal.SIGSTOP)
    while any(
        (task / "stat").read_text().rpartition(")")[2].split()[0] != "T"
        for task in Path(f"/proc/{pid}/task").iterdir()
    ):
        time.sleep(0.001)


def interrupt(program: str, *arguments: str, by: int = signal.SIGINT) -> tuple[str, int]:
    """What a program prints behind "waiting", and its exit code, when it is interrupted some time after that.

    It may import from here.
    """
    child = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
        time.sleep(0.3)
        child.send_signal(by)
        output, _ = child.communicate(timeout=120)
    finally:
        child.kill()
    return output, child.returncode
