"""One run of one policy in one cell: a storage node and a training loop, each in its own network, and what was counted.

Bytes are those of the kernel's counters at the storage's interface, processor time is that of each end's process.
Before the counted part and after it nothing is under way.

Runs that are performed at once have nodes, loops and links of their own, and begin to count together: whatever slows
the machine then slows all of them.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Barrier, BrokenBarrierError
from typing import Any

from bench.child import Lines, Lost, end_group, tell
from bench.common import ROOT, SIZE, Unavailable
from bench.control_group import ControlGroup
from bench.offload.caches import COMPUTE, LOCAL, STORAGE, live
from bench.offload.grid import Length, warm_least
from bench.offload.network import STORAGE_IP, Counted, Sites, two_sites
from bench.process_tree import cpu_seconds, machine_busy_seconds
from bench.spawn import environment, interpreter

PORT = 7470
_START_S = 120.0
_END_S = 30.0
_TENSOR_BYTES = SIZE * SIZE * 3 * 4  # the largest form that any policy sends
_SETTLED = 0.1
_STORAGE_S = _CLIENT_S = 0.02  # more processor time than any form of any sample needs


@dataclass(frozen=True)
class Run:
    """What to run; `link`, `quota` and `client` 0: no limit. Without a policy the folder is read in place."""

    folder: Path
    policy: str | None
    seed: int
    length: Length
    batch_size: int = 64
    link: float = 0.0
    quota: float = 0.0
    rate: float = 0.0
    mean_bytes: float = 0.0
    client: float = 0.0
    warm_s: float = 0.0  # after which nothing more warms up; 0: after all of its batches
    is_kept: bool = False  # what both ends came to know is wanted: they end in peace
    lane: int = 0  # of several at once: whose caches and control groups are whose

    @property
    def longest_s(self) -> float:
        """More than any policy that works can take."""
        samples = (self.length.warm + self.length.counted) * self.batch_size
        found = samples / self.rate if self.rate else 0.0
        if self.link:
            found += samples * max(self.mean_bytes, _TENSOR_BYTES) * 8e-6 / self.link
        found += samples * (_STORAGE_S / (self.quota or 1.0) + _CLIENT_S / (self.client or 1.0))
        return _START_S + 3 * found


@dataclass(frozen=True)
class Mark:
    """All counters at one moment."""

    to_compute: Counted
    to_storage: Counted
    storage_cpu_s: float
    compute_cpu_s: float
    busy_s: float


def program(name: str) -> Path:
    """Of the project's own environment."""
    python = interpreter("penstock")
    if python is None:
        raise Unavailable("no .venv; `make build` makes it")
    return python.with_name(name)


def cache_of(site: str, lane: int = 0) -> dict[str, str]:
    """The environment of a site's programs."""
    return {**environment(), "PENSTOCK_CACHE": str(live(site, lane))}


def in_group(group: ControlGroup, command: list[str]) -> list[str]:
    """What starts a program that is in the group before it does anything."""
    join = 'echo $$ > "$0" && exec "$@"'
    return ["sh", "-c", join, str(group.path / "cgroup.procs"), *command]


def under_quota(exits: ExitStack, name: str, cores: float, command: list[str]) -> list[str]:
    """What starts a program with so many cores from its first instruction on; 0: as it is."""
    if not cores:
        return command
    group = ControlGroup(name)
    exits.callback(group.remove)
    group.set(cores)
    return in_group(group, command)


@contextmanager
def storage_node(sites: Sites, run: Run, token: Path) -> Iterator[subprocess.Popen[str]]:
    """`penstock serve` in the storage's network, under its quota."""
    with ExitStack() as exits:
        words = [str(program("penstock")), "serve", str(run.folder)]
        words += ["--listen", f"{STORAGE_IP}:{PORT}", "--token-file", str(token)]
        group = f"{STORAGE}-{run.lane}"
        command = under_quota(exits, group, run.quota, sites.storage.command(*words))
        errors = exits.enter_context(tempfile.TemporaryFile())
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            text=True,
            env=cache_of(STORAGE, run.lane),
            start_new_session=True,
        )
        try:
            yield process
        except (Lost, Unavailable) as reason:
            if process.poll() is None:
                raise
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines() or ["no message"]
            raise Lost(f"the storage node ended: {said[-1]}") from reason
        finally:
            if run.is_kept:
                _ask_to_end(process)
            end_group(process)


