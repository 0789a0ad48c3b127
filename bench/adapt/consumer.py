"""The training loop of one run, in a process of its own: takes batches, is busy for a step, notes the times.

    python -m bench.adapt.consumer ENTRANT SCENARIO --view DIR ...

It says `ready` when all is imported, waits for `go`, says `first` at the first batch, turns Penstock's knobs
when it reads `knobs {...}`, stops at `end`, and prints one line of JSON. Times are of the monotonic clock,
which all processes of a machine share.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TextIO

from bench.adapt.entrants import Entrant, entrants, load_peer
from bench.adapt.scenarios import SCENARIOS, Scenario
from bench.common import MEAN, SIZE, STD


class Subject(Protocol):
    """A loader under test."""

    def open(self) -> Callable[[int], Iterator[Any]]: ...
    def rows(self, batch: Any) -> int: ...
    def turn(self, knobs: dict[str, Any]) -> None: ...
    def digest(self, batch: Any) -> int: ...
    def about(self) -> dict[str, Any]: ...


class Native:
    """penstock.Loader."""

    def __init__(self, entrant: Entrant, scenario: Scenario, options: argparse.Namespace) -> None:
        import numpy

        import penstock

        self._penstock, self._numpy = penstock, numpy
        self._entrant, self._scenario, self._options = entrant, scenario, options
        self._loader: Any = None

    def open(self) -> Callable[[int], Iterator[Any]]:
        penstock, options = self._penstock, self._options
        transforms = [
            penstock.RandomResizedCrop(SIZE),
            penstock.RandomHorizontalFlip(),
            penstock.ToTensor(),
            penstock.Normalize(MEAN, STD),
        ]
        extra: dict[str, Any] = {"num_workers": 1, "prefetch": 1} if options.alone else {}
        # Without an index the first epoch costs what later ones do, and no run gains by an earlier one.
        self._loader = penstock.Loader(
            options.view / "folder",
            transforms,
            batch_size=self._scenario.batch_size,
            shuffle=True,
            seed=options.seed,
            policy=self._entrant.policy,
            decision_log=options.log,
            memory_budget=self._scenario.memory_budget,
            drop_last=True,
            index=False,
            **extra,
        )
        if options.knobs:
            self.turn(json.loads(options.knobs))
        return lambda _epoch: (batch["image"] for batch in self._loader)

    def rows(self, batch: Any) -> int:
        return int(batch.shape[0])

    def turn(self, knobs: dict[str, Any]) -> None:
        turn(self._loader, knobs)

    def digest(self, batch: Any) -> int:
        return zlib.crc32(self._numpy.from_dlpack(batch).data)

    def about(self) -> dict[str, Any]:
        return {
            "stats": self._loader.stats(),
            "knobs": dict(self._loader.knobs._loader.get_knobs()),
            "verdict": self._loader.verdict(),
            "control_cpu_s": thread_cpu_s("penstock-ct"),
        }


class Items:
    """A DataLoader over Python items: torch's own, or ours."""

    def __init__(self, entrant: Entrant, scenario: Scenario, options: argparse.Namespace) -> None:
        import torch.utils.data

        from bench.items import items_of

        self._is_ours = entrant.is_ours
        self._kind: Any = torch.utils.data.DataLoader
        workers: Any = entrant.workers
        extra: dict[str, Any] = {}
        if entrant.is_ours:
            import penstock.torch

            self._kind = penstock.torch.DataLoader
            workers = _processes(entrant, options)
            extra = {"policy": entrant.policy, "decision_log": options.log}
        self._arguments = {
            "dataset": items_of(scenario.data),
            "batch_size": scenario.batch_size,
            "shuffle": True,
            "num_workers": workers,
            "persistent_workers": workers != 0,
            "drop_last": True,
            **extra,
        }
        torch.manual_seed(options.seed)
        self._loader: Any = None

    def open(self) -> Callable[[int], Iterator[Any]]:
        self._loader = self._kind(**self._arguments)
        return lambda _epoch: iter(self._loader)

    def rows(self, batch: Any) -> int:
        return len(batch)

    def turn(self, knobs: dict[str, Any]) -> None:
        if not self._is_ours:
            raise NotImplementedError("a peer has no knobs")
        turn(self._loader, knobs)

    def digest(self, batch: Any) -> int:
        return zlib.crc32(batch.contiguous().numpy())

    def about(self) -> dict[str, Any]:
        found: dict[str, Any] = {"num_workers": self._loader.num_workers}
        if self._is_ours:  # there is no thread: control is in the loop's
            stats = self._loader.stats()
            found |= {"stats": stats, "knobs": dict(self._loader.knobs)}
            found |= {"verdict": self._loader.verdict(), "control_cpu_s": stats["control_ns"] / 1e9}
        return found


def _processes(entrant: Entrant, options: argparse.Namespace) -> Any:
    """num_workers of our own loader of Python items."""
    if options.alone:
        return 1
    if options.knobs:
        return int(json.loads(options.knobs)["workers"])
    return "auto" if entrant.policy == "model" else len(os.sched_getaffinity(0))


