"""The training loop of one run, in a process of its own: takes batches from the storage node, is busy for as long as a
device would be, notes the times.

    python -m bench.offload.trainee penstock://HOST:PORT/NAME --offload auto --batches 20 ...

It says `ready` when all is imported and the node answers, waits for `go`, says `first` at the first batch, `count`
when those that warm up are over, waits for another `go`, says `done` at the last batch, and prints one line of JSON.
Times are of the monotonic clock, which all processes of a machine share.

The loader is told what each batch is (FedLoader), so it reads nothing beyond the batches that warm up until they are over,
and nothing beyond those that count: every byte between `count` and `done` belongs to them, and none is missing. A
loader that reads on into the next epoch would send more or less than it delivers, by what it is ahead.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from bench.common import MEAN, SIZE, STD
from bench.offload.digest import fingerprint
from bench.offload.grid import PLANNING

_NODE_S = 60.0


def wait_for_node(address: str, seconds: float = _NODE_S) -> str | None:
    """Until it says that it is well; else why not."""
    host, _, port = address.rpartition(":")
    deadline, problem = time.monotonic() + seconds, "no answer"
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection(host, int(port), timeout=5)
        try:
            connection.request("GET", "/healthz")
            status = connection.getresponse().status
            if status == 200:
                return None
            problem = f"answers {status}"
        except (OSError, http.client.HTTPException) as error:
            problem = str(error)
        finally:
            connection.close()
        time.sleep(0.05)
    return f"the storage node: {problem}"


def open_loader(options: argparse.Namespace) -> Any:
    import penstock

    transforms = [
        penstock.RandomResizedCrop(SIZE),
        penstock.RandomHorizontalFlip(),
        penstock.ToTensor(),
        penstock.Normalize(MEAN, STD),
    ]
    more: dict[str, Any] = {"offload": options.offload} if options.offload else {}
    return penstock.FedLoader(
        options.dataset, transforms, batch_size=options.batch_size, seed=options.seed, **more
    )


def ids_of(count: int, seed: int, epoch: int, batch_size: int, batches: int) -> list[Any]:
    """The first batches of an epoch: each sample once, in an order of the seed's."""
    import numpy

    order = numpy.random.default_rng((seed, epoch)).permutation(count).astype(numpy.int64)
    return [order[at * batch_size : (at + 1) * batch_size] for at in range(batches)]


def epoch_of(loader: Any, epoch: int, batches: list[Any]) -> Iterator[Any]:
    """All of them known to the loader from the beginning."""
    loader.begin(epoch)
    for ids in batches:
        loader.feed(ids)
    loader.end()
    while (batch := loader.next()) is not None:
        yield batch


def pace_of(got: list[float]) -> float:
    """Seconds a batch lately, of the later half: the first ones come slowly. 0 where too few came to tell."""
    later = got[len(got) // 2 :]
    return (later[-1] - later[0]) / (len(later) - 1) if len(later) > 1 else 0.0


def warming(
    batches: list[Any],
    seconds: float,
    least: int,
    got: list[float],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Any]:
    """Batches for so long, and `least` of them: none that would come later, going by the pace of those that came; no
    such guess in the first half of the time. 0 seconds: all."""
    begin = clock()
    for fed, ids in enumerate(batches):
        spent, waiting = clock() - begin, fed + 1 - len(got)
        is_late = spent >= seconds / 2 and spent + waiting * pace_of(got) > seconds
        if seconds and fed >= least and is_late:
            return
        yield ids


class Notes:
    """Times and fingerprints of the batches of an epoch, and how much is offloaded, where the loader plans that."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.got: list[float] = []
        self.digests: list[int] = []
        self.shares: list[tuple[float, float]] = []


def train(
    batches: Iterator[Any],
    notes: Notes,
    step_s: float,
    say: Callable[[int, float], None],
    share: Callable[[], float | None],
) -> None:
    """Every batch is looked at, as a copy to a device does, and takes the device a step."""
    import numpy

    while True:
        asked = time.monotonic()
        batch = next(batches, None)
        now = time.monotonic()
        if batch is None:
            return
        notes.asked.append(asked)
        notes.got.append(now)
        say(len(notes.got), now)
        if (offloaded := share()) is not None:
            notes.shares.append((now, offloaded))
        notes.digests.append(fingerprint(numpy.from_dlpack(batch["image"])))
        del batch
        time.sleep(max(0.0, now + step_s - time.monotonic()))


def run(options: argparse.Namespace, say: TextIO, orders: TextIO) -> dict[str, Any]:
    """Warm up, then, when all counters have been read, what counts."""

    def tell(word: str, now: float) -> None:
        print(word, now, file=say, flush=True)

    def at(wanted: int, word: str) -> Callable[[int, float], None]:
        return lambda number, now: tell(word, now) if number == wanted else None

    begin = time.monotonic()
    loader = open_loader(options)
    step_s = options.batch_size / options.rate if options.rate else 0.0
    count = len(loader.dataset)
    parts = [
        ids_of(count, options.seed, epoch, options.batch_size, batches)
        for epoch, batches in enumerate((options.warm, options.batches))
    ]

    def share() -> float | None:
        return loader.knobs["offload"] if options.offload in PLANNING else None

    warm, counted = Notes(), Notes()
    first = warming(parts[0], options.warm_s, options.warm_least, warm.got)
    train(loader.run(0, first), warm, step_s, at(1, "first"), share)
    tell("count", time.monotonic())
    orders.readline()
    start = time.monotonic()
    last = at(options.batches, "done")
    train(epoch_of(loader, 1, parts[1]), counted, step_s, last, share)
    told = about(loader)
    loader.close()  # what it has learned is on disk then
    return {
        "begin": begin,
        "first": warm.got[0],
        "start": start,
        "samples": sum(map(len, parts[1])),
        "shares": warm.shares + counted.shares,
        "asked": counted.asked,
        "got": counted.got,
        "digests": [warm.digests, counted.digests],
        "about": told,
    }


def about(loader: Any) -> dict[str, Any]:
    """What the loader says of itself; nothing measured depends on it."""
    try:
        return {"stats": loader.stats(), "verdict": loader.verdict()}
    except (AttributeError, RuntimeError) as error:
        return {"problem": str(error)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.offload.trainee", description=__doc__)
    add = parser.add_argument
    add("dataset", help="penstock://..., or a folder")
    add("--offload", help="policy; without it the loader's own is not touched")
    add("--node", metavar="HOST:PORT", help="wait until it answers")
    add("--seed", type=int, default=0)
    add("--batch-size", type=int, default=64)
    add("--warm", type=int, default=1, help="batches before it counts, one at least")
    add("--warm-s", type=float, default=0.0, help="fewer, if they would take longer than this")
    add("--warm-least", type=int, default=1, help="but so many in any case")
    add("--batches", type=int, required=True, help="batches that count")
    add("--rate", type=float, default=0.0, help="samples a second of the device; 0: no device")
    options = parser.parse_args()
    say, orders = os.fdopen(os.dup(1), "w"), os.fdopen(os.dup(0))
    os.dup2(2, 1)
    problem = wait_for_node(options.node) if options.node else None
    if problem:
        print(json.dumps({"missing": problem}), file=say, flush=True)
        return
    import penstock

    print("ready", file=say, flush=True)
    if orders.readline().strip() != "go":
        return
    noted = run(options, say, orders)
    print(json.dumps({"version": penstock.__version__, **noted}), file=say, flush=True)
    say.close()
    os._exit(0)  # nothing is left to be done


if __name__ == "__main__":
    main()