def _ask_to_end(process: subprocess.Popen[str]) -> None:
    """It may have something to write down."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)


def _trainee(sites: Sites, run: Run, token: Path | None) -> tuple[list[str], dict[str, str]]:
    words = [str(program("python")), "-m", "bench.offload.trainee"]
    more, site = {}, LOCAL if run.policy is None else COMPUTE
    if run.policy is None:
        words.append(str(run.folder))
    else:
        node = f"{STORAGE_IP}:{PORT}"
        words += [f"penstock://{node}/{run.folder.name}", "--offload", run.policy, "--node", node]
        more["PENSTOCK_TOKEN_FILE"] = str(token)
    words += ["--seed", str(run.seed), "--batch-size", str(run.batch_size), "--rate", str(run.rate)]
    words += ["--warm", str(run.length.warm), "--batches", str(run.length.counted)]
    words += ["--warm-s", str(run.warm_s), "--warm-least", str(warm_least(run.batch_size))]
    return sites.compute.command(*words), {**cache_of(site, run.lane), **more}


@contextmanager
def training(sites: Sites, run: Run, token: Path | None) -> Iterator[tuple[Any, Lines]]:
    """The training loop's process, under its quota, and what it says."""
    command, env = _trainee(sites, run, token)
    with ExitStack() as exits:
        errors = exits.enter_context(tempfile.TemporaryFile())
        process = subprocess.Popen(
            under_quota(exits, f"{COMPUTE}-{run.lane}", run.client, command),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=env,
            start_new_session=True,
        )
        lines = Lines(process, errors)
        try:
            yield process, lines
        finally:
            lines.close()
            end_group(process)
            for pipe in (process.stdin, process.stdout):
                with suppress(BrokenPipeError):
                    pipe.close()


@dataclass(frozen=True)
class Staged:
    """A run whose both ends are there."""

    run: Run
    sites: Sites
    node: Any  # None: the files are read in place
    trainee: Any
    lines: Lines

    def mark(self) -> Mark:
        return Mark(
            self.sites.to_compute(),
            self.sites.to_storage(),
            cpu_seconds(self.node.pid) if self.node else 0.0,
            cpu_seconds(self.trainee.pid),
            machine_busy_seconds(),
        )


def _await(lines: Lines, word: str, seconds: float) -> float:
    said, _, when = lines.next(seconds).partition(" ")
    if said != word:
        raise Lost(f"said {said[:80]!r} instead of {word!r}")
    return float(when)


def _drive(stage: Staged, together: Barrier) -> dict[str, Any]:
    """From the first word to the last; all that are driven at once begin to count at the same moment."""
    run, lines = stage.run, stage.lines
    said = lines.next(_START_S)
    if said != "ready":
        raise Unavailable(json.loads(said).get("missing", said))
    stage.sites.limit(run.link)
    deadline = time.monotonic() + run.longest_s
    tell(stage.trainee, "go")
    _await(lines, "first", run.longest_s)
    _await(lines, "count", deadline - time.monotonic())
    together.wait(max(0.0, deadline - time.monotonic()))
    begin = stage.mark()
    tell(stage.trainee, "go")
    done = _await(lines, "done", deadline - time.monotonic())
    end = stage.mark()
    noted: dict[str, Any] = json.loads(lines.next(_END_S))
    noted["done"] = done
    return {**figures(run, begin, end, noted), "digests": noted["digests"]}


def _drive_beside(stage: Staged, together: Barrier) -> dict[str, Any]:
    """One of several: if it fails, nobody waits for it."""
    try:
        return _drive(stage, together)
    except BrokenBarrierError:
        return {}  # another has failed, and tells why
    except BaseException:
        together.abort()
        raise


