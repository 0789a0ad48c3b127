"""Does it adapt? `python -m bench.adapt`: scenarios that change while loaders run, Penstock's policies against an
oracle and against other loaders. Every run is a process of its own; all meet the same conditions."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.adapt.entrants import MODEL, ORACLE, TORCH_WORKERS, Entrant, entrants
from bench.adapt.measure import figures
from bench.adapt.oracle import Effort, best_workers, search
from bench.adapt.runner import Knobs, Run, perform, schedule
from bench.adapt.scenarios import SCENARIOS, Scenario
from bench.adapt.verify import Reference, verify
from bench.command_line import add_common, load, run_command, save, words, write_report
from bench.common import ROOT, SIZE
from bench.datasets import cache_root, make_view, warm
from bench.run import Progress, machine

_SAMPLES = ROOT.parent / "shared" / "data" / "imagenet"
_QUICK_SCALE = 0.05  # phases as short as they may be
_N_LARGE, _LARGE = 48, (3200, 2400)


def _source(options: argparse.Namespace) -> Path:
    from bench.synthetic import generate

    if options.data:
        return Path(options.data)
    return _SAMPLES if _SAMPLES.is_dir() else generate(cache_root() / "generated")


def _large_images(source: Path) -> Path:
    """Pictures of 8 megapixels, made of smaller ones, once."""
    from PIL import Image

    folder = cache_root() / "large-8mp"
    if not (folder / ".complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        files = sorted(p for p in source.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))
        for index in range(_N_LARGE):
            with Image.open(files[index % len(files)]) as small:
                small.convert("RGB").resize(_LARGE).save(folder / f"{index:03}.jpg", quality=88)
        (folder / ".complete").touch()
    return folder


def view_of(scenario: Scenario, options: argparse.Namespace) -> Path | None:
    """Where a scenario's files are, warmed unless it wants them cold."""
    if scenario.is_python:
        return None
    is_large = scenario.data == "large"
    source = _large_images(_source(options)) if is_large else _source(options)
    view = make_view(source, 960 if is_large else 2000).directory
    if not scenario.keeps_cold:
        warm(view / "folder")
    return view


