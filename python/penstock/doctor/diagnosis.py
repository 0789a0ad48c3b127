"""What was seen, in words and as JSON."""

import contextlib
import io
import os
from dataclasses import asdict, dataclass
from typing import Any

from penstock.doctor.machine import Load
from penstock.doctor.trial import Rate
from penstock.doctor.watch import N_STARTING, Watched
from penstock.torch import explain
from penstock.workers.limits import usable_cores

LITTLE = 0.05  # a share of waiting that is not worth a change
TINY = 0.01  # one that is not worth a line
BUSY = 0.8  # of a core, or of all: there is not much left


@dataclass(frozen=True)
class Diagnosis:
    """Of one loader.  Times in seconds, shares from 0 to 1; None is not known."""

    where: str
    loader: str
    is_ours: bool  # Penstock's already
    n_batches: int
    wait_share: float
    wait: float  # a batch, mean
    wait_p95: float
    step: float  # a batch, mean
    first_batch: float
    n_epochs: int
    epoch_batches: float  # mean
    start: float  # until the first batches of an epoch are there, mean
    start_share: float  # of all time, lost by that
    lost_share: float  # of all time: that, and waiting
    load: Load | None
    bottleneck: str
    torch_rate: Rate | None
    penstock_rate: Rate | None
    expected_wait_share: float | None
    expected_gain: float | None  # steps a second, as a ratio
    operations: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def diagnose(watched: Watched, rates: tuple[Rate, Rate] | None) -> Diagnosis:
    wait, step = watched.wait, watched.step
    load = None
    if watched.before and watched.after and watched.after.at > watched.before.at:
        load = Load.between(watched.before, watched.after, usable_cores())
    torch_rate, our_rate = rates or (None, None)
    share, gain = _expect(wait + watched.start_loss, step, our_rate)
    return Diagnosis(
        where=f"{os.path.basename(watched.file)}:{watched.line}" if watched.file else "unknown",
        loader=_describe(watched.loader),
        is_ours=watched.is_ours,
        n_batches=watched.n_batches,
        wait_share=watched.wait_share,
        wait=wait,
        wait_p95=_p95(watched.waits),
        step=step,
        first_batch=max(watched.firsts, default=0.0),
        n_epochs=len(watched.epochs),
        epoch_batches=watched.epoch_batches,
        start=watched.start,
        start_share=watched.start_share,
        lost_share=watched.lost_share,
        load=load,
        bottleneck=_bottleneck(watched, load),
        torch_rate=torch_rate,
        penstock_rate=our_rate,
        expected_wait_share=share,
        expected_gain=gain,
        operations="" if watched.is_ours else _operations(watched.loader.dataset),
    )


def _p95(values: list[float]) -> float:
    return sorted(values)[int(0.95 * (len(values) - 1))] if values else 0.0


def _expect(wait: float, step: float, ours: Rate | None) -> tuple[float | None, float | None]:
    """A loader that runs beside training hides a batch's time behind a step's."""
    if ours is None or ours.problem or not ours.batches_per_s or not step:
        return None, None
    left = max(0.0, 1 / ours.batches_per_s - step)
    return left / (step + left), (step + wait) / (step + left)


def _describe(loader: Any) -> str:
    size = f"batch_size={loader.batch_size}" if loader.batch_size else "its own batches"
    return f"{type(loader).__name__}({type(loader.dataset).__name__}, {size}, num_workers={loader.num_workers})"


def _operations(dataset: Any) -> str:
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return explain(dataset).summary
    except Exception as error:
        return f"not known: {type(error).__name__}: {error}"


def _bottleneck(watched: Watched, load: Load | None) -> str:
    if watched.is_ours:
        return watched.verdict or "not known: the loader does not tell"
    if watched.lost_share < LITTLE:
        return "training: data comes in time"
    if watched.start_share > watched.lost_share / 2:
        return _starting(watched)
    if load is None:
        return "the loader"
    if load.worker_cores is None and watched.loader.num_workers > 0:
        return _without_workers(load)
    return _busiest(load, watched.loader.num_workers, watched.start_share)


