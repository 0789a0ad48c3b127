"""One run of one entrant in one scenario: starts its process, lets the phases happen, collects what was noted."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.adapt.entrants import Entrant
from bench.adapt.mechanisms import stage
from bench.adapt.scenarios import Phase, Scenario, spans
from bench.adapt.watcher import Watcher
from bench.child import Lines, Lost, end_group, tell
from bench.common import ROOT, Unavailable
from bench.process_tree import cpu_seconds, machine_busy_seconds
from bench.spawn import environment, interpreter

_START_S = 120.0  # imports, and the first batch
_END_S = 30.0

Knobs = dict[str, float]


@dataclass(frozen=True)
class Action:
    """At some time after the first batch: conditions change, or knobs are turned, or both."""

    at: float
    phase: Phase | None = None
    knobs: Knobs | None = None


def schedule(
    scenario: Scenario, best: dict[tuple[float, ...], Knobs] | None = None
) -> list[Action]:
    """The phases; with the best knobs of each, if those are known."""
    return [
        Action(s.begin, s.phase, best[s.phase.conditions] if best else None)
        for s in spans(scenario)
    ]


@dataclass(frozen=True)
class Run:
    """What to run."""

    scenario: Scenario
    entrant: Entrant
    seed: int
    view: Path | None
    actions: tuple[Action, ...]
    seconds: float
    hashes: int = 0
    alone: bool = False
    turning: bool = False  # knobs of worker processes at random, after each batch


def _command(run: Run, view: Path | None, log: Path) -> list[str]:
    python = interpreter(run.entrant.env)
    if python is None:
        raise Unavailable(f"no environment {run.entrant.env!r}; see bench/README.md")
    command = [str(python), "-m", "bench.adapt.consumer", run.entrant.name, run.scenario.name]
    command += ["--seed", str(run.seed), "--hashes", str(run.hashes)]
    command += ["--view", str(view)] if view else []
    command += ["--alone"] if run.alone else []
    command += ["--turning"] if run.turning else []
    command += ["--log", str(log)] if run.entrant.is_ours else []
    if run.actions and run.actions[0].knobs:
        command += ["--knobs", json.dumps(run.actions[0].knobs)]
    return command


def perform(run: Run) -> dict[str, Any]:
    """The run's raw notes, or {"skipped"|"failed": reason}."""
    try:
        with (
            tempfile.TemporaryDirectory(prefix="penstock-adapt-") as scratch,
            stage(run.scenario, run.view) as scene,
        ):
            log = Path(scratch) / "decisions.jsonl"
            command = _command(run, scene.view, log)
            with tempfile.TemporaryFile() as errors:
                process = subprocess.Popen(
                    command,
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    env=environment(),
                    start_new_session=True,
                )
                lines = Lines(process, errors)
                try:
                    scene.add(process.pid)
                    notes = _drive(run, process, lines, scene)
                finally:
                    lines.close()
                    end_group(process)
            notes["decisions"] = _decisions(log)
            return notes
    except Unavailable as reason:
        return {"skipped": str(reason)}
    except Lost as reason:
        return {"failed": str(reason)}


def _drive(run: Run, process: subprocess.Popen[str], lines: Lines, scene: Any) -> dict[str, Any]:
    said = lines.next(_START_S)
    if said != "ready":
        raise Unavailable(json.loads(said)["missing"])
    first_action = run.actions[0] if run.actions else Action(0.0)
    if first_action.phase:
        scene.set(first_action.phase)
    watcher = Watcher(process.pid)
    try:
        tell(process, "go")
        word, _, when = lines.next(_START_S).partition(" ")
        if word != "first":
            raise Lost("no batch")
        begin, cpu, busy = float(when), cpu_seconds(process.pid), machine_busy_seconds()
        for action in run.actions[1:]:
            time.sleep(max(0.0, begin + action.at - time.monotonic()))
            if action.phase:
                scene.set(action.phase)
            if action.knobs and not run.scenario.is_python:
                tell(process, f"knobs {json.dumps(action.knobs)}")
        if not run.hashes:
            time.sleep(max(0.0, begin + run.seconds - time.monotonic()))
            cpu = cpu_seconds(process.pid) - cpu
            busy = machine_busy_seconds() - busy
            tell(process, "end")
        noted: dict[str, Any] = json.loads(lines.next(_END_S + (run.seconds if run.hashes else 0)))
    finally:
        seen = watcher.stop()
    noted["first"] = begin
    noted["seen"] = asdict(seen)
    noted["cpu_s"], noted["other_cores"] = cpu, max(0.0, (busy - cpu) / run.seconds)
    return noted


def _decisions(log: Path) -> list[dict[str, Any]]:
    """Penstock's decision log; its last line may be cut."""
    found = []
    for line in log.read_text().splitlines() if log.exists() else []:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return found
