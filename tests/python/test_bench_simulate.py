"""bench.offload.simulate: plans, times and shares, beside what a person computes by hand."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench.offload import computed, forms, simulate  # noqa: E402
from bench.offload.fleet import (  # noqa: E402
    Tenant,
    cores_at,
    run_together,
    share_cores,
    share_link,
)
from bench.offload.forms import Form, Unreadable  # noqa: E402
from bench.offload.grid import Cell  # noqa: E402
from bench.offload.planning import Job, Site, ladder, steps_of  # noqa: E402


def sample(raw, host=0.0, **others):
    """Sizes, or (size, storage seconds, host seconds)."""
    found = {"raw": Form(raw, 0.0, host)}
    for name, value in others.items():
        size, *costs = value if isinstance(value, tuple) else (value, 1.0)
        found[name] = Form(size, costs[0], costs[1] if len(costs) > 1 else host)
    return found


def test_steps_fall_in_gain_and_end_at_the_smallest_form():
    one = sample(100, cut=(40, 1.0), coded=(30, 3.0), pixels=(50, 4.0))
    steps = steps_of(one, ("raw", "cut", "coded", "pixels"))
    assert [(s.saved, s.storage_s, s.gain) for s in steps] == [(60, 1, 60), (10, 2, 5)]


def test_a_form_between_that_is_never_worth_it_is_passed_over():
    one = sample(100, cut=(90, 2.0), coded=(20, 4.0))
    steps = steps_of(one, ("raw", "cut", "coded"))
    assert [(s.saved, s.storage_s) for s in steps] == [(80, 4)]


def test_sophon_sends_finished_crops_or_files_and_resize_all_of_them():
    """A crop that is smaller before it is resized is none of SOPHON's places."""
    for pixels, sizes in ((150, [100, 150, 40]), (60, [60, 60, 40])):
        job = Job([sample(100, fewest=(40, 1.0), pixels=(pixels, 1.0))])
        policies = ("sophon", "resize", "auto")
        assert [job.epoch(policy, Site(1, 1e9, 1)).size for policy in policies] == sizes


def test_a_sample_that_only_grows_has_no_steps():
    assert steps_of(sample(100, pixels=150), ("raw", "pixels")) == []


def test_times_are_those_of_the_four_stages_and_the_first_batch():
    of = ladder([sample(1000, host=0.5)] * 10, "none")
    times = of.times(Site(link=2000, storage_cores=1, host_cores=2, device_rate=4, batch=2), 0)
    assert (times.device, times.host, times.storage, times.network) == (2.5, 2.5, 0, 5)
    assert times.startup == pytest.approx((2.5 + 2.5) * 2 / 10)
    assert times.epoch == 6
    assert times.slowest == "network"


def test_samples_that_save_most_per_second_go_first_until_the_network_is_not_slowest():
    samples = [
        sample(100, pixels=(20, 1.0)),  # 80 a second
        sample(100, pixels=(60, 1.0)),  # 40
        sample(100, pixels=(90, 1.0)),  # 10
    ]
    of = ladder(samples, "sophon")
    assert list(of.gains) == [80, 40, 10]
    assert list(of.size) == [300, 220, 180, 170]
    # A network of 100 bytes a second, one storage core: 3 s; 2.2 s and 1 s; 1.8 s and 2 s.
    # The second step would be taken by the rule, but 2 s of storage are still less than 2.2 s.
    assert of.place(Site(100, 1, 1)) == 2
    # With half a core the second step makes the storage take 4 s: worse than 2.2 s.
    assert of.place(Site(100, 0.5, 1)) == 1
    # Endless cores: all of it, the network is the slowest to the end.
    assert of.place(Site(100, 1e9, 1)) == 3
    # A device that takes 2.5 s: one step is enough, and more would be work for nothing.
    assert of.place(Site(100, 1e9, 1, device_rate=3 / 2.5)) == 1
    # One that takes 3 s: the job is not bound by the network, nothing is offloaded.
    assert of.place(Site(100, 1e9, 1, device_rate=1)) == 0


