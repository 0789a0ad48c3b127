"""bench.offload: runs at once, each with two machines and a link of its own."""

import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from offload_rehearsal import CELL, Rehearsal, options_for

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.child import Lost
from bench.offload import caches, one_run
from bench.offload.grid import Length
from bench.offload.one_run import Run, perform, perform_all

BESIDE = replace(CELL, kind="client", is_beside=True)


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    pytest.importorskip("penstock")
    import numpy as np
    from PIL import Image

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "folder"
    (folder / "class").mkdir(parents=True)
    noise = np.random.default_rng(1).integers(0, 255, (240, 320, 3), np.uint8)
    for index in range(8):
        Image.fromarray(noise // (index + 1)).save(folder / "class" / f"{index}.jpg")
    return folder


def performed(*runs):
    found = perform_all(runs)
    if "skipped" in found[0]:
        pytest.skip(found[0]["skipped"])
    return found


def test_runs_at_once_have_the_stream_of_one_alone(pictures):
    alone = Run(pictures, "none", 3, Length(1, 3), batch_size=2)
    found = performed(alone, replace(alone, policy="auto", lane=1, client=0.5))
    local = perform(replace(alone, policy=None))
    assert [notes["digests"] for notes in found] == [local["digests"]] * 2
    assert [notes["samples"] for notes in found] == [6, 6]
    assert all(notes["bytes"] > 0 for notes in found)
    used = [caches.live(site, lane) for site in ("storage", "compute") for lane in (0, 1)]
    assert len(set(used)) == 4


def test_if_one_of_several_fails_none_has_figures_and_it_is_told_why(pictures):
    for policies in (("none", "nonsense"), ("nonsense", "none")):
        first, second = performed(
            *(
                Run(pictures, policy, 0, Length(1, 3), batch_size=2, lane=lane)
                for lane, policy in enumerate(policies)
            )
        )
        assert first == second and "nonsense" in first["failed"]


class Stage:
    """Of a run that comes as far as it is told."""

    def __init__(self, fails):
        self.fails = fails


def test_nobody_waits_for_a_run_that_failed(monkeypatch):
    def drive(stage, together):
        if stage.fails:
            raise Lost("the storage node ended")
        together.wait(60)
        raise AssertionError("the other never came")

    monkeypatch.setattr(one_run, "_drive", drive)
    together, found = threading.Barrier(2), []
    waits = threading.Thread(
        target=lambda: found.append(one_run._drive_beside(Stage(False), together))
    )
    waits.start()
    with pytest.raises(Lost, match="node ended"):
        one_run._drive_beside(Stage(True), together)
    waits.join()
    assert found == [{}]


def test_runs_that_never_begin_to_count_together_have_failed(pictures, monkeypatch):
    def gives_up(stage, together):
        raise threading.BrokenBarrierError

    monkeypatch.setattr(one_run, "_drive", gives_up)
    run = Run(pictures, "none", 0, Length(1, 3), batch_size=2)
    found = performed(run, replace(run, policy="auto", lane=1))
    assert "begin to count" in found[0]["failed"] and found[0] == found[1]


def test_what_ends_the_benchmark_ends_runs_that_are_under_way(pictures, monkeypatch):
    """An interrupt comes to the thread that waits for the others: those do not go on for minutes."""
    long = Run(pictures, "none", 0, Length(1, 4), batch_size=2, rate=0.01)
    performed(replace(long, rate=0.0))  # or it is skipped
    begun, driven, drive = threading.Event(), [], one_run._drive

    def drive_and_tell(stage, together):
        begun.set()
        return drive(stage, together)

    class Interrupted(one_run.ThreadPoolExecutor):
        def submit(self, *words):
            driven.append(super().submit(*words))
            begun.wait()
            raise KeyboardInterrupt

    monkeypatch.setattr(one_run, "_drive", drive_and_tell)
    monkeypatch.setattr(one_run, "ThreadPoolExecutor", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        perform(long)
    assert isinstance(driven[0].exception(), Lost)  # nobody has waited for its end


def test_what_runs_take_beside_each_other_is_not_what_others_took():
    def notes(other, cpu):
        return {
            "other_cores": other,
            "storage_cpu_s": cpu,
            "compute_cpu_s": 3 * cpu,
            "elapsed_s": 10,
        }

    found = one_run._without_each_other([notes(0.5, 0.5), notes(0.1, 1.0)])
    assert [of["other_cores"] for of in found] == [pytest.approx(0.1), 0.0]
    assert one_run._without_each_other([notes(0.5, 1.0)])[0]["other_cores"] == 0.5


def test_pairs_are_run_at_once_and_as_pairs(tmp_path, monkeypatch):
    places = set()

    def figures(run):
        if run.policy is not None and not run.is_kept:
            places.add((run.policy, run.seed, caches.live(caches.COMPUTE, run.lane).name))
        return {}

    options = options_for(tmp_path, "--seeds", "4")
    bench = Rehearsal(options, monkeypatch, [BESIDE], figures)
    assert bench.at_once == [["none", "auto"], ["auto", "none"]] * 2
    # Who is started first, and where, changes from seed to seed.
    assert {place for policy, _, place in places if policy == "auto"} == {"compute", "compute-1"}
    assert {run.lane for run in bench.ran if run.policy is None} == {0}
    runs = bench.report["cells"][BESIDE.key]["runs"]
    del runs["none"]["1"]
    bench._save()
    again = Rehearsal(options, monkeypatch, [BESIDE])
    assert again.at_once == [["auto", "none"]]  # half a pair is none
    bench._save()
    half = options_for(tmp_path, "--seeds", "4", "--policies", "auto")
    assert Rehearsal(half, monkeypatch, [BESIDE]).at_once == [["auto", "none"]]


def test_a_pair_is_repeated_if_one_of_it_was_disturbed(tmp_path, monkeypatch):
    told = iter([0.9, 0.1, 0.1])

    def figures(run):
        is_it = (run.policy, run.seed, run.is_kept) == ("auto", 0, False)
        return {"other_cores": next(told), "seconds": 7.0} if is_it else {}

    bench = Rehearsal(options_for(tmp_path), monkeypatch, [BESIDE], figures)
    assert bench.at_once == [["none", "auto"]] * 2 + [["auto", "none"]]
    runs = bench.report["cells"][BESIDE.key]["runs"]
    assert [runs[policy]["0"]["tries"] for policy in ("none", "auto")] == [2, 2]
    assert runs["auto"]["0"]["other_cores"] == 0.1


def test_all_policies_of_a_cell_on_a_slow_link_run_at_once_and_each_for_itself(
    tmp_path, monkeypatch
):
    cell = replace(CELL, kind="grid", policies=("none", "sophon", "auto"), is_beside=True, seeds=1)
    options = options_for(tmp_path, "--seeds", "1")
    bench = Rehearsal(options, monkeypatch, [cell])
    assert bench.at_once == [["none", "sophon", "auto"]]
    runs = bench.report["cells"][cell.key]["runs"]
    assert all(set(runs[policy]) == {"0"} for policy in cell.policies)
    del runs["sophon"]["0"]
    bench._save()
    assert Rehearsal(options, monkeypatch, [cell]).at_once == [["sophon"]]
    some = options_for(tmp_path, "--seeds", "1", "--policies", "auto")
    bench._save()
    assert Rehearsal(some, monkeypatch, [cell]).at_once == []
