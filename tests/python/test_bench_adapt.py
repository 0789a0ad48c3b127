"""bench.adapt: what it computes from notes of a run, and the file system that is slow on purpose."""

import errno
import importlib
import io
import json
import math
import os
import random
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import control_group  # noqa: E402
from bench.adapt import consumer, measure, oracle, runner, verify  # noqa: E402
from bench.adapt import mechanisms as stagecraft  # noqa: E402
from bench.adapt.__main__ import joined  # noqa: E402
from bench.adapt.entrants import Entrant, entrants  # noqa: E402
from bench.adapt.mechanisms import slow_folder  # noqa: E402
from bench.adapt.runner import Run, schedule  # noqa: E402
from bench.adapt.scenarios import ADAPTING_S, SCENARIOS, Phase, Scenario, spans  # noqa: E402
from bench.common import Unavailable  # noqa: E402
from bench.contestants.python_items import Shuffled  # noqa: E402

TWO = Scenario("two", "two phases", (Phase(5, hogs=1), Phase(10)), step_ms=10)


def scipy_parts(name):
    """Statistics and what uses them; scipy belongs to the benchmark's environment."""
    pytest.importorskip("scipy")
    return importlib.import_module(name)


def test_phases_follow_each_other_and_settle_after_twenty_periods():
    first, second = spans(TWO)
    assert (first.begin, first.settled, first.end) == (0, ADAPTING_S, 5)
    assert (second.begin, second.settled, second.end) == (5, 5 + ADAPTING_S, 15)


def test_a_shorter_scenario_keeps_something_after_adapting():
    for scenario in SCENARIOS.values():
        for span in spans(scenario.scaled(0.001)):
            assert span.end - span.settled >= 1


def test_a_phase_shorter_than_adapting_has_no_settled_part():
    (span,) = spans(Scenario("short", "", (Phase(1),)))
    assert span.settled == span.end == 1


def test_every_scenario_says_what_it_needs():
    assert SCENARIOS["latency"].needs_slowfs
    assert SCENARIOS["quota"].needs_cgroup
    assert not SCENARIOS["cpu"].needs_slowfs
    assert SCENARIOS["heavy"].is_python


def test_python_items_are_met_by_everybody_who_can_call_python():
    names = {e.name for e in entrants(SCENARIOS["heavy"], (2,))}
    assert {"penstock-model", "torch-2", "tfdata-autotune", "dali"} <= names
    assert "tfdata-service" not in names


