"""Knobs, policies, telemetry and the verdict, from Python."""

import copy
import json
import random
import threading

import numpy as np
import pytest

import penstock


@pytest.fixture
def loader(folder, ops):
    with penstock.Loader(folder, ops, 4, shuffle=True, seed=11) as loader:
        yield loader


@pytest.fixture
def reference(folder, ops, digests):
    with penstock.Loader(folder, ops, 4, shuffle=True, seed=11, num_workers=0) as loader:
        return [digests(loader) for _ in range(3)]


def test_knobs_are_attributes_and_a_mapping(loader):
    knobs = loader.knobs
    ready = knobs.ready_batches
    assert ready == knobs["ready_batches"] == dict(knobs)["ready_batches"] >= 2
    knobs.workers = 1
    assert loader.knobs.workers == 1
    knobs["io"] = 7
    assert knobs.io == 7
    assert list(knobs) == knobs.keys() and len(knobs) == 11
    assert "workers=1 (pinned)" in repr(knobs)


def test_numbers_of_numpy_are_numbers(loader):
    loader.knobs.io = np.int64(7)
    assert loader.knobs.io == 7
    loader.knobs.shares = np.array([0.5, 0.25, 0, 0.25])
    assert loader.knobs.shares == (0.5, 0.25, 0, 0.25)
    for value in (True, np.True_, None, [1]):
        with pytest.raises(TypeError, match="io must be a number"):
            loader.knobs.io = value


def test_a_copy_turns_the_same_knobs(loader):
    copy.copy(loader.knobs).io = 7
    assert loader.knobs.io == 7
    with pytest.raises(AttributeError):
        penstock.knobs.Knobs.__new__(penstock.knobs.Knobs).io  # noqa: B018


def test_setting_pins_and_auto_releases(loader):
    knobs = loader.knobs
    assert not knobs.table()["workers"].is_pinned
    knobs.set(workers=2, read_ahead=4)
    assert knobs.table()["workers"].is_pinned and knobs.table()["read_ahead"].is_pinned
    knobs.workers = "auto"
    assert not knobs.table()["workers"].is_pinned
    assert knobs.table()["read_ahead"].is_pinned


def test_arguments_pin_their_knobs(folder, ops):
    with penstock.Loader(folder, ops, num_workers=2, prefetch=3) as loader:
        table = loader.knobs.table()
        assert {name for name in table if table[name].is_pinned} == {"workers", "ready_batches"}
        assert (table["workers"].min, table["workers"].unit) == (1, "threads")


def test_shares_are_four_numbers_that_sum_to_one(loader):
    knobs = loader.knobs
    assert knobs.shares is None
    knobs.shares = (0.5, 0.25, 0, 0.25)
    assert knobs.shares == (0.5, 0.25, 0, 0.25)
    with pytest.raises(penstock.InvalidError, match="sum of shares"):
        knobs.shares = (0.5, 0.25, 0, 0)
    with pytest.raises(ValueError, match="four numbers"):
        knobs.shares = (0.5, 0.5)
    knobs.set(shares=None)
    assert knobs.shares is None


def test_what_cannot_be_set_is_refused(loader):
    knobs = loader.knobs
    with pytest.raises(penstock.InvalidError, match="workers must be 1 to"):
        knobs.workers = 0
    with pytest.raises(penstock.InvalidError, match="read_ahead"):
        knobs.set(workers=1, read_ahead=-1)
    assert knobs.read_ahead == 0
    with pytest.raises(TypeError, match="workers must be a number"):
        knobs.workers = "many"
    with pytest.raises(AttributeError, match="no knob 'worker'"):
        knobs.worker = 1
    with pytest.raises(AttributeError, match="no knob 'worker'"):
        _ = knobs.worker
    with pytest.raises(ValueError, match="no knob 'worker'"):
        knobs.set(worker=1)
    with pytest.raises(ValueError, match="no knob 'worker'"):
        knobs.set(worker="auto")
    with pytest.raises(ValueError, match="NaN"):
        knobs.workers = float("nan")
    loader.close()
    with pytest.raises(penstock.InvalidError, match="closed"):
        knobs.workers = 1


