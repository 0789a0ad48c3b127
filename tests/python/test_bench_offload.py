"""bench.offload: two networks and the link between them, what is computed from runs, and what is not run again."""

import json
import os
import re
import struct
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from offload_rehearsal import CELL, Rehearsal, options_for

from offload_reports import report_with, run_with, scipy_parts

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import control_group  # noqa: E402
from bench.common import Unavailable  # noqa: E402
from bench.datasets import make_view  # noqa: E402
from bench.offload import __main__ as command  # noqa: E402
from bench.offload import caches, experiment, gauge, network, one_run, trainee  # noqa: E402
from bench.offload.digest import fingerprint  # noqa: E402
from bench.offload.expected import Forecast  # noqa: E402
from bench.offload.grid import (  # noqa: E402
    AMPLE,
    POLICIES,
    Cell,
    Length,
    cell_of,
    cells,
    chosen,
)
from bench.offload.network import STORAGE_IP, Counted, two_sites  # noqa: E402

SENDER = f"""
import socket
with socket.create_server(("{STORAGE_IP}", 7000)) as server:
    print("up", flush=True)
    connection, _ = server.accept()
    connection.sendall(bytes(500_000))
    connection.close()
"""
RECEIVER = f"""
import socket, time
connection = socket.create_connection(("{STORAGE_IP}", 7000))
begin, got = time.monotonic(), 0
while part := connection.recv(65536):
    got += len(part)
print(got, time.monotonic() - begin)
"""


@pytest.fixture
def sites():
    try:
        with two_sites() as found:
            yield found
    except Unavailable as reason:
        pytest.skip(str(reason))


def transfer(sites):
    """Bytes and seconds of half a megabyte from storage to compute."""
    words = sites.storage.command(sys.executable, "-c", SENDER)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as sender:
        try:
            assert sender.stdout.readline() == "up\n"
            words = sites.compute.command(sys.executable, "-c", RECEIVER)
            said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
        finally:
            sender.kill()
    return int(said[0]), float(said[1])


@pytest.mark.parametrize("mbit_per_s", [0, 100])
def test_what_crosses_the_link_is_counted_with_its_headers(sites, mbit_per_s):
    sites.limit(mbit_per_s)
    before = sites.to_compute(), sites.to_storage()
    assert transfer(sites)[0] == 500_000
    there, back = sites.to_compute() - before[0], sites.to_storage() - before[1]
    # Frames as a wire has them, each with its headers. How much is sent twice is the kernel's choice.
    headers = 14 + 20 + 32  # of Ethernet, IP and TCP
    assert there.packets >= 500_000 / (network.MTU - 20 - 32)
    assert (
        500_000 + headers * 500_000 / network.MTU
        < there.bytes
        <= there.packets * (network.MTU + 14)
    )
    assert 0 < back.packets * 42 <= back.bytes  # an ARP frame is the smallest


def test_a_link_is_never_faster_than_it_was_told(sites):
    sites.limit(8)
    burst = network._BURST_MIN
    assert transfer(sites)[1] >= (500_000 - 2 * burst) * 8e-6 / 8
    sites.limit(0)  # and the limit can be taken away
    sites.limit(0)
    assert transfer(sites)[0] == 500_000


def test_nothing_is_left_of_two_sites_whatever_happens():
    try:
        with two_sites() as found:
            pids = found.storage.pid, found.compute.pid
            raise KeyError
    except Unavailable as reason:
        pytest.skip(str(reason))
    except KeyError:
        assert not any(Path("/proc", str(pid)).exists() for pid in pids)


def test_a_namespace_ends_with_whoever_made_it(sites):
    """Also when that is killed and can do nothing any more."""
    script = (
        f"import sys, time; sys.path.insert(0, {str(ROOT)!r})\n"
        "from bench.offload.network import Namespace\n"
        "import subprocess\n"
        "site = Namespace()\n"
        "inside = subprocess.Popen(site.command('sleep', '600'))\n"
        "while open(f'/proc/{inside.pid}/comm').read() != 'sleep\\n':\n"
        "    time.sleep(0.01)  # before that nobody has told the kernel whose end is its own\n"
        "print(site.pid, inside.pid, flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as maker:
        pids = [int(word) for word in maker.stdout.readline().split()]
        maker.kill()
    deadline = time.monotonic() + 30
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_programs_run_on_their_own_sites_cores(sites):
    show = "import os; print(sorted(os.sched_getaffinity(0)))"
    for site, cpus in zip((sites.storage, sites.compute), network.shared_cores(), strict=True):
        words = site.command(sys.executable, "-c", show)
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        assert json.loads(said) == sorted(cpus)


def test_cores_are_shared_out_without_overlap(monkeypatch):
    for there, storage, compute in (({5}, {5}, {5}), ({0, 1}, {1}, {0}), ({1, 2, 7}, {7}, {1, 2})):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cpus=there: cpus)
        assert network.shared_cores() == (storage, compute)