class Peer:
    """A contestant of bench.run."""

    def __init__(self, entrant: Entrant, scenario: Scenario, options: argparse.Namespace) -> None:
        self._loader = load_peer(entrant, scenario, options.view, options.seed)

    def open(self) -> Callable[[int], Iterator[Any]]:
        return self._loader.open()

    def rows(self, batch: Any) -> int:
        return self._loader.rows(batch)

    def turn(self, knobs: dict[str, Any]) -> None:
        raise NotImplementedError("a peer has no knobs")

    def digest(self, batch: Any) -> int:
        raise NotImplementedError("only Penstock's stream is a function of its seed")

    def about(self) -> dict[str, Any]:
        return {"version": self._loader.version, "settings": self._loader.settings}


def turn(loader: Any, knobs: dict[str, Any]) -> None:
    """As far as they go here: workers, for one, go by the cores there were at the start."""
    ranges = loader.knobs.table()
    inside = {
        name: value if value == "auto" else min(max(value, ranges[name].min), ranges[name].max)
        for name, value in knobs.items()
    }
    loader.knobs.set(**inside)


def random_knobs(draws: random.Random) -> dict[str, Any]:
    """Of worker processes."""
    return {
        "workers": draws.choice([1, 2, 3, 5, 8, "auto"]),
        "ready_batches": draws.choice([1, 2, 4, 9, 30, "auto"]),
    }


def thread_cpu_s(start: str) -> float:
    """Processor time of this process's threads whose names start so."""
    total_ns = 0
    for task in Path("/proc/self/task").iterdir():
        try:
            if (task / "comm").read_text().startswith(start):
                total_ns += int((task / "schedstat").read_text().split()[0])
        except OSError:
            continue  # it ended
    return total_ns / 1e9


def lines_of(fd: int) -> Iterator[str]:
    """Without sys.stdin: workers forked while a thread reads it would inherit its lock, and hang."""
    rest = b""
    while got := os.read(fd, 1 << 16):
        *whole, rest = (rest + got).split(b"\n")
        yield from (line.decode() for line in whole)


def listen(fd: int, subject: Subject, go: threading.Event, end: threading.Event) -> None:
    """Do what the lines say, until they end."""
    for line in lines_of(fd):
        word, _, rest = line.partition(" ")
        if word == "go":
            go.set()
        elif word == "knobs":
            subject.turn(json.loads(rest))
        elif word == "end":
            break
    end.set()
    go.set()


def consume(
    subject: Subject,
    step_s: float,
    hashes: int,
    end: threading.Event,
    say: TextIO,
    draws: random.Random | None = None,
) -> dict[str, Any]:
    """Batches until told to end, or until `hashes` of them were hashed; `draws` turns knobs after each."""
    asked_s: list[float] = []
    got_s: list[float] = []
    rows: list[int] = []
    digests: list[int] = []
    begin = time.monotonic()
    epoch = subject.open()
    number = 0
    while not end.is_set():
        batches = epoch(number)
        number += 1
        while True:
            asked = time.monotonic()
            batch = next(batches, None)
            now = time.monotonic()
            if batch is None:
                break
            if not got_s:
                print("first", now, file=say, flush=True)
            asked_s.append(asked)
            got_s.append(now)
            rows.append(subject.rows(batch))
            if hashes:
                digests.append(subject.digest(batch))
            del batch
            if end.is_set() or (hashes and len(digests) >= hashes):
                end.set()
                break
            if draws:
                subject.turn(random_knobs(draws))
            if step_s:
                time.sleep(step_s)
    return {"begin": begin, "asked": asked_s, "got": got_s, "rows": rows, "digests": digests}


def make(entrant: Entrant, scenario: Scenario, options: argparse.Namespace) -> Subject:
    if scenario.is_python and entrant.is_dataloader:
        return Items(entrant, scenario, options)
    return (
        Native(entrant, scenario, options) if entrant.is_ours else Peer(entrant, scenario, options)
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.adapt.consumer", description=__doc__)
    parser.add_argument("entrant")
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--view", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="Penstock's decisions")
    parser.add_argument("--knobs", help="JSON, to begin with")
    parser.add_argument("--alone", action="store_true", help="one thread, one batch")
    parser.add_argument("--hashes", type=int, default=0, help="end after so many batches, hashed")
    parser.add_argument("--turning", action="store_true", help="knobs, at random, after each batch")
    options = parser.parse_args()
    # Whatever a peer prints goes to standard error; this end of standard output is ours alone.
    say, orders = os.fdopen(os.dup(1), "w"), os.dup(0)
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    scenario = SCENARIOS[options.scenario]
    workers = (int(options.entrant[6:]),) if options.entrant.startswith("torch-") else ()
    entrant = {e.name: e for e in entrants(scenario, workers)}[options.entrant]
    try:
        subject = make(entrant, scenario, options)
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), file=say, flush=True)
        return
    print("ready", file=say, flush=True)
    go, end = threading.Event(), threading.Event()
    threading.Thread(target=listen, args=(orders, subject, go, end), daemon=True).start()
    go.wait()
    draws = random.Random(options.seed) if options.turning else None
    noted = consume(subject, scenario.step_ms / 1000, options.hashes, end, say, draws)
    print(json.dumps({**noted, "about": subject.about()}), file=say, flush=True)
    say.close()
    os._exit(0)  # some peers' threads take long to end, or wait for ever


if __name__ == "__main__":
    main()