class Bench:
    """One scenario after another; what is known so far is always on disk."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._known: Reference = {}
        self.report: dict[str, Any] = {
            "machine": machine(),
            "date": time.strftime("%Y-%m-%d"),
            "how": {"seeds": options.seeds, "scale": options.seconds_scale, "quick": options.quick},
            "scenarios": [],
        }

    def _save(self) -> None:
        save(self._options.json, self.report)

    def _entrants(self, scenario: Scenario) -> list[Entrant]:
        chosen = entrants(scenario, self._options.torch_workers)
        starts = self._options.contestants
        return [e for e in chosen if not starts or e.name.startswith(tuple(starts))]

    def run(self, name: str) -> None:
        options = self._options
        full = SCENARIOS[name]
        scenario = (full.once() if options.quick else full).scaled(options.seconds_scale)
        stored: dict[str, Any] = {
            "name": name,
            "title": full.title,
            "phases": [asdict(phase) for phase in scenario.phases],
            "data": full.data,
            "step_ms": full.step_ms,
            "batch_size": full.batch_size,
            "batch_bytes": full.batch_size * 3 * SIZE * SIZE * 4,
            "memory_budget": full.memory_budget,
            "runs": {},
            "problems": {},
        }
        self.report["scenarios"].append(stored)
        taking_part = self._entrants(scenario)
        view = view_of(scenario, options)
        if len(options.torch_workers) > 1:
            taking_part = self._seek_workers(scenario, view, taking_part, stored)
        progress = Progress(2 + len(taking_part) * options.seeds)
        best = self._seek(scenario, view, taking_part, stored, progress)
        if "skipped" not in stored:
            self._verify(scenario, view, taking_part, stored, progress)
            self._rounds(scenario, view, taking_part, best, stored, progress)
        progress.end()
        self._save()

    def _seek_workers(
        self,
        scenario: Scenario,
        view: Path | None,
        taking_part: list[Entrant],
        stored: dict[str, Any],
    ) -> list[Entrant]:
        """Of DataLoaders, only those with the best number of workers."""
        theirs = [e for e in taking_part if e.workers is not None]
        if not theirs:
            return taking_part
        kept, stored["torch_rates"] = best_workers(scenario, view, theirs)
        return [e for e in taking_part if e not in theirs or e in kept]

    def _seek(
        self,
        scenario: Scenario,
        view: Path | None,
        taking_part: list[Entrant],
        stored: dict[str, Any],
        progress: Progress,
    ) -> dict[tuple[float, ...], Knobs]:
        progress.show(f"{scenario.name}: seeking the best setting")
        best: dict[tuple[float, ...], Knobs] = {}
        if any(e.name == ORACLE for e in taking_part):
            effort = Effort(1.7, True) if self._options.quick else Effort()
            best, tried, problem = search(scenario, view, effort)
            stored["tried"] = tried
            stored["oracle"] = {str(p): best[p.conditions] for p in scenario.phases if best}
            if problem:
                stored["skipped"] = problem
        progress.step()
        return best

    def _verify(
        self,
        scenario: Scenario,
        view: Path | None,
        taking_part: list[Entrant],
        stored: dict[str, Any],
        progress: Progress,
    ) -> None:
        progress.show(f"{scenario.name}: comparing the stream with that of one thread")
        if any(e.name == MODEL for e in taking_part) and self._options.verify:
            stored["verified"] = verify(scenario, view, self._options.verify, self._known)
        progress.step()

    def _rounds(
        self,
        scenario: Scenario,
        view: Path | None,
        taking_part: list[Entrant],
        best: dict[tuple[float, ...], Knobs],
        stored: dict[str, Any],
        progress: Progress,
    ) -> None:
        for seed in range(self._options.seeds):
            shift = seed * len(taking_part) // self._options.seeds
            for entrant in taking_part[shift:] + taking_part[:shift]:
                progress.show(f"{scenario.name}: {entrant.name}, seed {seed}")
                knobs = best if entrant.name == ORACLE else None
                actions = tuple(schedule(scenario, knobs))
                notes = perform(Run(scenario, entrant, seed, view, actions, scenario.seconds))
                problem = notes.get("skipped") or notes.get("failed")
                if problem:
                    kind = "skipped" if "skipped" in notes else "failed"
                    stored["problems"][entrant.name] = f"{kind}: {problem}"
                else:
                    run = {"seed": seed, **figures(scenario, notes)}
                    stored["runs"].setdefault(entrant.name, []).append(run)
                self._keep_log(scenario, entrant, seed, notes)
                progress.step()
                self._save()

    def _keep_log(
        self, scenario: Scenario, entrant: Entrant, seed: int, notes: dict[str, Any]
    ) -> None:
        if self._options.logs and notes.get("decisions"):
            self._options.logs.mkdir(parents=True, exist_ok=True)
            target = self._options.logs / f"{scenario.name}-{entrant.name}-{seed}.jsonl"
            lines = (json.dumps({**d, "first": notes["first"]}) for d in notes["decisions"])
            target.write_text("\n".join(lines) + "\n")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.adapt", description=__doc__)
    add = parser.add_argument
    add("--only", type=words, metavar="NAMES", help=f"scenarios, of {', '.join(SCENARIOS)}")
    add("--contestants", type=words, default=[], metavar="NAMES", help="or beginnings of names")
    add("--seeds", type=int, help="runs of each (default 5)")
    add("--seconds-scale", type=float, help="phases so many times as long (default 1)")
    add("--verify", type=int, metavar="N", help="batches compared with one thread's (default 120)")
    add("--data", metavar="DIR", help="JPEG files to use")
    add("--logs", type=Path, metavar="DIR", help="keep Penstock's decision logs")
    add_common(parser, quick="one seed, short phases, few settings", plot="-bars")
    options = parser.parse_args(arguments)
    options.torch_workers = (4,) if options.quick else TORCH_WORKERS
    usual, quick = (5, 1.0, 120), (1, _QUICK_SCALE, 30)
    for name, value in zip(
        ("seeds", "seconds_scale", "verify"), quick if options.quick else usual, strict=True
    ):
        if getattr(options, name) is None:
            setattr(options, name, value)
    unknown = [name for name in options.only or [] if name not in SCENARIOS]
    if unknown:
        parser.error(f"no scenario {unknown[0]!r}; there are {', '.join(SCENARIOS)}")
    return options


def joined(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Reports of one machine as one, scenarios in their usual order; of one measured twice, the later file counts."""
    found = {stored["name"]: stored for report in reports for stored in report["scenarios"]}
    ordered = [found[name] for name in SCENARIOS if name in found]
    return {**reports[-1], "scenarios": ordered}


def main() -> None:
    options = parse()
    if options.list:
        for scenario in SCENARIOS.values():
            names = ", ".join(e.name for e in entrants(scenario))
            print(f"{scenario.name:10} {scenario.title}\n{'':10} {names}")
        return
    if options.from_:
        report = joined(load(options.from_))
    else:
        bench = Bench(options)
        for name in options.only or SCENARIOS:
            bench.run(name)
        report = bench.report
    from bench.adapt.markdown import text

    write_report(text(report), options.report)
    if options.plot:
        from bench.adapt.timelines import draw

        draw(report, options.plot)


if __name__ == "__main__":
    run_command(main)
