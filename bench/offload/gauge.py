"""Measure a profile: `.venv/bin/python -m bench.offload.gauge FOLDER --out imagenet.jsonl`.

Asks a storage node on this machine for each form of some samples and notes the bytes that come and the processor time that the
node spends, as the kernel counts it. Each form is asked for with several crops at once; bytes are noted of each, processor
time as the mean. What a form costs the host is not seen from here and stands as 0; `simulate --runs` takes it from runs.
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.child import end_group
from bench.common import MEAN, SIZE, STD, Unavailable
from bench.offload.caches import STORAGE
from bench.offload.forms import CODED, CUT, FEWEST, PIXELS, RAW
from bench.offload.one_run import cache_of, program
from bench.offload.trainee import wait_for_node

FORMS = {RAW: 0, CUT: 1, FEWEST: 2, PIXELS: 2, CODED: 3}
_FRAME = struct.Struct("<4sIQiIIII")
_HEAD_BYTES = 48
_CROPS = 4
_AT_FURTHEST = 1 << 16  # pixels after crop and resize, also where a small crop has fewer before


class Refused(Exception):
    """The node answered otherwise than it should."""


def node_cpu_s(pid: int) -> float:
    """Processor time of a process's threads, to the nanosecond."""
    total_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total_ns += int((task / "schedstat").read_text().split()[0])
        except OSError:
            continue  # it ended
    return total_ns / 1e9


def bodies(answer: bytes) -> Iterator[bytes]:
    """The parcels of a stream of frames."""
    at = 0
    while at < len(answer):
        if len(answer) - at < _FRAME.size:
            raise Refused("an answer that was cut off")
        magic, _, sample, status, length, *_ = _FRAME.unpack_from(answer, at)
        at += _FRAME.size
        body = answer[at : at + length]
        if magic != b"PENF" or len(body) != length:
            raise Refused("an answer that was cut off")
        if status:
            raise Refused(f"sample {sample}: {body.decode(errors='replace')}")
        yield body
        at += length


class Node:
    """A connection to a storage node, and its pipeline."""

    def __init__(self, port: int, pid: int, name: str, pipeline: Any, n_ops: int) -> None:
        self._port, self._pid, self._name, self._n_ops = port, pid, name, n_ops
        self._hash = pipeline.hash
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.request("PUT", f"/v1/pipelines/{self._hash}", pipeline.description)

    def request(self, method: str, path: str, body: str | None = None) -> bytes:
        self._connection.request(method, path, body)
        answer = self._connection.getresponse()
        data = answer.read()
        if answer.status not in (200, 201):
            raise Refused(f"{method} {path}: {answer.status} {data[:200].decode(errors='replace')}")
        return data

    def close(self) -> None:
        self._connection.close()

    def count(self) -> int:
        return int(json.loads(self.request("GET", f"/v1/data/{self._name}"))["count"])

    def form(self, sample: int, name: str, crops: int) -> tuple[list[int | None], float]:
        """Bytes of a form of a sample for each crop, None where it has none; and storage ms of a crop."""
        cut = 0 if name in (RAW, CUT) else self._n_ops
        mask = 1 << FORMS[name] | (_AT_FURTHEST if name == PIXELS else 0)
        items = [[sample, epoch, 0, cut, mask] for epoch in range(crops)]
        order = json.dumps({"pipeline": self._hash, "seed": "0", "items": items})
        before = node_cpu_s(self._pid)
        answer = self.request("POST", f"/v1/data/{self._name}/samples", order)
        spent = node_cpu_s(self._pid) - before
        parcels = list(bodies(answer))
        if len(parcels) != crops:
            raise Refused("an answer that was cut off")
        found = [len(p) - _HEAD_BYTES if p[1] == FORMS[name] else None for p in parcels]
        return found, 1e3 * spent / crops

    def lines(self, sample: int, crops: int) -> list[dict[str, Any]]:
        """A sample's lines of the profile, one a crop."""
        found: list[dict[str, Any]] = [
            {"sample": sample, "storage_ms": {}, "host_ms": {}} for _ in range(crops)
        ]
        for name in FORMS:
            sizes, storage_ms = self.form(sample, name, crops)
            for line, size in zip(found, sizes, strict=True):
                line[name] = size
                line["storage_ms"][name], line["host_ms"][name] = round(storage_ms, 4), 0.0
        return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def local_node(folder: Path) -> Iterator[tuple[int, int]]:
    """`penstock serve` on loopback: its port and process."""
    port = free_port()
    command = [str(program("penstock")), "serve", str(folder), "--listen", f"127.0.0.1:{port}"]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            stdout=errors,
            stderr=errors,
            text=True,
            env=cache_of(STORAGE),
            start_new_session=True,
        )
        try:
            problem = wait_for_node(f"127.0.0.1:{port}", 30.0)
            if problem:
                errors.seek(0)
                said = errors.read().decode(errors="replace").strip().splitlines() or [problem]
                raise Refused(said[-1])
            yield port, process.pid
        finally:
            end_group(process)


def measure(folder: Path, samples: int, crops: int) -> Iterator[dict[str, Any]]:
    """Lines of a profile, of samples spread evenly over the data set."""
    import penstock
    from penstock.sample import pipeline

    ops = [
        penstock.RandomResizedCrop(SIZE),
        penstock.RandomHorizontalFlip(),
        penstock.ToTensor(),
        penstock.Normalize(MEAN, STD),
    ]
    with ExitStack() as exits:
        port, pid = exits.enter_context(local_node(folder))
        node = Node(port, pid, folder.name, pipeline(ops), len(ops) + 1)  # Decode is one too
        exits.callback(node.close)
        count = node.count()
        chosen = sorted({index * count // samples for index in range(samples)})
        for _ in range(2):  # threads, tables and caches are there, from the second time on
            node.lines(chosen[0], crops)
        for sample in chosen:
            yield from node.lines(sample, crops)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.offload.gauge", description=__doc__)
    add = parser.add_argument
    add("folder", type=Path, help="JPEG files, in folders")
    add("--out", type=Path, required=True, metavar="JSONL")
    add("--samples", type=int, default=500, help="how many (default 500)")
    add("--crops", type=int, default=_CROPS, help=f"of each sample (default {_CROPS})")
    options = parser.parse_args()
    try:
        lines = list(measure(options.folder.resolve(), options.samples, options.crops))
    except (Refused, Unavailable, OSError) as reason:
        sys.exit(f"gauge: {reason}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
