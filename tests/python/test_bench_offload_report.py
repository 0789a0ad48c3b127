"""bench.offload: what reports say of runs."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from offload_reports import report_with, run_with, scipy_parts

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench.offload.grid import AMPLE, POLICIES, Cell  # noqa: E402

CELL = Cell("headline", "photos", 60.0, AMPLE, 0.0, 0.0, 64, ("none", "auto"))


def test_findings_compare_with_none_seed_by_seed():
    verdicts = scipy_parts("verdicts")
    headline = replace(CELL, policies=POLICIES)
    report = report_with(
        headline,
        {
            "none": [run_with(10, 1000), run_with(20, 2000)],
            "sophon": [run_with(5, 500), run_with(10, 1000)],
            "auto": [run_with(2, 100), run_with(4, 400)],
        },
    )
    stored = report["cells"]["headline/photos"]
    assert verdicts.ratios(stored, "auto", "bytes") == [10, 5]
    checks = {check.what: check for check in verdicts.findings(report)}
    traffic = checks["photos: traffic at least 5.8 times less than none"]
    assert traffic.holds is True  # by the mean, with its interval beside it
    assert traffic.told == "7.50 ± 31.77 times"
    assert checks["photos: time at least 4 times less than none"].holds is True
    assert checks["photos: sophon near the paper's"].holds is True  # 2 beside 2.2
    assert checks["photos: the link stays the bottleneck under auto"].holds is False
    assert checks["batches equal the local stream's"].holds is True
    stored["runs"]["auto"]["0"]["equal"] = False
    checks = {check.what: check for check in verdicts.findings(report)}
    assert checks["batches equal the local stream's"].holds is False


def test_time_from_a_cold_start_has_a_verdict_of_its_own():
    verdicts = scipy_parts("verdicts")
    runs = {
        "none": [run_with(10, 1000), run_with(20, 2000)],
        "auto": [run_with(2, 100), run_with(2, 100)],
    }
    report = {**report_with(CELL, runs), "first": {"photos/auto": 8.0}}
    stored = report["cells"]["headline/photos"]
    checks = {check.what: check for check in verdicts.findings(report)}
    cold = checks["photos: time from a cold start at least 4 times less than none"]
    assert cold.holds is True and cold.told.startswith("5.33 ±")  # 11 and 21 beside 3
    # `none` has nothing to learn, so its mean of 16 stands for its first epoch, too.
    assert cold.told.endswith("times; 2.00 in its very first epoch, nothing known at either end")
    for run in stored["runs"]["auto"].values():
        run["cold_s"] = 4.5  # at first it is slow
    checks = {check.what: check for check in verdicts.findings(report)}
    assert checks[cold.what].holds is False
    assert checks["photos: time at least 4 times less than none"].holds is True
    assert verdicts.row(stored, "none", 100)["cold_s"] == 16
    assert verdicts.row(stored, "none", 5000)["cold_s"] is None  # no whole epoch
    for run in stored["runs"]["auto"].values():
        del run["cold_s"]
    assert cold.what not in {check.what for check in verdicts.findings(report)}


def test_no_time_is_shorter_than_the_link_takes():
    verdicts = scipy_parts("verdicts")
    cell = Cell("grid", "photos", 25.0, 1.0, 60.0, 4.0)
    together = run_with(1.6, 14_500_000)  # 4.64 s at 25 Mbit/s: the batches came at once
    report = report_with(cell, {"all": [together], "auto": [run_with(2.0, 5_000_000)]})
    stored = report["cells"][cell.key]
    assert verdicts.times(stored) == pytest.approx({"all": 0.0464, "auto": 0.02})
    assert verdicts.ratios(stored, "auto", "seconds", "all") == pytest.approx([2.32])
    assert verdicts.per_sample(stored, "all", "bytes") == 145_000


def test_auto_may_be_three_percent_behind_the_best():
    verdicts = scipy_parts("verdicts")
    cell = Cell("grid", "photos", 60.0, 0.5, 0.0, 4.0)
    others = {"none": [run_with(10, 1000)], "sophon": [run_with(8, 900)]}
    for seconds, holds in ((8.2, True), (8.3, False), (1.0, True)):
        report = report_with(cell, {**others, "auto": [run_with(seconds, 800)]})
        (check,) = verdicts.grid(report["cells"])
        assert check.holds is holds
    assert verdicts.best(report["cells"][cell.key]) == "auto"
    assert verdicts.behind(report["cells"][cell.key]) == 0.125
    report = report_with(cell, {"auto": [run_with(1, 1)]})
    assert verdicts.grid(report["cells"]) == []  # nobody to compare with


@pytest.mark.parametrize(
    ("seconds", "is_within", "is_told_apart"),
    [
        ([1.04], False, None),  # one seed has no interval
        ([1.02], True, None),
        ([1.04, 1.05, 1.06], False, False),  # 1.05 ± 0.025: may be 1.03
        ([1.00, 1.01, 1.03], True, False),  # 1.013 ± 0.038: may be more
        ([1.06, 1.06, 1.07], False, True),  # 1.063 ± 0.014: is beyond
        ([0.95, 0.96, 0.97], True, True),
        ([0.95, 1.05, 1.15], False, False),  # ± 0.25: may be anything,
        ([0.80, 1.05, 1.20], True, False),  # on either side
        ([1.05, 1.05, 1.05, 1.05, 1.05], False, True),  # no spread, and beyond
    ],
)
def test_the_plain_ratio_decides_and_the_interval_stands_beside_it(
    seconds, is_within, is_told_apart
):
    verdicts = scipy_parts("verdicts")
    cell = Cell("grid", "photos", 60.0, 0.5, 0.0, 4.0)
    runs = {
        "none": [run_with(100, 1000) for _ in seconds],
        "auto": [run_with(100 * s, 800) for s in seconds],
    }
    report = report_with(cell, runs)
    found = verdicts.judge(report["cells"][cell.key])
    assert found.is_within is is_within and found.is_told_apart is is_told_apart
    (check,) = verdicts.grid(report["cells"])
    assert check.holds is is_within and check.told.startswith(f"{is_within:d} of 1;")


def test_cells_that_are_not_told_apart_are_counted_on_both_sides():
    verdicts = scipy_parts("verdicts")
    cells = {}
    for link, seconds in (
        (25.0, [0.95, 1.05, 1.15]),
        (60.0, [1.2, 1.2, 1.2]),
        (150.0, [0.8, 1.05, 1.2]),
        (500.0, [0.5]),
    ):
        cell = Cell("grid", "photos", link, 0.5, 0.0, 4.0)
        runs = {"none": [run_with(1, 1)] * 3, "auto": [run_with(s, 1) for s in seconds]}
        cells |= report_with(cell, runs)["cells"]
    (check,) = verdicts.grid(cells)
    assert check.holds is False
    assert check.told == (
        "2 of 4; not told apart from 3 % are 1 of those within and 1 of those beyond, 1 have no interval; "
        "at worst 1.200 of the best other's time, grid/photos/60/0.5/0"
    )


def test_an_idle_job_sends_what_none_sends():
    verdicts = scipy_parts("verdicts")
    idle = replace(CELL, kind="idle")
    report = report_with(idle, {"none": [run_with(10, 1000)], "auto": [run_with(10.1, 700)]})
    loss, bytes_sent = verdicts.idle(report["cells"]["idle/photos"])
    assert loss.holds is True
    assert (
        loss.told
        == "101.0 % of its time (one seed), which does not tell it apart from 2 %, 70.0 % of the bytes of none"
    )
    assert bytes_sent.holds is False
    runs = {"none": [run_with(10, 1000)] * 2, "auto": [run_with(10.1, 995), run_with(10.2, 995)]}
    loss, bytes_sent = verdicts.idle(report_with(idle, runs)["cells"]["idle/photos"])
    assert loss.holds is True and bytes_sent.holds is True  # by the means
    of = "2 seeds, one run after another"
    unsure = "which does not tell it apart from 2 %"
    assert (
        loss.told
        == f"101.5 ± 6.4 % of its time ({of}), {unsure}, 99.5 ± 0.0 % of the bytes of none"
    )


def test_a_job_that_waits_for_its_own_processor_offloads_nothing_and_loses_nothing():
    verdicts = scipy_parts("verdicts")
    client = replace(CELL, kind="client", client=0.25)
    for seconds, sent, holds in ((5.0, 700, (True, False)), (10.3, 1000, (False, True))):
        runs = {"none": [run_with(10, 1000)], "auto": [run_with(seconds, sent)]}
        checks = verdicts.client(report_with(client, runs)["cells"]["client/photos"])
        assert tuple(check.holds for check in checks) == holds
    runs = {"none": [run_with(10, 1000)] * 3, "auto": [run_with(10.1, 1000)] * 3}
    stored = report_with(replace(client, is_beside=True), runs)["cells"]["client/photos"]
    assert verdicts.client(stored)[0].told.startswith(
        "101.0 ± 0.0 % of its time (3 pairs, both at once), 100.0"
    )


def test_a_tenth_is_compared_with_sophon_that_has_all():
    verdicts = scipy_parts("verdicts")
    tenth = replace(CELL, kind="tenth", quota=None, is_beside=True)
    theirs = [run_with(5, 500), run_with(5, 520)]
    report = report_with(tenth, {"sophon": theirs, "auto": [run_with(5, 400)] * 2})
    (check,) = verdicts.tenth(report, report["cells"]["tenth/photos"])
    assert check.holds is True and check.told.startswith("1.27 ± 0.32 times less (2 pairs, both")
    assert "KB a sample, 0.0100 cores;" in check.told
    report["cells"] |= report_with(CELL, {"none": [run_with(10, 900, storage=0.3)] * 2})["cells"]
    (check,) = verdicts.tenth(report, report["cells"]["tenth/photos"])
    assert "cores; to send files alone took 0.030 cores, 3.00 ms a sample (none)" in check.told


def test_a_tenth_is_told_apart_by_the_interval_and_decided_by_the_mean():
    verdicts = scipy_parts("verdicts")
    tenth = replace(CELL, kind="tenth", quota=None, is_beside=True)
    ours = [run_with(5, 400), run_with(5, 540), run_with(5, 480)]
    report = report_with(tenth, {"sophon": [run_with(5, 500)] * 3, "auto": ours})
    (check,) = verdicts.tenth(report, report["cells"]["tenth/photos"])
    assert check.holds is True and "does not tell them apart" in check.told
    report = report_with(tenth, {"sophon": [run_with(5, 400)] * 3, "auto": ours})
    (check,) = verdicts.tenth(report, report["cells"]["tenth/photos"])
    assert check.holds is False
    assert verdicts.tenth(report, report_with(tenth, {"auto": ours})["cells"]["tenth/photos"]) == []


def test_the_report_has_every_cell_and_the_paper():
    summary = scipy_parts("summary")
    cell = Cell("grid", "photos", 60.0, 0.5, 150.0, 4.0)
    runs = {
        "none": [run_with(10, 1000)] * 2,
        "sophon": [run_with(8, 500)] * 2,
        "auto": [run_with(2, 100)] * 2,
    }
    report = report_with(CELL, runs)
    report["cells"] |= report_with(cell, runs)["cells"]
    report["cells"] |= report_with(replace(cell, link=25.0), {})["cells"]
    report["cells"]["grid/photos/25/0.5/150"]["problems"]["none"] = "skipped: need root"
    text = summary.text(report)
    assert "| photos (the paper: OpenImages) | 2.2 | 2.00 | 10.00 |" in text
    assert "| 60 Mbit/s, 0.5 cores, device 150/s | 1.00 |" in text
    assert "| auto | 0.250 | yes | 0.250 ± 0.000 | yes |" in text
    assert "other programs used 0.10 cores beside both ends; more than 0.25 in 0 of" in text
    assert "runs, after 0 were repeated for that." in text
    assert "from 3.0 s after the start on (median of 4 runs; 3.0 s at most), in 4 of them" in text
    assert "`auto` began to count after 10.0 to 10.0 s, those of others after 10.0 to" in text
    assert "- skipped: need root: grid/photos/25/0.5/150" in text
    assert "Commit 1234567890ab." in text
    assert "10.00 ± 0.00" in text


def test_plots_are_drawn(tmp_path):
    scipy_parts("verdicts")
    pytest.importorskip("matplotlib")
    charts = importlib.import_module("bench.offload.charts")
    runs = {"none": [run_with(10, 1000)], "sophon": [run_with(8, 500)], "auto": [run_with(2, 100)]}
    report = report_with(CELL, runs)
    for link in (25.0, 60.0):
        cell = Cell("grid", "photos", link, 0.5, 0.0, 4.0)
        report["cells"] |= report_with(cell, runs)["cells"]
    charts.draw(report, tmp_path / "out.png")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out-grid.png", "out.png"]