def test_policies_that_treat_all_alike():
    samples = [sample(100, pixels=(150, 1.0, 0.1))] * 2
    job, site = Job(samples), Site(100, 1, 1)
    assert job.epoch("none", site).size == 200
    assert job.epoch("resize", site).size == 300
    assert job.epoch("all", site).size == 300  # bytes, not floating-point numbers
    assert job.epoch("sophon", site).size == 200  # nothing shrinks
    assert job.epoch("auto", site).size == 200


def test_fastflow_takes_the_whole_line_or_nothing_by_what_is_less_to_send():
    site = Site(100, 1, 1)
    assert Job([sample(100, pixels=(60, 2.0))] * 2).epoch("fastflow", site).size == 120
    assert Job([sample(100, pixels=(150, 2.0))] * 2).epoch("fastflow", site).size == 200


def test_many_samples_like_these_are_as_many_copies():
    few = [sample(100, pixels=(20, 1.0)), sample(100, pixels=(60, 1.0))]
    site = Site(100, 1e9, 1)
    copies, scaled = Job(few * 50).epoch("sophon", site), Job(few, 100).epoch("sophon", site)
    assert scaled.size == copies.size == 4000
    assert scaled.times.epoch == pytest.approx(copies.times.epoch)


def test_auto_is_never_slower_than_none_or_sophon_in_its_own_model():
    samples = [
        sample(100 + 7 * i % 90, 0.2, cut=(40 + i % 50, 0.1 + i % 3), coded=(30 + i % 60, 1.0 + i % 5), pixels=(90, 0.9))
        for i in range(100)
    ]  # fmt: skip
    job = Job(samples)
    for link in (10, 100, 1000):
        for cores in (0.1, 1, 10):
            site = Site(link, cores, 1)
            seconds = {p: job.epoch(p, site).times for p in ("none", "sophon", "auto")}
            ours = seconds["auto"].epoch - seconds["auto"].startup
            for theirs in seconds.values():
                assert ours <= (theirs.epoch - theirs.startup) * 1.02  # steps are whole samples


def test_a_link_is_shared_evenly_and_what_is_left_goes_round():
    assert share_link([10, 10], 10) == [5, 5]
    assert share_link([2, 20, 20], 12) == [2, 5, 5]
    assert share_link([1, 2], 9) == [4, 5]  # 6 are left, 3 for each
    assert share_link([], 1) == []


def test_cores_go_where_a_second_saves_most_above_a_fair_minimum():
    good = ladder([sample(100, pixels=(20, 1.0))] * 100, "sophon")  # 80 bytes a second
    poor = ladder([sample(100, pixels=(60, 1.0))] * 100, "sophon")  # 40
    sites = [Site(10, 1, 1), Site(10, 1, 1)]
    # At 10 bytes a second 20 bytes take 2 s, so a second of CPU each 2 s: half a core. The other: a sixth.
    assert cores_at(good, sites[0])[-1] == pytest.approx(0.5)
    assert cores_at(poor, sites[1])[-1] == pytest.approx(1 / 6)
    ample = share_cores([good, poor], sites, 1.0)
    assert ample[0] >= 0.5 and ample[1] >= 1 / 6 and sum(ample) == pytest.approx(1)
    scarce = share_cores([good, poor], sites, 0.2)
    assert scarce[1] == pytest.approx(0.05, abs=0.005)  # half of an even share
    assert scarce[0] == pytest.approx(0.15, abs=0.005)
    assert share_cores([good, good], sites, 0.2) == pytest.approx([0.1, 0.1])
    only = share_cores([good, poor], sites, 0.2, fair=0.0)
    assert only == pytest.approx([0.2, 0.0], abs=0.005)


def test_twins_get_the_same_and_a_link_of_two_is_as_good_as_one_each():
    job = Job([sample(100, cut=(50, 0.01), pixels=(20, 0.05))] * 200)
    alone = job.epoch("auto", Site(1000, 1, 4))
    both = run_together([Tenant(job, "auto", Site(0, 0, 4))] * 2, 2000, 2)
    for one in both:
        assert one.times.epoch == pytest.approx(alone.times.epoch, rel=0.01)
        assert one.size == pytest.approx(alone.size, rel=0.01)


