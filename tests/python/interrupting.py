"""A program that waits for something, and Ctrl-C or another signal."""

import signal
import subprocess
import sys
import time


def interrupt(program: str, *arguments: str, by: int = signal.SIGINT) -> tuple[str, int]:
    """What a program prints behind "waiting", and its exit code, when it is interrupted some time after that."""
    child = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True
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
