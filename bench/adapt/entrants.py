"""Who takes part in a scenario, and with which settings."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bench.adapt.scenarios import Scenario
from bench.common import Job, Loader
from bench.contestants import module_of, python_items

MODEL, ORACLE, FIXED = "penstock-model", "penstock-oracle", "penstock-fixed"
POLICIES = (FIXED, "penstock-rules", "penstock-hillclimb", MODEL)  # that ANOVA is about
TORCH_WORKERS = (1, 2, 4, 8, 16)
_POOL = 16  # threads tf.data may use: AUTOTUNE needs room to tune in, beyond the cores where reading waits
_PYTHON_PEERS = ("tfdata-autotune", "dali")  # the service takes no Python functions
_PEERS = {  # title, contestant of bench.run, threads
    "tfdata-autotune": ("tf.data, AUTOTUNE", "tfdata-autotune", _POOL),
    "tfdata-service": ("tf.data service", "tfdata-service", _POOL),
    "dali": ("DALI, CPU", "dali-fused", len(os.sched_getaffinity(0))),
}


@dataclass(frozen=True)
class Entrant:
    name: str
    title: str
    env: str  # which virtual environment runs it
    workers: int | None = None  # of a DataLoader

    @property
    def is_ours(self) -> bool:
        return self.name.startswith("penstock")

    @property
    def is_dataloader(self) -> bool:
        """Over Python items: torch's, or penstock.torch's."""
        return self.is_ours or self.workers is not None

    @property
    def policy(self) -> str:
        """Penstock's. The oracle's knobs are turned from outside."""
        name = self.name.removeprefix("penstock-")
        return "fixed" if name == "oracle" else name


def entrants(scenario: Scenario, torch_workers: tuple[int, ...] = TORCH_WORKERS) -> list[Entrant]:
    """All who can take part. Worker processes have one tuner, whatever the policy's name."""
    ours = (FIXED, MODEL, ORACLE) if scenario.is_python else (*POLICIES, ORACLE)
    found = [Entrant(name, name.replace("penstock-", "Penstock "), "penstock") for name in ours]
    env = (
        "penstock" if scenario.is_python else "main"
    )  # penstock.torch's own torch, for the same items
    found += [Entrant(f"torch-{n}", f"DataLoader, {n} workers", env, n) for n in torch_workers]
    peers = _PYTHON_PEERS if scenario.is_python else tuple(_PEERS)
    return found + [Entrant(name, _PEERS[name][0], "main") for name in peers]


def best_of_torch(names: list[str], rates: dict[str, float]) -> str | None:
    """The number of workers that was best, which nobody knows before."""
    there = [name for name in names if name.startswith("torch-") and name in rates]
    return max(there, key=lambda name: rates[name], default=None)


def load_peer(entrant: Entrant, scenario: Scenario, view: Path, seed: int) -> Loader:
    """A contestant of bench.run, imported and not yet made."""
    if scenario.is_python:
        return python_items.load(entrant.name, scenario.data, scenario.batch_size, seed)
    variant, threads = (
        _PEERS[entrant.name][1:] if entrant.workers is None else ("torch-turbo", entrant.workers)
    )
    job = Job(variant, view, scenario.batch_size, threads, seed, scenario.needs_slowfs)
    loader: Loader = module_of(variant).load(job)
    return loader