def test_a_job_that_waits_for_its_device_leaves_the_link_to_others():
    job = Job([sample(100)] * 100)
    slow, fast = (
        Tenant(job, "none", Site(0, 0, 1, device_rate=1, batch=1)),
        Tenant(job, "none", Site(0, 0, 1, batch=1)),
    )
    one, other = run_together([slow, fast], 1000, 1)
    assert one.times.slowest == "device" and one.times.epoch == pytest.approx(100, rel=0.02)
    assert other.times.network == pytest.approx(100 * 100 / 900, rel=0.02)


LINE = {
    "sample": 1,
    "raw": 1000,
    "cut": 400,
    "coded": None,
    "pixels": 150,
    "storage_ms": {"raw": 0, "cut": 1, "pixels": 2},
    "host_ms": {"raw": 5, "cut": 4, "pixels": 3},
}


def test_a_profile_is_read_and_all_operations_are_worked_out(tmp_path):
    path = tmp_path / "photos.jsonl"
    path.write_text(json.dumps(LINE) + "\n")
    (found,) = forms.read(path)
    assert set(found) == {"raw", "cut", "pixels"}
    assert found["cut"] == Form(400 * forms.WIRE + forms.HEAD_BYTES, 0.001, 0.004)
    assert forms.with_host([found], {"raw": 1.0})[0]["raw"].host_s == 1.0
    assert len(forms.repeated([found], 7)) == 7


@pytest.mark.parametrize("line", ["", "{", "[]", "{}", json.dumps({**LINE, "raw": None})])
def test_a_profile_that_is_none_says_where(tmp_path, line):
    path = tmp_path / "photos.jsonl"
    path.write_text(line and line + "\n")
    with pytest.raises(Unreadable, match=r"photos.jsonl"):
        forms.read(path)


def measured(seconds, size, compute=0.0):
    return {"samples": 1, "seconds": seconds, "bytes": size, "quota": 0.5, "compute_cpu_s": compute}


REPORT = {
    "how": {"storage_cores": 1, "compute_cores": 1},
    "data": {},
    "cells": {
        "headline/photos": {
            "cell": Cell("headline", "photos", 8e-4, 0.0, 0.0, 0.0).stored(),
            "problems": {},
            "runs": {
                "none": {"0": measured(10.0, 1000, 2.0), "1": measured(12.0, 1000, 4.0)},
                "resize": {"0": measured(3.0, 300, 0.5)},
            },
        },
        "headline/other": {
            "cell": Cell("headline", "other", 1.0, 0.0, 0.0, 0.0).stored(),
            "problems": {},
            "runs": {},
        },
    },
}


def test_the_model_is_compared_with_the_runs():
    assert simulate.host_costs(REPORT, "photos") == {"raw": 3.0, "pixels": 0.5}
    job = Job([sample(1100, pixels=(150, 1.0))])
    none, resize = simulate.compare(REPORT, "photos", job)
    assert (none.policy, none.seconds, none.size) == ("none", 11.0, 1000)
    assert none.seconds_said == pytest.approx(11)  # 1,100 bytes at 100 a second
    assert none.time_error == pytest.approx(0) and none.size_error == pytest.approx(0.1)
    # A second of storage CPU with half a core takes two; 150 bytes take 1.5 s.
    assert resize.seconds_said == pytest.approx(2) and resize.size_error == -0.5
    others = [replace(one, cell="grid/photos", is_calibrating=False) for one in (none, resize)]
    text = "\n".join(computed.checked_text(others))
    assert "| resize | 1 | 33.3 % | 33.3 % | 50.0 % | 50.0 % |" in text
    assert "Furthest off: grid/photos, resize" in text
    assert "| grid/photos | 11000.00, 11000.00 (+0 %) | - | 3000.00, 2000.00 (-33 %) |" in text
    assert "| grid/photos | 1.0, 1.1 (+10 %) | - | 0.3, 0.1 (-50 %) |" in text