def _busiest(load: Load, n_workers: int, start_share: float) -> str:
    cores, workers = usable_cores(), load.worker_cores or 0.0
    busy = load.main_cores + workers + (load.other_cores or 0.0)
    if load.io_share is not None and load.io_share > 0.5 and workers < BUSY:
        return f"storage: some task waits for it {load.io_share:.0%} of the time"
    if load.other_cores is not None and load.other_cores > 0.5 * cores:
        return f"other programs use {load.other_cores:.1f} of {cores} cores"
    if n_workers == 0:
        return "the loader runs in the training process, in turns with it (num_workers=0)"
    if busy > BUSY * cores:
        return f"processor time: {busy:.1f} of {cores} cores are busy, {workers:.1f} of them with loading"
    if workers > BUSY * n_workers * (1 - start_share):  # while there are any
        return f"too few workers: all {n_workers} are busy, {cores - busy:.1f} of {cores} cores are not"
    is_no_storage = load.io_share is not None and load.io_share < LITTLE
    where = "network or a lock" if is_no_storage else "storage, network or a lock"
    return f"the dataset waits for something else than a processor: {where}"


def _without_workers(load: Load) -> str:
    text = "not known: the kernel does not list a process's children here, so whether the workers are busy cannot be told"
    if load.io_share is None or load.io_share <= 0.5:
        return text
    return f"{text}; some task waits for storage {load.io_share:.0%} of the time"


def _starting(watched: Watched) -> str:
    batches = f"{watched.epoch_batches:.0f} batches"
    text = f"the start of every epoch: {_ms(watched.start)} until its first batches are there, for {batches}"
    if watched.loader.num_workers == 0:
        return f"{text} (num_workers=0: they are made in turns with training)"
    if watched.loader.persistent_workers:
        return text
    return f"{text} (persistent_workers=True would keep the workers)"


# --- words ---


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.01 else f"{seconds * 1e3:.1f} ms"


def _rate(rate: Rate) -> str:
    return f"not tried ({rate.problem})" if rate.problem else f"{rate.batches_per_s:.1f}"


def in_words(found: Diagnosis, diff: str | None, foreign: str | None = None) -> str:
    """`foreign`: a file that makes the loader and is not the script's to change."""
    lines = [
        f"{found.where}  {found.loader}, {found.n_batches} batches seen",
        f"  waiting      {found.wait_share:.0%} of the time: {_ms(found.wait)} a batch (p95 {_ms(found.wait_p95)}), "
        f"then {_ms(found.step)} of training; first batch after {_ms(found.first_batch)}",
        *_starts(found),
        f"  bottleneck   {found.bottleneck}",
    ]
    if found.operations:
        lines.append(f"  operations   {found.operations}")
    if found.torch_rate and found.penstock_rate:
        text = f"torch {_rate(found.torch_rate)}, Penstock {_rate(found.penstock_rate)} batches a second"
        if found.torch_rate.batches_per_s and found.penstock_rate.batches_per_s:
            text += f" ({found.penstock_rate.batches_per_s / found.torch_rate.batches_per_s:.1f}x)"
        lines.append(f"  alone        {text}")
    lines.append(f"  with it      {_outlook(found)}")
    return "\n".join([*lines, *_change(found, diff, foreign)])


def _change(found: Diagnosis, diff: str | None, foreign: str | None) -> list[str]:
    if found.is_ours or found.lost_share < LITTLE:
        return []
    if foreign:
        return [f"  the change   none proposed: the loader is made in {foreign}, outside of the script's folder"]  # fmt: skip
    if not diff:
        return ["  the change   none proposed: no import of torch's DataLoader was found where the loader is made"]  # fmt: skip
    return ["  the change", *(f"    {line}" for line in diff.rstrip("\n").split("\n"))]


def _starts(found: Diagnosis) -> list[str]:
    if found.start_share < TINY:
        return []
    epochs = f"{found.n_epochs} epochs" if found.n_epochs > 1 else "an epoch"
    return [
        f"  starting     {found.start_share:.0%} of the time: {_ms(found.start)} at the start of {epochs} "
        f"of {found.epoch_batches:.0f} batches, until the first {N_STARTING} are there"
    ]


def _outlook(found: Diagnosis) -> str:
    if found.is_ours:
        return "this loader is Penstock's already; `penstock top PID` shows it while it runs"
    if found.lost_share < LITTLE:
        return "nothing to gain: training is the slower side"
    if found.expected_gain is None or found.expected_wait_share is None:
        return "not known"
    if found.expected_gain < 1.02:
        return "no gain to be expected"
    return (
        f"about {found.expected_wait_share:.0%} waiting, {found.expected_gain:.2f}x as many steps a second, "
        "if training leaves the loader's cores alone"
    )