@pytest.mark.parametrize("policy", ["fixed", "rules", "hillclimb", "model"])
def test_policies_change_no_byte(folder, ops, digests, reference, policy, tmp_path):
    log = tmp_path / "decisions.jsonl"
    options = {"seed": 11, "policy": policy, "decision_log": log}
    with penstock.Loader(folder, ops, 4, shuffle=True, **options) as loader:
        assert loader.policy == policy
        assert [digests(loader) for _ in range(3)] == reference
        while not log.read_text():
            next(iter(loader))
    for line in map(json.loads, log.read_text().splitlines()):
        assert line["policy"] == policy
        assert set(line["state"]) >= {"wait_share", "decode_s", "cores"}
        assert set(line["knobs"]) == set(line["decision"]) == set(line["limits"])


def test_turning_and_switching_meanwhile_changes_no_byte(loader, digests, reference):
    is_over = threading.Event()

    def turn():
        rng = random.Random(3)
        while not is_over.is_set():
            most = int(loader.knobs.table()["workers"].max)
            loader.knobs.set(
                workers=rng.randint(1, most),
                ready_batches=rng.randint(1, 6),
                read_ahead=rng.randint(0, 20),
                io=rng.randint(1, 9),
                shares=rng.choice([None, (0.25, 0.25, 0.25, 0.25)]),
            )
            loader.policy = rng.choice(["fixed", "rules", "hillclimb", "model"])
            loader.telemetry()
            loader.verdict()

    thread = threading.Thread(target=turn)
    thread.start()
    try:
        for _ in range(10):
            loader.set_epoch(0)
            assert [digests(loader) for _ in range(3)] == reference
    finally:
        is_over.set()
        thread.join()


def test_a_policy_is_one_of_four(folder, ops, loader):
    with pytest.raises(ValueError, match="policy must be"):
        penstock.Loader(folder, ops, policy="clever")
    with pytest.raises(ValueError, match="policy must be"):
        loader.policy = "clever"
    assert loader.policy == "model"
    assert loader.reason == ""


def test_telemetry_tells_times_by_stage(loader):
    batches = list(loader)
    told = loader.telemetry()
    assert told["batches"] == len(batches)
    assert told["bytes_out"] == sum(batch["image"].nbytes for batch in batches)
    assert told["stages"]["wait"]["count"] == len(batches)
    for name in ("read", "decode", "augment", "tensor"):
        stage = told["stages"][name]
        assert stage["count"] >= told["samples"]
        assert 0 < stage["p50_s"] <= stage["p95_s"] <= stage["p99_s"]
    assert told["ahead_samples"] > 0 and told["ahead_bytes"] > 0
    stats = loader.stats()
    assert told["cache_hits"] <= stats["jpeg_indexed"]  # workers may have gone on meanwhile
    assert told["cache_misses"] <= stats["jpeg_plain"]
    assert told["cache_hits"] + told["cache_misses"] > 0


def test_the_verdict_is_a_line(loader):
    assert "too early" in loader.verdict()
    list(loader)
    assert loader.verdict().startswith("training waits")
    assert "\n" not in loader.verdict()


def test_a_fed_loader_follows_its_knobs(folder, ops, digests):
    ids = [[i, (i * 7) % 23] for i in range(23)]
    with penstock.FedLoader(folder, ops, 2, num_workers=0) as inline:
        want = digests(inline.run(0, ids))
    with penstock.FedLoader(folder, ops, 2, num_workers=2) as loader:
        assert loader.knobs.table()["ready_batches"].is_pinned
        loader.knobs.set(ready_batches=6, read_ahead=5)
        assert digests(loader.run(0, ids)) == want