def test_the_order_of_items_is_a_permutation_that_changes_with_the_epoch():
    source = Shuffled("sleepy", 16, seed=3)
    source._items = list(range(1600))

    def epoch(number):
        return [
            source(SimpleNamespace(iteration=i // 16, epoch_idx=number, idx_in_epoch=i))
            for i in range(1600)
        ]

    first, second = epoch(0), epoch(1)
    assert sorted(first) == sorted(second) == list(range(1600))
    assert first != second
    with pytest.raises(StopIteration):
        source(SimpleNamespace(iteration=100, epoch_idx=0, idx_in_epoch=1600))


def test_the_schedule_hands_each_phase_its_best_knobs():
    best = {phase.conditions: {"workers": float(phase.hogs)} for phase in TWO.phases}
    actions = schedule(TWO, best)
    assert [(a.at, a.knobs) for a in actions] == [(0, {"workers": 1}), (5, {"workers": 0})]
    assert all(action.knobs is None for action in schedule(TWO))


def test_rates_count_a_batch_over_the_time_it_took():
    got, rows = [0.0, 1.0, 2.0, 4.0], [8.0, 10.0, 10.0, 10.0]
    assert measure.rate(got, rows, 0, 2) == 10
    assert measure.rate(got, rows, 2, 3) == 5  # half of a batch that takes two seconds
    assert measure.rate(got, rows, 4, 4) == 0


def test_a_timeline_has_a_bin_a_period():
    line = measure.timeline([0.0, 0.5, 1.0], [1.0, 5.0, 10.0], 1.0, 0.5)
    assert line == [10.0, 20.0]


def test_waits_are_shares_of_the_time_and_quantiles():
    asked, got = map(measure.np.array, ([0.0, 1.0, 2.0], [0.5, 1.5, 2.5]))
    found = measure.waits(asked, got, 0.0, 3.0)
    assert found["wait_share"] == pytest.approx(0.5)
    assert found["p50_ms"] == pytest.approx(500)


def test_a_loop_that_gets_nothing_waits_all_the_time():
    assert measure.waits(measure.np.zeros(0), measure.np.zeros(0), 0, 1)["wait_share"] == 1


def test_adapting_is_over_when_the_rate_is_there_for_a_while():
    (span,) = spans(Scenario("one", "", (Phase(5),)))
    line = [10.0] * 13 + [100.0] * 37
    assert measure.adapted_after_s(line, span, 99) == pytest.approx(1.3)
    assert measure.adapted_after_s(line, span, 101) is None


def test_batches_that_come_in_lots_are_counted_by_lots():
    lots = np.arange(0.0, 12.0, 1.8)  # of 16 batches, 10 ms apart: 284 samples a second
    got = (lots[:, None] + 0.01 * np.arange(16)).ravel()
    asked = np.concatenate([[0.0], got[:-1] + 0.005])
    rows = np.full(len(got), 32.0)
    for begin in (2.0, 2.5, 3.0, 3.5):
        assert measure.settled_rate(asked, got, rows, begin, begin + 4) == pytest.approx(512 / 1.8)
    one_lot = measure.settled_rate(asked, got, rows, 2.0, 4.0)
    assert one_lot == measure.rate(got, rows, 2.0, 4.0)


def test_batches_that_come_evenly_are_counted_as_ever():
    got = np.arange(0.0, 5.0, 0.03)
    rows, asked = np.full(len(got), 32.0), got - 0.01
    assert measure.settled_rate(asked, got, rows, 2.0, 5.0) == pytest.approx(32 / 0.03)
    assert measure.settled_rate(asked[:0], got[:0], rows[:0], 2.0, 5.0) == 0.0


def test_the_oracle_takes_the_cheapest_of_equals():
    def key(workers, readers):
        return tuple(sorted(oracle.knobs(workers, readers, 4).items()))

    rates = {key(4, 32): [100.0], key(2, 8): [99.0, 98.5, 300.0], key(1, 0): [50.0]}
    assert oracle.choose(rates) == oracle.knobs(2, 8, 4)


def test_neighbours_stay_in_range_and_differ():
    near = oracle.neighbours(oracle.knobs(1, 0, 4), oracle.Effort())
    assert oracle.knobs(1, 0, 4) not in near
    assert all(1 <= setting["workers"] <= 4 for setting in near)


def test_of_data_loaders_the_best_take_part_and_those_as_good(monkeypatch):
    rates = {"torch-1": 50.0, "torch-2": 97.0, "torch-4": 100.0, "torch-8": 96.0, "torch-16": None}

    def perform(run):
        rate = rates[run.entrant.name]
        return {"rate": rate} if rate else {"failed": "ended: no memory"}

    monkeypatch.setattr(oracle, "perform", perform)
    monkeypatch.setattr(oracle, "figures", lambda scenario, notes: {"settled": notes["rate"]})
    candidates = [Entrant(name, "", "main", 1) for name in rates]
    kept, told = oracle.best_workers(TWO, None, candidates)
    assert [e.name for e in kept] == ["torch-2", "torch-4"]
    assert told == {**rates, "torch-16": "ended: no memory"}
    rates["torch-2"] = 90.0
    assert [e.name for e in oracle.best_workers(TWO, None, candidates)[0]] == ["torch-4", "torch-8"]
    assert oracle.best_workers(TWO, None, candidates[-1:])[0] == []


def test_reports_are_joined_in_the_usual_order_and_the_later_counts():
    earlier = {"date": "a", "scenarios": [{"name": "quota"}, {"name": "cpu", "runs": 1}]}
    later = {"date": "b", "scenarios": [{"name": "cpu", "runs": 2}]}
    report = joined([earlier, later])
    assert report["date"] == "b"
    assert report["scenarios"] == [{"name": "cpu", "runs": 2}, {"name": "quota"}]


def test_statistics_agree_with_known_values():
    stats = scipy_parts("bench.stats")
    found = stats.summary([10.0, 12.0, 14.0])
    assert found["mean"] == 12
    assert found["deviation"] == 2
    assert found["half"] == pytest.approx(4.3027 * 2 / math.sqrt(3), rel=1e-4)
    assert stats.summary([1.0])["half"] is None
    test = stats.paired([3.0, 4.0, 5.0], [1.0, 3.0, 2.0])
    assert test["difference"] == 2
    assert test["p"] == pytest.approx(0.0742, abs=1e-4)
    assert stats.paired([1.0], [2.0]) is None
    assert stats.paired([2.0, 3.0], [1.0, 2.0])["p"] == 0  # no deviation at all
    anova = stats.anova([[6.0, 8, 4, 5, 3, 4], [8.0, 12, 9, 11, 6, 8], [13.0, 9, 11, 8, 7, 12]])
    assert anova["f"] == pytest.approx(9.3, abs=0.05)
    assert stats.anova([[1.0], [2.0]]) is None


def notes_of(samples_per_s, seconds=16):
    """A loop that never waits longer than a batch takes."""
    count = int(samples_per_s * seconds / 10)
    got = [i * 10 / samples_per_s for i in range(count + 1)]
    knobs = {"workers": 2, "io": 16, "read_ahead": 0, "ready_batches": 3}
    decision = {"time_ns": 3e9, "knobs": knobs, "decision": knobs, "reason": "because"}
    return {
        "begin": -0.5,
        "first": 0.0,
        "asked": [max(0.0, t - 0.001) for t in got],
        "got": got,
        "rows": [10] * (count + 1),
        "decisions": [decision],
        "seen": {
            "peak_bytes": 3e6,
            "base_bytes": 1e6,
            "longest_gap_s": 0.02,
            "processes": 1,
            "threads": 4,
        },
        "about": {"control_cpu_s": 0.03, "stats": {"budget_peak": 5}},
        "cpu_s": 15.0,
        "other_cores": 0.1,
    }


def test_worker_processes_have_fewer_knobs_and_are_the_threads():
    notes = notes_of(100)
    knobs = {"workers": 3, "ready_batches": 5}
    notes["decisions"][0] |= {"knobs": knobs, "decision": knobs}
    found = measure.figures(TWO, notes)
    assert [phase["threads"] for phase in found["phases"]] == [3, None]
    assert found["knobs"] == [{"at": 3.0, "knobs": knobs, "reason": "because"}]


def test_control_that_nobody_measured_is_not_nothing():
    notes = notes_of(100)
    assert measure.figures(TWO, notes)["control_cores"] == pytest.approx(0.03 / 15)
    del notes["about"]["control_cpu_s"]
    assert measure.figures(TWO, notes)["control_cores"] is None


@pytest.mark.parametrize("name", ["penstock-model", "penstock-oracle", "torch-2"])
@pytest.mark.parametrize("scenario", ["cpu", "heavy"])
def test_all_of_ours_write_down_what_they_decide(name, scenario, monkeypatch):
    monkeypatch.setattr(runner, "interpreter", lambda env: Path("python"))
    run = Run(SCENARIOS[scenario], Entrant(name, "", "penstock"), 0, None, (), 1.0)
    command = runner._command(run, None, Path("log"))
    assert ("--log" in command) == name.startswith("penstock")


class Slow:
    """Items that are worth a worker."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.002)
        return np.full(4, index, dtype=np.float32)


def taken(tmp_path, draws, **options):
    """What a loop over Python items noted, and the lines of its log."""
    log = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
    usual = {"knobs": None, "alone": False, "seed": 3, "log": log} | options
    entrant = Entrant("penstock-model", "", "penstock")
    scenario = Scenario("slow", "", (Phase(1),), "sleepy", batch_size=4)
    subject = consumer.make(entrant, scenario, SimpleNamespace(**usual))
    try:
        noted = consumer.consume(subject, 0, 40, threading.Event(), io.StringIO(), draws)
        return noted, subject.about(), [json.loads(line) for line in log.read_text().splitlines()]
    finally:
        subject._loader.close()


def test_python_items_are_hashed_while_their_knobs_are_turned(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    decisions = pytest.importorskip("penstock.workers.decisions")
    monkeypatch.setattr("bench.items.items_of", lambda name: Slow())
    monkeypatch.setattr(decisions, "PERIOD_SECONDS", 0)
    alone, _, _ = taken(tmp_path, None, alone=True)
    turned, about, lines = taken(tmp_path, random.Random(1))
    assert turned["digests"] == alone["digests"] and len(alone["digests"]) == 40
    assert len(lines) == 40
    assert sum(line["decision"] != line["knobs"] for line in lines) >= 20
    assert about["control_cpu_s"] > 0 and about["verdict"] and "workers" in about["knobs"]


@pytest.mark.parametrize(("name", "is_turning"), [("sleepy", True), ("cpu", False)])
def test_the_stream_is_compared_while_knobs_change_and_changes_are_counted(
    name, is_turning, monkeypatch
):
    two, three = {"workers": 2}, {"workers": 3}
    lines = [
        {"knobs": two, "wanted": two, "decision": two},
        {"knobs": two, "wanted": three, "decision": three},
        {"knobs": three, "wanted": two, "decision": three},  # pinned: nothing changed
    ]
    runs = []

    def perform(run):
        runs.append(run)
        return {"digests": [1, 2], "decisions": lines}

    monkeypatch.setattr(verify, "perform", perform)
    found = verify.verify(SCENARIOS[name], None, 2, {})
    assert found == {"equal": True, "batches": 2, "changes": 1}
    assert [run.turning for run in runs] == [False, is_turning]


def stored(rates):
    runs = {name: [measure.figures(TWO, notes_of(r)) for r in of] for name, of in rates.items()}
    phases = [{"seconds": p.seconds, "hogs": p.hogs} for p in TWO.phases]
    own = {"phases": phases, "data": "images", "step_ms": 10, "batch_size": 10, "batch_bytes": 1}
    return {"name": "two", "title": "two phases", "memory_budget": None, "runs": runs, **own}


def test_findings_say_who_is_ahead_and_how_far_the_oracle_is():
    analysis = scipy_parts("bench.adapt.analysis")
    report = stored(
        {
            "penstock-model": [100, 102, 101],
            "penstock-oracle": [120, 121, 122],
            "penstock-fixed": [50, 51, 52],
            "torch-2": [140, 141, 142],
            "torch-4": [70, 71, 72],
        }
    )
    checks = by_name(analysis.findings(report))
    assert checks["at least 95 % of the oracle"].holds is False
    assert checks["within 20 periods"].told == "never, never periods"
    assert checks["nobody is ahead"].told == "torch-2"
    assert checks["threads at most the oracle's and 10 %"].holds is True
    assert checks["control below 1 % of a core"].holds is True


def by_name(checks):
    return {check.what: check for check in checks}


def test_what_was_not_measured_is_not_told():
    analysis = scipy_parts("bench.adapt.analysis")
    report = stored({"penstock-model": [100, 102], "penstock-oracle": [101, 103]})
    report |= {"data": "heavy", "verified": {"equal": True, "batches": 60, "changes": 0}}
    for run in report["runs"]["penstock-model"]:
        run["control_cores"] = 0.0  # as it once was where there was no such thread
        for phase in run["phases"]:
            phase["threads"] = None
    checks = by_name(analysis.findings(report))
    for what in (
        "control below 1 % of a core",
        "the stream of one thread",
        "threads at most the oracle's and 10 %",
    ):
        assert checks[what].holds is None
    report["verified"]["changes"] = 7
    (stream,) = analysis.limits(report, {})
    assert stream.holds is True and stream.told == "60 batches, 7 changes of knobs"
    report["verified"] |= {"equal": False, "changes": 0}
    (stream,) = analysis.limits(report, {})
    assert stream.holds is False
    assert analysis.row(report["runs"], "penstock-model")["control"] == 0


def test_memory_is_judged_apart_and_who_is_above_is_named():
    analysis = scipy_parts("bench.adapt.analysis")
    scenario = {"memory_budget": 50e6, "batch_bytes": 10e6}
    usual = {"budget_peak_bytes": 49e6, "memory_bytes": 60e6}
    runs = {"penstock-model": [usual], "penstock-fixed": [usual, usual], "dali": [usual]}
    ours, others = analysis.budget_checks(scenario, runs)
    assert ours.holds is True and others.holds is True
    assert ours.told == "49 MB by its own count, 50 allowed; 60 MB seen, 102 allowed"
    runs["penstock-fixed"] = [usual, usual | {"memory_bytes": 103e6}]
    ours, others = analysis.budget_checks(scenario, runs)
    assert ours.holds is True and others.holds is False
    assert others.told.endswith("103 MB seen, 102 allowed; above: penstock-fixed")
    runs["penstock-model"] = [usual | {"budget_peak_bytes": 51e6}]
    assert analysis.budget_checks(scenario, runs)[0].holds is False
    runs["penstock-model"] = [usual | {"budget_peak_bytes": None}]
    assert analysis.budget_checks(scenario, runs)[0].holds is None


def test_a_report_shows_the_best_of_torch_and_the_tests():
    report = scipy_parts("bench.adapt.markdown")
    rates = {
        "penstock-model": [100, 102],
        "penstock-oracle": [101, 103],
        "torch-2": [60, 61],
        "torch-4": [70, 71],
    }
    lines = "\n".join(report.scenario_text(stored(rates)))
    assert "| torch-4 |" in lines
    assert "| torch-2 |" not in lines
    assert "at least 95 % of the oracle: yes (99 %, 99 %)" in lines


def test_seeds_pair_runs_and_the_largest_counts():
    analysis = scipy_parts("bench.adapt.analysis")
    ours = [{"seed": s, "settled": 10.0 * s, "memory_bytes": m} for s, m in ((0, 1e6), (2, 5e6))]
    theirs = [{"seed": s, "settled": 1.0 * s, "memory_bytes": 1e6} for s in (2, 1, 0)]
    assert analysis.matched(ours, theirs) == ([0, 20], [0, 2])
    del ours[0]["seed"]  # measured before they were noted
    assert analysis.matched(ours, theirs) == ([0, 20], [2, 1, 0])
    assert analysis.most_memory(ours) == 5


def test_the_test_of_policies_says_what_it_asks():
    report = scipy_parts("bench.adapt.markdown")
    rates = {"penstock-model": [100, 102], "penstock-fixed": [50, 51], "penstock-oracle": [101, 1]}
    assert "\nANOVA, that policies are alike: F = " in "\n".join(
        report.scenario_text(stored(rates))
    )


def test_a_scenario_that_was_skipped_says_why():
    report = scipy_parts("bench.adapt.markdown")
    lines = report.scenario_text({**stored({}), "skipped": "no access to /dev/fuse"})
    assert "skipped: no access to /dev/fuse" in lines


def refuse(path):
    raise PermissionError(f"not {path.name}")


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """A control group's root, as far as plain files can be one."""
    monkeypatch.setattr(control_group, "_CGROUP", tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    (tmp_path / "cgroup.subtree_control").write_text("memory\n")
    return tmp_path


def test_the_root_group_is_left_as_it_was_found(groups):
    shared = groups / "cgroup.subtree_control"
    group = control_group.ControlGroup()
    assert shared.read_text() == "+cpu"
    group.remove()
    assert shared.read_text() == "-cpu" and not group.path.exists()
    shared.write_text("cpu memory\n")
    control_group.ControlGroup().remove()
    assert shared.read_text() == "cpu memory\n"


def test_a_small_share_of_a_core_has_a_longer_period():
    assert control_group.quota_us(0) == (0, 100_000)
    assert control_group.quota_us(0.5) == (50_000, 100_000)
    assert control_group.quota_us(0.01) == (1000, 100_000)
    assert control_group.quota_us(0.005) == (1000, 200_000)
    assert control_group.quota_us(0.0001) == (1000, 1_000_000)  # as little as can be had


def test_groups_of_benchmarks_that_were_killed_are_taken_away(groups):
    (groups / "penstock-bench-999999999").mkdir()
    (groups / f"penstock-bench-{os.getppid()}-storage").mkdir()
    group = control_group.ControlGroup("storage")
    left = {path.name for path in groups.glob("penstock-bench-*")}
    assert left == {f"penstock-bench-{pid}-storage" for pid in (os.getpid(), os.getppid())}
    group.remove()


def test_control_groups_that_cannot_be_had_are_unavailable(groups):
    group = control_group.ControlGroup()
    with pytest.raises(Unavailable, match="no control group"):
        control_group.ControlGroup()  # there is one of that name
    assert (groups / "cgroup.subtree_control").read_text() in ("+cpu", "-cpu")
    group.remove()
    with pytest.raises(Unavailable, match="no control group"):
        group.set(1.0)
    with pytest.raises(Unavailable, match="no control group"):
        group.add(1)


def test_a_cold_cache_holds_no_descriptors_and_knows_files_by_number(tmp_path, monkeypatch):
    (tmp_path / "one").write_bytes(b"1")
    (tmp_path / "link").symlink_to("one")
    (tmp_path / "hard").hardlink_to(tmp_path / "one")
    assert len(stagecraft._distinct(tmp_path.iterdir())) == 1
    before = len(os.listdir("/proc/self/fd"))
    with stagecraft.cold_cache(tmp_path):
        (tmp_path / "one").unlink()  # what is gone meanwhile is no fault
        (tmp_path / "hard").unlink()
    assert len(os.listdir("/proc/self/fd")) == before
    (tmp_path / "one").write_bytes(b"1")
    monkeypatch.setattr(stagecraft, "_throw_out", refuse)
    with pytest.raises(Unavailable, match="cannot be kept cold"), stagecraft.cold_cache(tmp_path):
        pass


@pytest.fixture
def slow(tmp_path):
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "file").write_bytes(bytes(range(256)) * 1000)
    (tmp_path / "class" / "link").symlink_to(tmp_path / "class" / "file")
    try:
        with slow_folder(tmp_path) as folder:
            yield folder
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_slowfs_gives_the_same_bytes_and_follows_links(slow, tmp_path):
    whole = (tmp_path / "class" / "file").read_bytes()
    assert (slow.path / "class" / "file").read_bytes() == whole
    assert (slow.path / "class" / "link").read_bytes() == whole
    assert sorted(p.name for p in (slow.path / "class").iterdir()) == ["file", "link"]
    assert not (slow.path / "class" / "link").is_symlink()
    with pytest.raises(OSError) as refusal:  # noqa: PT011
        (slow.path / "class" / "file").write_bytes(b"")
    assert refusal.value.errno == errno.EROFS
    assert (tmp_path / "class" / "file").read_bytes() == whole


def test_slowfs_waits_for_many_at_once_and_never_less_than_it_was_told(slow):
    slow.set(open_ms=50, bytes_per_s=0)
    begin = time.monotonic()
    threads = [
        threading.Thread(target=(slow.path / "class" / "file").read_bytes) for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - begin >= 0.05  # how much more depends on the machine
    slow.set(open_ms=0, bytes_per_s=1e6)
    begin = time.monotonic()
    (slow.path / "class" / "file").read_bytes()
    assert time.monotonic() - begin >= 0.25
