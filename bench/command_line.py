"""What the commands of several benchmarks share: options, files that are written and read, and how they end."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Report = dict[str, Any]


def words(text: str) -> list[str]:
    """What stands between commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def add_common(parser: argparse.ArgumentParser, *, quick: str, plot: str) -> None:
    """Options that mean the same everywhere; `quick` and `plot` say what is short, and what is drawn."""
    add = parser.add_argument
    add("--quick", action="store_true", help=f"{quick}: does all work?")
    add("--json", type=Path, metavar="OUT", help="everything measured, written after every run")
    add("--plot", type=Path, metavar="OUT", help=f"draw OUT and OUT with {plot} in its name")
    add("--report", type=Path, metavar="OUT", help="write the report, Markdown; else it is printed")
    add(
        "--from",
        dest="from_",
        type=Path,
        nargs="+",
        metavar="JSON",
        help="report on what was measured before; several files are joined",
    )
    add("--list", action="store_true", help="name what can be run, and stop")


def save(target: Path | None, report: Report) -> None:
    """What took hours is never half written."""
    if target:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(report) + "\n")
        part.rename(target)


def load(paths: list[Path]) -> list[Report]:
    """Reports written before."""
    try:
        return [json.loads(path.read_text()) for path in paths]
    except (OSError, json.JSONDecodeError) as error:
        sys.exit(f"bench: cannot use what was measured before: {error}")


def write_report(text: str, target: Path | None) -> None:
    """Into a file, or to the reader."""
    if target:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text + "\n")
    else:
        print(text)


def run_command(main: Callable[[], None]) -> None:
    """Being asked to end must end the processes of a run too, which the interrupt's handler does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nbench: interrupted")
