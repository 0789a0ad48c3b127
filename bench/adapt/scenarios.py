"""What happens to a loader: scenarios, each a list of phases, and what is known of every one beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

PERIOD_S = 0.1  # of Penstock's control
ADAPTING_S = 20 * PERIOD_S  # after a change; reported apart
PYTHON_ITEMS = ("sleepy", "heavy")  # data that worker processes make


@dataclass(frozen=True)
class Phase:
    """Some seconds in which nothing changes. What a setting does not name is as it always is."""

    seconds: float
    open_ms: float = 0.0  # slowfs: until a file's first byte
    bytes_per_s: float = 0.0  # slowfs: of all readers together; 0: no limit
    hogs: int = 0  # processes that take all the time they get
    cpu_quota: float = 0.0  # cores, by the control group; 0: no limit

    @property
    def conditions(self) -> tuple[float, ...]:
        """Phases with equal ones have the same best setting."""
        return (self.open_ms, self.bytes_per_s, float(self.hogs), self.cpu_quota)

    def __str__(self) -> str:
        parts = [f"{self.open_ms:g} ms a file"] if self.open_ms else []
        parts += [f"{self.bytes_per_s / 1e6:g} MB/s"] if self.bytes_per_s else []
        parts += [f"{self.hogs} hogs"] if self.hogs else []
        parts += [f"{self.cpu_quota:g} cores"] if self.cpu_quota else []
        return ", ".join(parts) or "undisturbed"


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    phases: tuple[Phase, ...]
    data: str = "images"  # images, large (images), sleepy or heavy (Python items)
    step_ms: float = 0.0  # the device is busy for so long after each batch, without the processor
    batch_size: int = 32
    memory_budget: int | None = None  # bytes
    keeps_cold: bool = False  # pages of the data set are thrown out of the cache all the time

    @property
    def is_python(self) -> bool:
        return self.data in PYTHON_ITEMS

    @property
    def needs_slowfs(self) -> bool:
        return any(phase.open_ms or phase.bytes_per_s for phase in self.phases)

    @property
    def needs_cgroup(self) -> bool:
        return any(phase.cpu_quota for phase in self.phases)

    @property
    def seconds(self) -> float:
        return sum(phase.seconds for phase in self.phases)

    def scaled(self, factor: float, shortest_s: float = ADAPTING_S + 1) -> Scenario:
        """The same with shorter phases; something must be left after adapting."""
        phases = (replace(p, seconds=max(p.seconds * factor, shortest_s)) for p in self.phases)
        return replace(self, phases=tuple(phases))

    def once(self) -> Scenario:
        """Without phases whose conditions there were before."""
        return replace(self, phases=tuple({p.conditions: p for p in self.phases}.values()))


@dataclass(frozen=True)
class Span:
    """A phase's place on the clock that starts with the first batch."""

    index: int
    phase: Phase
    begin: float
    end: float
    settled: float = field(default=0.0)  # from here on nothing needs to change any more


def spans(scenario: Scenario) -> Iterator[Span]:
    """When each phase begins, has been adapted to, and ends."""
    begin = 0.0
    for index, phase in enumerate(scenario.phases):
        end = begin + phase.seconds
        yield Span(index, phase, begin, end, min(begin + ADAPTING_S, end))
        begin = end


def _turns(seconds: float, *settings: dict[str, Any]) -> tuple[Phase, ...]:
    """Each of them, and each once more."""
    return tuple(Phase(seconds, **s) for s in settings * 2)


MB = 1e6
_BANDS = ({"bytes_per_s": 60 * MB}, {"bytes_per_s": 15 * MB})
# Steps are short beside what loading takes, so that loading is what is slow; in `latency` and `sleepy` they are
# such that a loader that reads enough at once need not be waited for.
SCENARIOS: dict[str, Scenario] = {
    s.name: s
    for s in (
        Scenario("cpu", "steady, bound by the processor", (Phase(20),), step_ms=4),
        Scenario("latency", "a source with 30 ms latency", (Phase(20, open_ms=30),), step_ms=60),
        Scenario("bandwidth", "a source of 30 MB/s", (Phase(20, bytes_per_s=30 * MB),), step_ms=20),
        Scenario("consumer", "a slow consumer, 120 ms a batch", (Phase(20),), step_ms=120),
        Scenario("hog", "a CPU hog that comes and goes", _turns(15, {}, {"hogs": 1}), step_ms=4),
        Scenario("changing", "bandwidth that changes every 20 s", _turns(20, *_BANDS), step_ms=30),
        Scenario("cold", "cold page cache", (Phase(20),), step_ms=4, keeps_cold=True),
        Scenario(
            "quota",
            "a CPU quota that comes and goes",
            _turns(15, {}, {"cpu_quota": 1.0}),
            step_ms=4,
        ),
        Scenario("sleepy", "Python items that sleep", (Phase(20),), "sleepy", 10, batch_size=16),
        Scenario("heavy", "Python items that compute", (Phase(20),), "heavy", 10, batch_size=16),
        Scenario(
            "memory", "large images, 50 MB of memory", (Phase(20),), "large", 20, 16, 50_000_000
        ),
    )
}