def figures(run: Run, begin: Mark, end: Mark, noted: dict[str, Any]) -> dict[str, Any]:
    """What a run comes to."""
    elapsed = noted["done"] - noted["start"]
    sent, back = end.to_compute - begin.to_compute, end.to_storage - begin.to_storage
    storage, compute = (
        end.storage_cpu_s - begin.storage_cpu_s,
        end.compute_cpu_s - begin.compute_cpu_s,
    )
    n_warm, got = len(noted["digests"][0]), noted["got"]
    # As many batches as count, from the loop's begin on: with those that warmed up, and without as many of the last.
    cold = {"cold_s": got[-1 - n_warm] - noted["begin"]} if n_warm < len(got) else {}
    return {
        "seed": run.seed,
        "samples": noted["samples"],
        "seconds": paced(got) if run.rate and len(got) > 1 else elapsed,
        "elapsed_s": elapsed,
        "bytes": sent.bytes,
        "packets": sent.packets,
        "bytes_back": back.bytes,
        "storage_cpu_s": storage,
        "compute_cpu_s": compute,
        "other_cores": max(0.0, (end.busy_s - begin.busy_s - storage - compute) / elapsed),
        "wait_s": sum(got) - sum(noted["asked"]),
        "first_batch_s": noted["first"] - noted["begin"],
        "warm_s": noted["start"] - noted["begin"],
        **cold,
        **settling(noted["begin"], noted["shares"]),
        "version": noted["version"],
        "about": noted["about"],
    }


def paced(got: list[float]) -> float:
    """Seconds of so many batches at the pace of those behind the first. That one is waited for once an epoch, while
    the device has nothing to do yet; in a stretch of a dozen steps it would count for several percent."""
    return (got[-1] - got[0]) / (len(got) - 1) * len(got)


def settling(begin: float, shares: list[tuple[float, float]]) -> dict[str, float]:
    """Where the share of what is offloaded came to, and after how many seconds it stayed there, within a tenth; of
    (moment, share) at every batch. Empty where nothing is planned."""
    if not shares:
        return {}
    at_last = median(share for _, share in shares[len(shares) // 2 :])
    since = begin
    for moment, share in shares:
        if abs(share - at_last) > _SETTLED:
            since = moment
    return {"share": at_last, "settled_s": since - begin}


@contextmanager
def _staged(run: Run) -> Iterator[Staged]:
    with ExitStack() as exits:
        sites = exits.enter_context(two_sites())
        node, token = None, None
        if run.policy is not None:
            scratch = exits.enter_context(tempfile.TemporaryDirectory(prefix="penstock-node-"))
            token = Path(scratch, "token")
            token.touch(mode=0o600)
            token.write_text(secrets.token_hex(16) + "\n")
            node = exits.enter_context(storage_node(sites, run, token))
        trainee, lines = exits.enter_context(training(sites, run, token))
        yield Staged(run, sites, node, trainee, lines)


def _without_each_other(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What runs at once took of the machine is not what others took: each was counted as one of them. (Of one that
    ends later, what it took after another's end is subtracted from that one's, too: they are as long as each other.)"""
    taken = sum(notes["storage_cpu_s"] + notes["compute_cpu_s"] for notes in found)
    for notes in found:
        beside = taken - notes["storage_cpu_s"] - notes["compute_cpu_s"]
        notes["other_cores"] = max(0.0, notes["other_cores"] - beside / notes["elapsed_s"])
    return found


def perform_all(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Each run's figures, all performed at once; or for each {"skipped"|"failed": reason}, if one was."""
    try:
        with ExitStack() as exits:
            # Both ends die with the thread that starts them: this one.
            stages = [exits.enter_context(_staged(run)) for run in runs]
            together = Barrier(len(runs))
            drivers = exits.enter_context(ThreadPoolExecutor(len(runs)))
            try:
                driven = [drivers.submit(_drive_beside, stage, together) for stage in stages]
                found = [done.result() for done in driven]
                if not all(found):
                    raise Lost("no moment came at which all could begin to count")
                return _without_each_other(found)
            except BaseException:
                for stage in stages:  # whoever still listens to one hears that it has ended
                    end_group(stage.trainee)
                raise
    except Unavailable as reason:
        problem = {"skipped": str(reason)}
    except Lost as reason:
        problem = {"failed": str(reason)}
    return [dict(problem) for _ in runs]


def perform(run: Run) -> dict[str, Any]:
    """The run's figures, or {"skipped"|"failed": reason}."""
    return perform_all([run])[0]