def test_cells_that_the_model_was_made_with_are_no_check_of_it():
    job = Job([sample(1100, pixels=(150, 1.0))])
    used = simulate.compare(REPORT, "photos", job)
    assert all(one.is_calibrating for one in used) and simulate.checks("photos", used) == []
    text = "\n".join(computed.checked_text(used))
    assert "| headline/photos (calibrates) | 11000.00, 11000.00 (+0 %) |" in text
    assert "median error" not in text
    none = replace(used[0], is_calibrating=False)
    good, bad = simulate.checks("photos", [*used, none])  # 0 and 10 % off
    assert str(good).startswith(
        "photos: time as computed, median error at most 10 %: yes (0.0 %, 1 "
    )
    assert str(bad).startswith(
        "photos: traffic as computed, median error at most 5 %: **no** (10.0"
    )


def test_a_narrower_bound_gains_only_by_what_it_spares_the_host():
    samples = [sample(100, 0.1, cut=(50, 0.001, 0.1), coded=(40, 0.001, 1.0))] * 200
    host_bound, link_bound = Site(100, 1e3, 1, batch=1), Site(1, 1e3, 1e3, batch=1)
    for found in simulate.held_back(Job(samples), [host_bound, link_bound]):
        assert (found.cells, found.faster) == (2, 1)
        # Coded crops are taken until network and host take 0.64 s each; with cuts alone it is 0.5 s.
        assert found.gain == pytest.approx(0.22, abs=0.01)
        assert found.loss == pytest.approx(50 / 40 - 1, abs=0.01)
    alike = [sample(100, 0.1, cut=(50, 0.5, 0.1), coded=(30, 1.0, 0.1), pixels=(60, 0.7, 0.1))]
    sites = [Site(link, cores, 1, batch=1) for link in (10, 100, 1000) for cores in (0.1, 1, 10)]
    for found in simulate.held_back(Job(alike * 200), sites):
        assert found.faster == 0 and found.loss > 0.1


def test_bounds_are_tried_over_many_sites_and_with_dear_crops():
    costs = {"cut": (45e3, 5e-4, 1e-3), "coded": (35e3, 6e-4, 1e-3), "pixels": (150e3, 5e-4, 1e-3)}
    found = simulate.within_bounds([sample(110e3, 1.5e-3, **costs)], 1000, 0.0)
    assert [of.bound.split(",")[0] for of in found] == ["codec 0", "cut_wire 0"] * 2
    assert {of.cells for of in found} == {7 * 6 * 5}
    assert found[0].loss == pytest.approx(
        45 / 35 - 1, abs=0.02
    )  # where the link is all that counts
    assert found[2].gain >= found[0].gain and found[2].faster >= found[0].faster
    text = "\n".join(computed.held_back_text("photos", found))
    assert "25 to 10,000 Mbit/s, 0.1 to 48 cores at the storage, 0.25 to 48 at the host" in text
    assert f"| codec 0 | 210 | {found[0].faster} | " in text


@pytest.fixture
def computed_once(tmp_path):
    path, runs = tmp_path / "photos.jsonl", tmp_path / "runs.json"
    lines = [{**LINE, "sample": i, "raw": 1000 + 100 * i} for i in range(10)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    runs.write_text(json.dumps(REPORT))
    words = [str(path), "--runs", str(runs), "--samples", "100", "--cores", "4"]
    return simulate.compute(simulate.parse(words))


def test_the_report_goes_from_the_profile_to_many_jobs(computed_once):
    text = computed.text(computed_once)
    assert "## photos: the profile" in text
    assert "## The model beside the runs" in text
    assert "## photos: 100 samples, a host of 4 cores" in text
    assert "## photos: `auto` held back" in text
    assert "## Jobs on one store of 4 cores and 500 Mbit/s (photos)" in text


def test_what_was_computed_is_drawn(computed_once, tmp_path):
    pytest.importorskip("scipy")
    pytest.importorskip("matplotlib")
    from bench.offload import computed_charts

    computed_charts.draw(computed_once, tmp_path / "out.png")
    assert (tmp_path / "out.png").exists()