def test_without_root_or_tools_it_says_so(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(network.shutil, "which", lambda tool: tool)
    with pytest.raises(Unavailable, match="need root"), two_sites():
        pass
    monkeypatch.setattr(network.shutil, "which", lambda tool: None if tool == "tc" else tool)
    with pytest.raises(Unavailable, match="no tc"), two_sites():
        pass


def test_a_quota_holds_from_the_first_instruction(sites, tmp_path):
    """A process that is started as the storage node is finds itself in the group."""
    try:
        group = control_group.ControlGroup("test")
    except Unavailable as reason:
        pytest.skip(str(reason))
    try:
        for cores in (0.1, 0.005, 1.0, 0.0, 0.1):  # one after another, as the kernel sees them
            group.set(cores)
        show = f"grep -c {group.path.name} /proc/self/cgroup"
        words = one_run.in_group(group, sites.storage.command("sh", "-c", show))
        assert subprocess.run(words, capture_output=True, text=True, check=False).stdout == "1\n"
    finally:
        group.remove()


def test_a_view_that_is_served_has_links_that_stay_inside(tmp_path, monkeypatch):
    from PIL import Image

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "source"
    source.mkdir()
    Image.new("RGB", (32, 24), "red").save(source / "a.jpg")
    Image.new("RGB", (32, 24), "blue").save(source / "b.jpg")

    def refuse(*_, **__):
        raise OSError

    for can_link in (True, False):
        if not can_link:
            monkeypatch.setattr(os, "link", refuse)
        view = make_view(source, 5, f"served{can_link}", is_served=True)
        files = sorted(p for p in (view.directory / "folder").rglob("*") if p.is_file())
        assert len(files) == view.images == 6
        assert not any(path.is_symlink() for path in files)
        assert not (view.directory / "all.tar").exists()


def test_fingerprints_tell_batches_apart():
    batch = np.arange(70_001, dtype=np.float32).reshape(1, -1)
    base = fingerprint(batch)
    assert fingerprint(batch.copy()) == base
    for place in (0, 5, 40_000, 69_999, 70_000):  # in rows, and in what is left after them
        flipped = batch.copy()
        flipped.view(np.uint8)[0, 4 * place] ^= 1
        assert fingerprint(flipped) != base
    swapped = batch.copy()
    swapped[0, :8192], swapped[0, 8192:16384] = batch[0, 8192:16384], batch[0, :8192]
    assert fingerprint(swapped) != base  # whole rows changed places
    assert fingerprint(batch.reshape(-1)) != base
    assert fingerprint(np.zeros((0, 3), np.float32)) != fingerprint(np.zeros((0, 4), np.float32))


def test_cells_have_names_of_their_own_and_are_chosen_by_them():
    every = list(cells("photos"))
    assert len({cell.key for cell in every}) == len(every) == 4 + 4 * 3 * 3
    assert [c.kind for c in every[:4]] == ["headline", "tenth", "idle", "client"]
    assert [c.seeds for c in every[:4]] == [5, 10, 5, 24] and {c.seeds for c in every[4:]} == {2}
    at_once = {(c.kind, c.link) for c in every if c.is_beside}
    assert at_once == {("tenth", 60), ("client", 500), ("grid", 25), ("grid", 60)}
    grid = [cell for cell in every if chosen(cell, ["grid/photos/60"])]
    assert len(grid) == 9 and all(cell.link == 60 for cell in grid)
    assert [c.key for c in every if chosen(c, ["headline"])] == ["headline/photos"]
    assert [c.key for c in every if chosen(c, ["*/25/0.1/0"])] == ["grid/photos/25/0.1/0"]
    assert not [c for c in every if chosen(c, ["grid/photos/6"])]  # no beginning of a number
    assert len([c for c in every if chosen(c, [])]) == len(every)
    full = list(cells("photos", is_full=True))
    assert {c.key for c in every} < {c.key for c in full}
    assert all(cell_of(json.loads(json.dumps(c.stored()))) == c for c in every)


FORECAST = Forecast("imagenet", 5000, 110e3, (1, 1))
GRID_CELL = Cell("grid", "imagenet", 60.0, 1.0, 0.0, 7.0, 32)


def test_a_run_is_expected_to_take_what_the_slowest_stage_takes():
    files = 110e3 * 8e-6 / 60  # seconds that a file is on the link
    assert FORECAST.sample_s(GRID_CELL, "none") == pytest.approx(files, rel=0.02)
    assert FORECAST.sample_s(replace(GRID_CELL, rate=10.0), "none") == pytest.approx(0.1)
    assert FORECAST.sample_s(GRID_CELL, "auto") < 0.5 * files
    for data, mean_bytes, share in (("imagenet", 110e3, 0.889), ("photos", 287e3, 0.485)):
        forecast = Forecast(data, 5000, mean_bytes, (1, 1))  # the smaller of pixels and file
        whole, smaller = (forecast.sample_s(GRID_CELL, policy) for policy in ("none", "sophon"))
        assert smaller / whole == pytest.approx(share, rel=0.03)
    starved = replace(GRID_CELL, quota=0.01)
    assert FORECAST.sample_s(starved, "all") > 3 * FORECAST.sample_s(GRID_CELL, "all")


def test_those_near_the_fastest_have_the_same_samples_and_others_fewer():
    lengths = {policy: FORECAST.length(GRID_CELL, policy) for policy in POLICIES}
    auto_s = FORECAST.sample_s(GRID_CELL, "auto")
    assert lengths["auto"].counted * 32 * auto_s == pytest.approx(7, abs=32 * auto_s)
    assert all(lengths[policy].counted < lengths["auto"].counted for policy in POLICIES[:4])
    slow = replace(GRID_CELL, rate=20.0)  # all wait for the device
    assert len({FORECAST.length(slow, policy).counted for policy in POLICIES}) == 1
    assert FORECAST.length(replace(GRID_CELL, link=1.0), "none").counted == 3  # never fewer


def test_where_time_is_short_those_that_may_be_the_fastest_have_another_seed():
    usual = replace(GRID_CELL, seeds=2)
    assert [FORECAST.seeds(usual, policy) for policy in POLICIES] == [1, 1, 1, 1, 1, 2]
    slow = replace(usual, rate=20.0)  # all wait for the device
    assert {p for p in POLICIES if FORECAST.seeds(slow, p) == 2} == {"none", "sophon", "auto"}
    assert {FORECAST.seeds(replace(usual, seeds=5), policy) for policy in POLICIES} == {5}


def test_the_usual_grid_runs_the_second_seed_of_some_alone(tmp_path, monkeypatch):
    cell = Cell("grid", "photos", 60.0, 1.0, 20.0, 1.0, 32, POLICIES, 2)
    options = command.parse(["--json", str(tmp_path / "out.json")])
    bench = Rehearsal(options, monkeypatch, [cell])
    assert {policy for policy, seed in bench.policies() if seed == 0} == set(POLICIES)
    assert {policy for policy, seed in bench.policies() if seed} == {"none", "sophon", "auto"}


def test_all_policies_warm_up_for_the_same_time(tmp_path, monkeypatch):
    close = Cell("grid", "photos", 60.0, 1.0, 0.0, 7.0, 32, POLICIES, 1)
    bench = Rehearsal(options_for(tmp_path), monkeypatch, [close, CELL])
    for batch_size, warm_s in ((32, 7.0), (64, 10.0)):
        runs = [run for run in bench.ran if run.policy and run.batch_size == batch_size]
        assert {run.warm_s for run in runs} == {warm_s}
    assert {run.warm_s for run in bench.ran if run.policy is None} == {0}  # all that may be needed
    whole = Forecast("photos", 5000, 287e3, (1, 1))
    for policy in POLICIES:
        for cell in (replace(close, link=25.0), close, replace(close, link=500.0)):
            most_s = whole.length(cell, policy).warm * 32 * whole.sample_s(cell, policy)
            assert most_s >= 7  # there are enough batches for that


class Warming:
    """A loader that takes `pace(n)` seconds for its n-th batch, and is fed `ahead` of that."""

    def __init__(self, pace, seconds, least=1, batches=1000, ahead=4):
        self.now, self.got, n_fed, is_over = 0.0, [], 0, False
        every = list(range(batches))
        ids = trainee.warming(every, seconds, least, self.got, lambda: self.now)
        while not is_over or n_fed > len(self.got):
            while not is_over and n_fed - len(self.got) <= ahead:
                is_over = next(ids, None) is None
                n_fed += not is_over
            if n_fed > len(self.got):
                self.now += pace(len(self.got))
                self.got.append(self.now)


def test_warming_up_ends_when_its_time_is_over():
    for pace in (0.01, 0.1, 0.5, 1.0):
        assert Warming(lambda _, s=pace: s, 10).now == pytest.approx(10, abs=2 * pace)
    # The first batch is slow, and one on the way: neither says how long the next ones take.
    assert Warming(lambda n: 0.2 if n else 3.0, 10).now == pytest.approx(10, abs=0.5)
    assert Warming(lambda n: 2.0 if n == 10 else 0.2, 10).now == pytest.approx(10, abs=0.5)
    assert len(Warming(lambda _: 4.0, 10, batches=3).got) == 3  # as many as a slow link needs
    assert len(Warming(lambda _: 1.0, 3, least=7).got) == 7
    assert len(Warming(lambda _: 1.0, 0, batches=50).got) == 50


def test_a_whole_epoch_has_every_sample():
    headline = Cell("headline", "imagenet", 60.0, AMPLE, 0.0, 0.0)
    lengths = {policy: FORECAST.length(headline, policy) for policy in POLICIES}
    whole = lengths["auto"]
    assert whole.counted == 79  # 78 of 64 and one of 8
    assert {lengths[policy].counted for policy in ("none", "sophon")} == {79}
    for policy in ("all", "resize", "fastflow"):  # of these a part tells enough
        batch_s = 64 * FORECAST.sample_s(headline, policy)
        assert lengths[policy].counted * batch_s == pytest.approx(15, abs=batch_s)
    ids = trainee.ids_of(5000, 1, 0, 64, whole.counted)
    assert sorted(np.concatenate(ids)) == list(range(5000))


class Planned(experiment.Experiment):
    """An experiment of the usual data that goes as expected."""

    def __init__(self, words, report, prepared):
        super().__init__(command.parse(words), report)
        self._prepared = prepared
        for name, images, mean_bytes in (("imagenet", 5000, 110e3), ("photos", 5040, 287e3)):
            self.forecasts[name] = Forecast(name, images, mean_bytes, (1, 1))
            self.cells += [cell for cell in cells(name) if chosen(cell, self._options.only)]

    def _is_prepared(self, name, policy):
        return (name, policy) in self._prepared

    def go(self):
        """How many minutes it takes; then it is done."""
        turns = list(self.turns())
        seconds = sum(map(self.turn_s, turns)) + self.before_s(turns)
        for turn in turns:
            length = self._needed(turn.cell.data, turn.cell.batch_size)
            key = f"{turn.cell.data}/{turn.cell.batch_size}/{turn.seed}"
            self.report["references"][key] = [[0] * length.warm, [0] * length.counted]
            for policy in turn.policies:
                self.stored(turn.cell)["runs"].setdefault(policy, {})[str(turn.seed)] = {}
        self._prepared.update(experiment.learners(turns))
        return seconds / 60, len(turns)


def test_the_manuals_parts_take_the_minutes_it_says_and_45_at_most():
    """One after another, on two cores, if all goes as expected; together they are everything."""
    manual = (ROOT / "bench" / "README.md").read_text()
    parts = re.findall(r"\$P (--only \S+(?: --seeds \d+)?) --json \S+ +# (\d+) min", manual)
    report, prepared, total = {"cells": {}, "references": {}}, set(), 0
    for words, minutes in parts:
        takes, runs = Planned(words.split(), report, prepared).go()
        assert runs and takes == pytest.approx(int(minutes), abs=1) and takes < 45
        total += takes
    assert Planned([], report, prepared).go() == (0, 0)
    assert "some 215 minutes" in manual and total == pytest.approx(215, abs=5)


def test_the_list_has_what_is_left_to_do_and_how_long_that_takes(capsys):
    report, prepared = {"cells": {}, "references": {}}, set()
    words = ["--only", "idle/photos"]
    command.show_cells(Planned(words, report, prepared))
    told = capsys.readouterr().out.splitlines()
    minutes, runs = Planned(words, report, prepared).go()
    assert told[0].split()[:5] == ["idle/photos", told[0].split()[1], "min", "10", "runs"]
    assert told[-1].split()[:4] == ["all", f"{minutes:.1f}", "min", str(runs)]
    assert minutes > 10 * (2 + 10 + 20) / 60  # all that a run has, and what goes before
    command.show_cells(Planned(words, report, prepared))
    assert "nothing to do" in capsys.readouterr().out


def mark(sent, storage, compute, busy):
    return one_run.Mark(Counted(sent, sent // 9000), Counted(0, 0), storage, compute, busy)


def test_figures_are_of_the_counted_part_alone():
    run = one_run.Run(Path(), "auto", 3, Length(1, 2))
    noted = {
        "begin": 9.0,
        "first": 9.75,
        "start": 10.0,
        "done": 12.25,
        "asked": [10.0, 12.0],
        "got": [10.5, 12.25],
        "samples": 100,
        "digests": [[1], [2, 3]],
        "shares": [(9.75, 0.0), (10.5, 0.9), (12.25, 1.0)],
        "version": "1",
        "about": {},
    }
    begin, end = mark(1000, 1.0, 2.0, 50.0), mark(91_000, 1.5, 3.0, 53.75)
    found = one_run.figures(run, begin, end, noted)
    assert found["seconds"] == 2.25
    assert found["bytes"] == 90_000 and found["packets"] == 10
    assert (found["storage_cpu_s"], found["compute_cpu_s"]) == (0.5, 1.0)
    assert found["wait_s"] == 0.75
    assert found["first_batch_s"] == 0.75
    assert found["samples"] == 100
    assert (found["warm_s"], found["share"], found["settled_s"]) == (1.0, 0.95, 0.75)
    assert found["other_cores"] == pytest.approx((3.75 - 1.5) / 2.25)
    # Two batches from the begin on: the one that warmed up, and the first that counts.
    assert found["cold_s"] == 1.5
    # With a device: both batches at the pace of the second.
    paced = one_run.figures(replace(run, rate=60.0), begin, end, noted)
    assert (paced["seconds"], paced["elapsed_s"]) == (3.5, 2.25)
    noted["digests"][0] = [1, 1]  # so many that what counts is not needed: that says nothing
    assert "cold_s" not in one_run.figures(run, begin, end, noted)


def test_what_was_measured_is_not_measured_again(tmp_path, monkeypatch):
    options = options_for(tmp_path)
    bench = Rehearsal(options, monkeypatch, [CELL])
    assert sorted(bench.policies()) == [("auto", 0), ("auto", 1), ("none", 0), ("none", 1)]
    assert len(bench.ran) == 6  # with a local run for each seed
    assert Rehearsal(options, monkeypatch, [CELL]).ran == []
    more = Rehearsal(options_for(tmp_path, "--seeds", "3"), monkeypatch, [CELL])
    assert {run.seed for run in more.ran} == {2}


def test_every_run_begins_with_what_its_own_policys_first_epoch_has_left(tmp_path, monkeypatch):
    """Whatever those before it came to know; that epoch has crops that no run has."""
    found = []

    def figures(run):
        places = [caches.live(site) / "profile" for site in (caches.STORAGE, caches.COMPUTE)]
        if run.policy is not None:
            known = {place.read_text() if place.exists() else None for place in places}
            found.append((run.policy, known))
            for place in places:
                place.write_text(f"{run.policy} {run.seed}")
        return {}

    cell = replace(CELL, policies=("none", "sophon", "auto"))
    bench = Rehearsal(options_for(tmp_path), monkeypatch, [cell], figures)
    assert [first.policy for first in bench.first] == ["auto", "sophon"]
    (seed,) = {first.seed for first in bench.first}
    assert seed not in {run.seed for run in bench.ran}
    assert {first.link for first in bench.first} == {CELL.link}
    assert all(first.length.counted * 64 >= 640 for first in bench.first)
    assert found[:2] == [("auto", {None}), ("sophon", {None})]
    kept = {"auto": f"auto {seed}", "sophon": f"sophon {seed}", "none": f"auto {seed}"}
    assert len(found) == 2 + 6 and all(known == {kept[policy]} for policy, known in found[2:])
    assert bench.report["first"] == {"photos/auto": 3.0, "photos/sophon": 3.0}
    more = Rehearsal(options_for(tmp_path, "--seeds", "3"), monkeypatch, [cell], figures)
    assert more.first == [] and len(found) == 8 + 3  # they are kept for later commands
    assert all(known == {kept[policy]} for policy, known in found[8:])
    monkeypatch.setattr(experiment, "build", lambda: "another")
    again = Rehearsal(options_for(tmp_path, "--mixed", "--seeds", "4"), monkeypatch, [cell])
    assert len(again.first) == 2  # which may have learned otherwise


def test_how_long_first_epochs_took_is_in_every_report(tmp_path, monkeypatch):
    """Also where they were run for another one."""
    Rehearsal(options_for(tmp_path), monkeypatch, [CELL])
    options = options_for(tmp_path)
    options.json = tmp_path / "another.json"
    bench = Rehearsal(options, monkeypatch, [CELL])
    assert bench.first == [] and bench.report["first"] == {"photos/auto": 3.0}


def test_local_runs_leave_nothing_for_remote_ones(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(one_run, "program", Path)
    plain = type("Site", (), {"command": lambda self, *words: list(words)})()
    used = []
    for policy in (None, "auto"):
        run = one_run.Run(tmp_path, policy, 0, Length(1, 1))
        _, env = one_run._trainee(network.Sites(plain, plain), run, None)
        used.append(Path(env["PENSTOCK_CACHE"]))
    assert used == [caches.live(caches.LOCAL), caches.live(caches.COMPUTE)] and used[0] != used[1]


def test_quick_runs_begin_with_nothing(tmp_path, monkeypatch):
    quick = options_for(tmp_path, "--quick")
    found = []

    def figures(run):
        place = caches.live(caches.COMPUTE) / "profile"
        if run.policy is not None:
            found.append(place.exists())
            place.touch()
        return {}

    assert Rehearsal(quick, monkeypatch, [CELL], figures).first == []
    assert found == [False] * 4


def test_without_a_first_epoch_nothing_is_measured(tmp_path, monkeypatch):
    def figures(run):
        return {"failed": "no memory"} if run.is_kept else {}

    with pytest.raises(SystemExit, match="no epoch of auto to begin with: failed: no memory"):
        Rehearsal(options_for(tmp_path), monkeypatch, [CELL], figures)
    assert Rehearsal(options_for(tmp_path), monkeypatch, [CELL]).first  # nothing was kept of it


class Noise:
    """Figures of `auto` with seed 1, one after another; all else is quiet."""

    def __init__(self, *figures):
        self.figures = list(figures)

    def __call__(self, run):
        return self.figures.pop(0) if (run.policy, run.seed) == ("auto", 1) else {}


def test_a_run_that_others_disturbed_is_repeated_and_the_quietest_counts(tmp_path, monkeypatch):
    noise = Noise(*({"other_cores": cores, "seconds": 10 * cores} for cores in (0.9, 0.4, 0.6)))
    bench = Rehearsal(options_for(tmp_path), monkeypatch, [CELL], noise)
    runs = bench.report["cells"]["headline/photos"]["runs"]["auto"]
    assert (runs["1"]["seconds"], runs["1"]["tries"], runs["1"]["equal"]) == (4.0, 3, True)
    assert (runs["0"]["seconds"], runs["0"]["tries"]) == (2.0, 1)
    assert bench.policies().count(("auto", 1)) == 3


def test_a_quiet_repeat_is_the_last(tmp_path, monkeypatch):
    noise = Noise({"other_cores": 0.9}, {"other_cores": 0.2})
    Rehearsal(options_for(tmp_path), monkeypatch, [CELL], noise)
    assert noise.figures == []
    noise = Noise({"other_cores": 0.9})
    (tmp_path / "once").mkdir()
    Rehearsal(options_for(tmp_path / "once", "--retries", "0"), monkeypatch, [CELL], noise)


def test_repeating_hides_no_failure_and_no_difference(tmp_path, monkeypatch):
    noise = Noise({"other_cores": 0.9}, {"failed": "crashed"})
    bench = Rehearsal(options_for(tmp_path), monkeypatch, [CELL], noise)
    stored = bench.report["cells"]["headline/photos"]
    assert stored["problems"] == {"auto": "failed: crashed"} and "1" not in stored["runs"]["auto"]
    wrong = {"other_cores": 0.9, "digests": [[9], [9]]}
    bench = Rehearsal(options_for(tmp_path), monkeypatch, [CELL], Noise(wrong, {}))
    run = bench.report["cells"]["headline/photos"]["runs"]["auto"]["1"]
    assert run["equal"] is False and run["other_cores"] == 0.1


def test_what_was_interrupted_goes_on_where_it_was(tmp_path, monkeypatch):
    def figures(run):
        if (run.policy, run.seed) == ("none", 1):
            raise KeyboardInterrupt
        return {}

    options = options_for(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        Rehearsal(options, monkeypatch, [CELL], figures)
    again = Rehearsal(options, monkeypatch, [CELL])
    assert again.policies() == [("none", 1)]


def test_no_run_is_begun_that_would_end_too_late(tmp_path, monkeypatch, capsys):
    options = options_for(tmp_path, "--minutes", "0.00001")
    assert Rehearsal(options, monkeypatch, [CELL]).ran == []
    assert "no time for headline/photos none seed 0" in capsys.readouterr().err


def test_each_cell_has_its_own_number_of_seeds(tmp_path, monkeypatch):
    options = command.parse(["--json", str(tmp_path / "out.json")])
    grid = replace(CELL, kind="grid", quota=1.0, seeds=1)
    bench = Rehearsal(options, monkeypatch, [CELL, grid])
    assert len(bench.policies()) == 2 * 5 + 2


def test_a_file_of_other_settings_is_not_added_to(tmp_path, monkeypatch):
    options = options_for(tmp_path)
    Rehearsal(options, monkeypatch, [CELL])
    with pytest.raises(SystemExit, match="measured otherwise"):
        Rehearsal(options, monkeypatch, [replace(CELL, seconds=5.0)])
    with pytest.raises(SystemExit, match="other settings"):
        command.fresh(options_for(tmp_path, "--quick"))


def test_runs_of_another_build_are_not_added_unless_wanted(tmp_path, monkeypatch):
    for module in (command, experiment):
        monkeypatch.setattr(module, "build", lambda: "first")
    bench = Rehearsal(options_for(tmp_path), monkeypatch, [CELL])
    assert experiment.builds_of(bench.report) == {"first"}
    for module in (command, experiment):
        monkeypatch.setattr(module, "build", lambda: "second")
    with pytest.raises(SystemExit, match=r"different builds \(first, second\)"):
        command.fresh(options_for(tmp_path))
    more = options_for(tmp_path, "--mixed", "--seeds", "3")
    assert experiment.builds_of(Rehearsal(more, monkeypatch, [CELL]).report) == {"first", "second"}
    # A report of several files is one report, too.
    with pytest.raises(SystemExit, match="different builds"):
        command.need_one_build({"first", "second"}, options_for(tmp_path))
    command.need_one_build({"first", "second"}, more)


def test_every_run_is_compared_with_the_local_stream(tmp_path, monkeypatch):
    def figures(run):
        wrong = [[1] * run.length.warm, [9] * run.length.counted]
        return {"digests": wrong} if run.policy == "auto" and run.seed == 1 else {}

    bench = Rehearsal(options_for(tmp_path), monkeypatch, [CELL], figures)
    runs = bench.report["cells"]["headline/photos"]["runs"]
    assert [runs["auto"][seed]["equal"] for seed in "01"] == [True, False]
    assert [runs["none"][seed]["equal"] for seed in "01"] == [True, True]
    assert "digests" not in runs["none"]["0"]


def test_a_run_that_failed_is_tried_again_next_time(tmp_path, monkeypatch):
    def figures(run):
        is_measured = run.policy == "auto" and not run.is_kept
        return {"failed": "ended: no memory"} if is_measured else {}

    bench = Rehearsal(options_for(tmp_path), monkeypatch, [CELL], figures)
    stored = bench.report["cells"]["headline/photos"]
    assert stored["problems"] == {"auto": "failed: ended: no memory"}
    again = Rehearsal(options_for(tmp_path), monkeypatch, [CELL])
    assert {run.policy for run in again.ran} == {"auto"}
    assert again.report["cells"]["headline/photos"]["problems"] == {}


def test_a_tenth_of_the_cpu_is_that_of_the_headline(tmp_path, monkeypatch):
    tenth = replace(CELL, kind="tenth", quota=None, policies=("sophon", "auto"), is_beside=True)
    bench = Rehearsal(options_for(tmp_path), monkeypatch, [tenth])
    assert "headline/photos has to be measured first" in str(bench.report["cells"])
    bench = Rehearsal(options_for(tmp_path), monkeypatch, [CELL, tenth])
    assert bench.quota(tenth) == pytest.approx(0.05)  # a second in two, by ten
    assert bench.quota(CELL) == AMPLE
    ours, rival = sorted(bench.ran[-2:], key=lambda run: run.policy)  # at once
    assert ours.policy == "auto" and ours.quota == pytest.approx(0.05)
    assert rival.policy == "sophon" and rival.quota == AMPLE and rival.lane != ours.lane
    assert rival.length == ours.length and rival.seed == ours.seed
    runs = bench.report["cells"]["tenth/photos"]["runs"]
    assert {p: next(iter(of.values()))["quota"] for p, of in runs.items()} == {
        "auto": pytest.approx(0.05),
        "sophon": AMPLE,
    }


def test_near_wins_and_near_losses_are_run_again_alike(tmp_path, monkeypatch):
    scipy_parts("verdicts")
    ours = {25.0: 1.0, 60.0: 1.9, 150.0: 2.2, 500.0: 2.4}  # far ahead, a little, behind, far
    cell = Cell("grid", "photos", 60.0, 1.0, 0.0, 1.0, 32, ("none", "all", "auto"), 1)
    every = [replace(cell, link=link) for link in ours]

    def figures(run):
        seconds = {"none": 2.0, "all": 3.0, "auto": ours.get(run.link)}
        return {"seconds": seconds.get(run.policy, 1.0)}

    def options(*more):
        return command.parse(["--json", str(tmp_path / "out.json"), *more])

    Rehearsal(options(), monkeypatch, every, figures)
    again = Rehearsal(options("--close"), monkeypatch, every, figures)
    assert {(run.link, run.policy) for run in again.ran if run.policy} == {
        (link, policy) for link in (60.0, 150.0) for policy in ("none", "auto")
    }
    assert {run.seed for run in again.ran} == {1, 2, 3, 4}


def test_the_best_rival_has_all_seeds_in_the_end(tmp_path, monkeypatch):
    """`none` was the best other with one seed, is not with three, and the next best is `all`."""
    verdicts = scipy_parts("verdicts")
    cell = Cell("grid", "photos", 60.0, 1.0, 0.0, 1.0, 32, ("none", "all", "resize", "auto"), 1)

    def figures(run):
        seconds = {"none": 2.0 if run.seed == 0 else 4.0, "all": 2.05, "resize": 9.0}
        return {"seconds": seconds.get(run.policy, 2.0)}

    def options(*more):
        return command.parse(["--json", str(tmp_path / "out.json"), *more])

    Rehearsal(options(), monkeypatch, [cell], figures)
    again = Rehearsal(options("--close", "--seeds", "3"), monkeypatch, [cell], figures)
    stored = again.report["cells"][cell.key]
    assert verdicts.best_other(stored) == "all" and len(stored["runs"]["all"]) == 3
    assert len(stored["runs"]["resize"]) == 1
    assert again.policies()[-2:] == [("all", 1), ("all", 2)]


def test_a_rival_that_fails_is_not_tried_for_ever(tmp_path, monkeypatch):
    scipy_parts("verdicts")
    cell = Cell("grid", "photos", 60.0, 1.0, 0.0, 1.0, 32, ("none", "auto"), 1)

    def figures(run):
        return {"failed": "no memory"} if run.policy == "none" and run.seed else {}

    def options(*more):
        return command.parse(["--json", str(tmp_path / "out.json"), *more])

    Rehearsal(options(), monkeypatch, [cell], figures)
    again = Rehearsal(options("--close", "--seeds", "2"), monkeypatch, [cell], figures)
    assert sorted(again.policies()) == [("auto", 1), ("none", 1)]


def test_parts_are_joined_and_the_later_counts(tmp_path):
    def part(policy, seconds, cell=CELL):
        return report_with(cell, {policy: [run_with(seconds, 1000)]})

    first = {**part("none", 10), "first": {"photos/auto": 3.0}}
    report = experiment.joined([first, part("auto", 5), part("auto", 4)])
    assert report["first"] == {"photos/auto": 3.0}
    runs = report["cells"]["headline/photos"]["runs"]
    assert runs["none"]["0"]["seconds"] == 10 and runs["auto"]["0"]["seconds"] == 4
    # First epochs are those that stand beside the headline, not those before other runs.
    grid = {**part("none", 1, replace(CELL, kind="grid", quota=1.0)), "first": {"photos/auto": 9.0}}
    for parts in ([first, grid], [grid, first]):
        assert experiment.joined(parts)["first"] == {"photos/auto": 3.0}
    assert experiment.joined([grid])["first"] == {"photos/auto": 9.0}
    failed = part("auto", 5)
    failed["cells"]["headline/photos"] |= {"runs": {}, "problems": {"auto": "failed: x"}}
    problems = experiment.joined([failed, part("auto", 4)])["cells"]["headline/photos"]["problems"]
    assert problems == {}
    with pytest.raises(SystemExit, match="measured otherwise"):
        experiment.joined([part("none", 1), part("none", 1, replace(CELL, link=1.0))])


def test_in_the_client_cell_the_processor_is_what_is_slow(tmp_path, monkeypatch):
    for data, mean_bytes in (("imagenet", 110e3), ("photos", 287e3)):
        forecast = Forecast(data, 5000, mean_bytes, (1, 1))
        (cell,) = [cell for cell in cells(data) if cell.kind == "client"]
        link_s = mean_bytes * 8e-6 / cell.link
        assert forecast.sample_s(cell, "none") > 2 * link_s
    bench = Rehearsal(options_for(tmp_path), monkeypatch, [replace(cell, data="photos")])
    assert {run.client for run in bench.ran if run.policy} == {0.125}
    assert {run.client for run in bench.ran if not run.policy} == {0}  # no need to wait for it


def test_both_ends_may_have_a_quota(sites, tmp_path):
    """Each in a group of its own, from the first instruction on."""
    show = "cat /proc/self/cgroup"
    try:
        with ExitStack() as exits:
            words = [
                one_run.under_quota(exits, site, 0.1, of.command("sh", "-c", show))
                for site, of in (("storage", sites.storage), ("compute", sites.compute))
            ]
            said = [
                subprocess.run(command, capture_output=True, text=True, check=False).stdout
                for command in words
            ]
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert "-storage\n" in said[0] and "-compute\n" in said[1]
    assert one_run.under_quota(ExitStack(), "compute", 0.0, ["true"]) == ["true"]


def frame(status=0, body=b"x" * 60, magic=b"PENF"):
    return struct.pack("<4sIQiIIII", magic, 0, 7, status, len(body), 0, 0, 0) + body


def test_a_profile_is_taken_from_frames():
    assert [len(body) for body in gauge.bodies(frame() + frame(body=b""))] == [60, 0]
    assert list(gauge.bodies(b"")) == []
    for cut in (1, 35, 50, 95):
        with pytest.raises(gauge.Refused, match="cut off"):
            list(gauge.bodies(frame()[:cut]))
    with pytest.raises(gauge.Refused, match="cut off"):
        list(gauge.bodies(frame(magic=b"PENX")))
    with pytest.raises(gauge.Refused, match="sample 7: no such"):
        list(gauge.bodies(frame(-2, b"no such")))


def test_a_profile_is_taken_from_a_node(tmp_path, monkeypatch):
    """A node of ours is asked as gauge.py understands the protocol."""
    pytest.importorskip("penstock")
    from PIL import Image

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data" / "class").mkdir(parents=True)
    noise = np.random.default_rng(1).integers(0, 255, (300, 400, 3), np.uint8)
    for index in range(3):
        Image.fromarray(noise // (index + 1)).save(tmp_path / "data" / "class" / f"{index}.jpg")
    try:
        lines = list(gauge.measure(tmp_path / "data", samples=2, crops=2))
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert [line["sample"] for line in lines] == [0, 0, 1, 1]
    assert lines[0]["cut"] != lines[1]["cut"]  # another crop
    for line in lines:
        assert line["cut"] < line["raw"] and line["fewest"] <= line["pixels"] == 3 * 224 * 224
        assert line["storage_ms"]["pixels"] > line["storage_ms"]["raw"] > 0
        assert line["coded"] > 0


def test_a_nodes_processor_time_is_that_of_its_threads():
    before = gauge.node_cpu_s(os.getpid())
    deadline = time.monotonic() + 30
    while gauge.node_cpu_s(os.getpid()) <= before:  # the kernel adds it up from time to time
        assert time.monotonic() < deadline
        sum(range(200_000))


def test_an_epochs_batches_have_each_sample_once_in_an_order_of_the_seeds():
    whole = trainee.ids_of(100, 1, 0, 32, 3)
    assert [len(ids) for ids in whole] == [32, 32, 32]
    assert len({int(i) for ids in whole for i in ids}) == 96
    first = trainee.ids_of(100, 1, 0, 32, 1)
    assert first[0].tolist() == whole[0].tolist()  # a part is the epoch's beginning
    for other in (trainee.ids_of(100, 2, 0, 32, 1), trainee.ids_of(100, 1, 1, 32, 1)):
        assert other[0].tolist() != whole[0].tolist()


def test_more_of_the_local_stream_may_be_known_than_a_run_has():
    assert experiment.is_same([[1], [2, 3]], [[1, 9], [2, 3, 9]])
    assert not experiment.is_same([[1], [2, 3]], [[1], [2]])
    assert not experiment.is_same([[1], [2]], [[2], [2]])


def test_the_loop_on_a_folder_says_when_it_begins_and_ends(tmp_path):
    """The whole of trainee.py, without a node."""
    pytest.importorskip("penstock")
    from PIL import Image

    (tmp_path / "class").mkdir()
    for index in range(6):
        Image.new("RGB", (40, 30), (index * 40, 0, 0)).save(tmp_path / "class" / f"{index}.jpg")
    words = [sys.executable, "-m", "bench.offload.trainee", str(tmp_path), "--batch-size", "2"]
    words += ["--warm", "1", "--batches", "3"]
    env = {**os.environ, "PENSTOCK_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        words, cwd=ROOT, input="go\ngo\n", capture_output=True, text=True, check=True, env=env
    )
    *said, last = done.stdout.splitlines()
    assert [line.split()[0] for line in said] == ["ready", "first", "count", "done"]
    noted = json.loads(last)
    assert [len(part) for part in noted["digests"]] == [1, 3]
    assert float(said[2].split()[1]) <= noted["start"] <= noted["asked"][0]
    assert float(said[3].split()[1]) == noted["got"][-1]
