"""The law, in every scenario: batches made while `model` adapts are those of one thread, to the bit.

The tuner of worker processes changes little in so short a time: their knobs are turned at random after each batch.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.adapt.entrants import FIXED, MODEL, Entrant
from bench.adapt.runner import Run, perform, schedule
from bench.adapt.scenarios import SCENARIOS, Scenario

_PHASE_S = 2.0
_LIMIT_S = 120.0

Reference = dict[tuple[Any, ...], list[int]]


def verify(scenario: Scenario, view: Path | None, batches: int, known: Reference) -> dict[str, Any]:
    """Equal or not, and in how many periods knobs became others; `known` keeps what one thread made, which no
    scenario changes."""
    key = (scenario.data, scenario.batch_size)
    if key not in known:
        plain = replace(SCENARIOS[scenario.name], phases=(), keeps_cold=False)
        alone = Run(plain, Entrant(FIXED, "", "penstock"), 0, view, (), _LIMIT_S, batches, True)
        notes = perform(alone)
        if "digests" not in notes:
            return {"problem": notes.get("skipped") or notes.get("failed")}
        known[key] = notes["digests"]
    short = replace(scenario, phases=tuple(replace(p, seconds=_PHASE_S) for p in scenario.phases))
    actions = tuple(schedule(short))
    model = Entrant(MODEL, "", "penstock")
    turning = scenario.is_python
    run = Run(short, model, 0, view, actions, _LIMIT_S, batches, turning=turning)
    notes = perform(run)
    if "digests" not in notes:
        return {"problem": notes.get("skipped") or notes.get("failed")}
    same = notes["digests"] == known[key]
    changes = sum(line["decision"] != line["knobs"] for line in notes["decisions"])
    return {"equal": same, "batches": len(notes["digests"]), "changes": changes}
