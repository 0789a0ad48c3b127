"""Remote datasets: the same stream as the local path, whatever servers and networks do.

The server is a double of a storage node (node_double.py) that can misbehave.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import node_double
import pytest
from node_double import Node, free_port

import penstock
from penstock import transforms as T

ROOT = Path(__file__).resolve().parents[2]
N = 23


pytestmark = pytest.mark.usefixtures("plain_remote")


# ---- the same as the local path ----


@pytest.mark.parametrize("name", ["pictures", "shard"])
def test_a_remote_dataset_is_the_local_one(name, node, folder, shard):
    local = penstock.Dataset({"pictures": folder, "shard": shard}[name])
    remote = penstock.Dataset(node.url(name))
    assert (remote.kind, remote.path) == ("remote", node.url(name))
    assert (remote.hash, len(remote), remote.nbytes) == (local.hash, len(local), local.nbytes)
    assert (remote.keys(), remote.classes) == (local.keys(), local.classes)
    for sample in range(len(local)):
        assert remote.label(sample) == local.label(sample)
        assert remote.read(sample) == local.read(sample)
        assert remote.find(local.key(sample)) == sample


@pytest.mark.parametrize("policy", ["fixed", "model"])
@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("name", ["pictures", "shard"])
def test_the_stream_is_that_of_the_local_path(name, workers, policy, node, folder, stream):
    remote = stream(node.url(name), workers, epochs=2, policy=policy)
    assert remote == stream(folder, epochs=2)


def test_nothing_is_offloaded_where_the_environment_says_so(node, folder, stream, monkeypatch):
    monkeypatch.setenv("PENSTOCK_OFFLOAD", "none")
    assert stream(node.url("pictures")) == stream(folder)
    assert all(order["pipeline"] is None for order in node.orders)
    assert all(item[3:] == [0, 1] for order in node.orders for item in order["items"])
    monkeypatch.setenv("PENSTOCK_OFFLOAD", "some")
    with pytest.raises(penstock.InvalidError, match="PENSTOCK_OFFLOAD is 'some'"):
        stream(node.url("pictures"))
    assert stream(folder)  # no matter for files that are here


ASKED = {
    # furthest cut (of Decode, RandomResizedCrop, two more and ToTensor), forms
    "none": [0, 1],
    "all": [4, 1 << 2 | 1 << 16],
    "resize": [2, 1 << 2 | 1 << 16],
    "sophon": [2, 1 | 1 << 2 | 1 << 16],
    "auto": [4, 127],
}


@pytest.mark.parametrize("offload", ASKED)
def test_each_policy_asks_for_what_it_is_called(offload, node, folder, digests, monkeypatch):
    monkeypatch.setenv("PENSTOCK_OFFLOAD", "none" if offload == "auto" else "auto")
    line = [T.RandomResizedCrop(20), T.RandomHorizontalFlip(), T.ColorJitter(0.3), T.ToTensor()]
    options = {"shuffle": True, "seed": 5, "policy": "fixed"}
    loader = penstock.Loader(node.url("pictures"), line, 4, offload=offload, **options)
    assert digests(loader) == digests(penstock.Loader(folder, line, 4, **options))
    assert all(item[3:] == ASKED[offload] for order in node.orders for item in order["items"])


def test_a_share_of_nothing_asks_for_files(node, folder, stream, ops):
    loader = penstock.Loader(node.url("pictures"), ops, 4, policy="fixed")
    assert loader.knobs.offload == 1
    loader.knobs.offload = 0.0
    for _ in loader:
        pass
    assert all(item[3:] == [0, 1] for order in node.orders for item in order["items"])
    with pytest.raises(penstock.InvalidError, match="offload must be 0 to 1"):
        loader.knobs.offload = 1.5
    with pytest.raises(penstock.InvalidError, match="offload must be 0 to 0"):
        penstock.Loader(folder, ops, 4).knobs.offload = 0.5


def test_a_policy_that_is_none_is_refused(folder, ops):
    for make in (penstock.Loader, penstock.FedLoader):
        with pytest.raises(ValueError, match="offload must be one of"):
            make(folder, ops, 4, offload="some")


def test_a_node_that_cannot_do_the_pipeline_sends_files(node, folder, stream):
    node.refuses_pipelines = True
    words = f"{node.address} does not do this pipeline .* it answers 422, another numerics version"
    with pytest.warns(RuntimeWarning, match=words) as told:
        assert stream(node.url("pictures"), epochs=3) == stream(folder, epochs=3)
    assert len(told) == 1


def test_a_node_that_forgets_every_pipeline_sends_files(node, folder, stream):
    class Sieve(set):
        def add(self, _):
            pass

    node.pipelines = Sieve()
    with pytest.warns(RuntimeWarning, match="it answers 404, no such pipeline"):
        assert stream(node.url("pictures"), epochs=2) == stream(folder, epochs=2)
    assert sum(method == "PUT" for method, _ in node.seen) == 2
    assert node.orders
    assert all(order["pipeline"] is None for order in node.orders)


def test_many_waiting_threads_become_few_requests(node, folder):
    remote = penstock.Dataset(node.url("pictures"))
    local = penstock.Dataset(folder)
    gate = threading.Event()

    def slowly(handler, frames):
        gate.wait(10)
        node_double.behave(handler, frames)

    node.misbehave = slowly
    answers = {}
    all_here = threading.Barrier(81)

    def read(number):
        all_here.wait(30)
        answers[number] = remote.read(number % N)

    threads = [threading.Thread(target=read, args=(i,)) for i in range(80)]
    for thread in threads:
        thread.start()
    all_here.wait(30)
    time.sleep(0.3)  # they all wait for a sample by then, or nearly all
    gate.set()
    for thread in threads:
        thread.join(20)
    assert [answers[i] for i in range(80)] == [local.read(i % N) for i in range(80)]
    assert node.n_posts < 40
    assert sum(len(order["items"]) for order in node.orders) == 80


def test_samples_found_bad_are_named_like_local_ones(spoiled, plain_ops):
    with Node(spoiled=spoiled) as node:
        for path in (spoiled, node.url("spoiled")):
            with pytest.raises(penstock.DataError, match="sample 'ant/00") as caught:
                list(penstock.Loader(path, plain_ops, 4))
            assert caught.value.sample == 4


# ---- several servers ----


def test_shards_count_on_and_unite_their_classes(tmp_path, folder, ops, digests):
    halves = [tmp_path / "low", tmp_path / "high"]
    for half in halves:
        shutil.copytree(folder, half)
    shutil.rmtree(halves[0] / "cat")
    shutil.rmtree(halves[1] / "ant")
    with Node(part=halves[0]) as low, Node(part=halves[1]) as high:
        url = f"penstock://{low.address}+{high.address}/part"
        remote = penstock.Dataset(url)
        parts = [penstock.Dataset(half) for half in halves]
        assert remote.classes == ["ant", "bee", "cat"]
        assert remote.keys() == parts[0].keys() + parts[1].keys()
        labels = [part.classes[part.label(i)] for part in parts for i in range(len(part))]
        assert [remote.classes[remote.label(i)] for i in range(len(remote))] == labels
        contents = [part.read(i) for part in parts for i in range(len(part))]
        assert [remote.read(i) for i in range(len(remote))] == contents
        names = [file for half in halves for file in sorted(half.glob("*/*"))]
        same = penstock.Dataset.from_list(
            names, [remote.label(i) for i in range(len(remote))], root=tmp_path
        )
        images = [
            [bytes(batch["image"]) for batch in penstock.Loader(data, ops, 5, shuffle=True)]
            for data in (url, same)
        ]
        assert images[0] == images[1]
        based = [order.get("base") for order in high.orders if order["pipeline"]]
        assert set(based) <= {len(parts[0])}


def test_a_replica_stands_in_for_a_server_that_dies(folder, stream):
    with Node(pictures=folder) as first, Node(pictures=folder) as second:
        url = f"penstock://{first.address},{second.address}/pictures"
        count = iter(range(100))

        def kill():
            if next(count) == 1:
                first.stop()

        assert stream(url, between=kill, epochs=2) == stream(folder, epochs=2)
        assert second.n_posts


def test_a_replica_that_is_away_at_first_is_used_when_it_comes(folder, stream):
    with Node(pictures=folder) as first, Node(pictures=folder) as second:
        url = f"penstock://{first.address},{second.address}/pictures"
        second.stop()
        count = iter(range(100))

        def change():
            number = next(count)
            if number == 0:
                second.start()
            elif number == 2:
                first.stop()

        assert stream(url, between=change, epochs=2) == stream(folder, epochs=2)
        assert ("GET", "/v1/data/pictures") in second.seen  # asked what it holds, first


def test_replicas_with_different_data_are_refused(tmp_path, folder):
    other = shutil.copytree(folder, tmp_path / "other")
    next(other.glob("bee/*")).write_bytes(b"changed")
    with Node(x=folder) as first, Node(x=other) as second:
        with pytest.raises(penstock.InvalidError, match="given as replicas, but") as caught:
            penstock.Dataset(f"penstock://{first.address},{second.address}/x")
        assert first.address in str(caught.value)
        assert second.address in str(caught.value)


def test_replicas_of_one_hash_and_different_counts_are_refused(folder):
    with Node(x=folder) as first, Node(x=folder) as second:
        second.lies = {"count": N + 1}
        words = f"'x' differ: {N} and {N + 1} samples, though both have the hash"
        with pytest.raises(penstock.InvalidError, match=words):
            penstock.Dataset(f"penstock://{first.address},{second.address}/x")


@pytest.mark.parametrize("classes", [["ant", "cat", "bee"], []])
def test_replicas_with_other_names_of_classes_are_refused(classes, folder):
    """The hash covers samples and the numbers of their labels, not the names of those."""
    with Node(x=folder) as first, Node(x=folder) as second:
        second.lies = {"classes": classes}
        with pytest.raises(penstock.InvalidError, match="classes have other names") as caught:
            penstock.Dataset(f"penstock://{first.address},{second.address}/x")
        assert first.address in str(caught.value)
        assert second.address in str(caught.value)


def test_a_replica_that_comes_with_other_names_of_classes_is_not_used(
    folder, plain_ops, monkeypatch
):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "2")
    with Node(x=folder) as first, Node(x=folder) as second:
        second.stop()
        dataset = penstock.Dataset(f"penstock://{first.address},{second.address}/x")
        first.stop()
        second.lies = {"classes": ["ant", "cat", "bee"]}
        second.start()
        with pytest.raises(penstock.InputOutputError, match="its classes are others"):
            list(penstock.Loader(dataset, plain_ops, 4))
        assert not second.orders


@pytest.mark.parametrize("how", ["token", "samples"])
def test_a_replica_that_refuses_is_routed_around(how, folder, stream):
    with Node(pictures=folder) as first, Node(pictures=folder) as second:
        dataset = penstock.Dataset(f"penstock://{first.address},{second.address}/pictures")
        if how == "token":
            first.token = "changed"
        else:
            first.misbehave = node_double.be_private
        assert stream(dataset, epochs=3) == stream(folder, epochs=3)
        assert ("POST", "/v1/data/pictures/samples") in first.seen
        second.stop()
        if how == "samples":
            first.misbehave = node_double.behave  # and is asked when it is needed again
            assert stream(dataset) == stream(folder)


def test_when_all_replicas_refuse_each_is_named_with_its_reason(folder, plain_ops):
    with Node(pictures=folder) as first, Node(pictures=folder) as second:
        dataset = penstock.Dataset(f"penstock://{first.address},{second.address}/pictures")
        first.token, second.misbehave = "changed", node_double.be_private
        begin = time.monotonic()
        with pytest.raises(penstock.InputOutputError) as caught:
            list(penstock.Loader(dataset, plain_ops, 4))
        assert time.monotonic() - begin < 15  # of 30
        assert f"{first.address} answers 401, wrong token" in str(caught.value)
        assert f"{second.address} answers 403, not for you" in str(caught.value)


def test_a_no_that_is_taken_back_is_none(node, folder, stream, monkeypatch):
    """It may come of a bit that flipped in the request's head."""
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "3600")
    statuses = [400, 403, 405, 411, 413, 414, 422, 431, 501]
    left = [status for status in statuses for _ in range(2)]
    denied = Counter()  # five times is often enough to be believed

    def deny(handler, frames):
        samples = [node_double.sample_of(frame) for frame in frames]
        if left and node.n_posts % 3 and max(denied[sample] for sample in samples) < 3:
            denied.update(samples)
            handler.refuse(left.pop(), "odd")
        else:
            node_double.behave(handler, frames)

    node.misbehave = deny
    while left:
        denied.clear()
        assert stream(node.url("pictures")) == stream(folder)


@pytest.mark.parametrize("status", [400, 403, 405, 411, 413, 414, 422, 431])
def test_a_no_that_is_said_again_and_again_is_final(status, node, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "3600")
    dataset = penstock.Dataset(node.url("pictures"))
    node.misbehave = lambda handler, _: handler.refuse(status, "never")
    with pytest.raises(penstock.InputOutputError, match=f"answers {status}, never"):
        dataset.read(0)
    assert node.n_posts == 5


def test_a_wrong_token_is_final_at_once(node, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "3600")
    dataset = penstock.Dataset(node.url("pictures"))
    node.seen.clear()
    node.token = "changed"
    with pytest.raises(penstock.InputOutputError, match="answers 401, wrong token"):
        dataset.read(0)
    assert len(node.seen) == 1


def test_answers_that_do_not_say_what_they_answer_are_not_taken(node, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "1")
    dataset = penstock.Dataset(node.url("pictures"))
    node.says_what_it_was_asked = False
    words = "does not say what it was asked: is it of an older version"
    with pytest.raises(penstock.InputOutputError, match=words):
        dataset.read(0)
    with pytest.raises(penstock.InputOutputError, match=words):
        penstock.Dataset(node.url("pictures"))


def test_a_head_that_comes_slowly_is_no_silence(node, folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "12")  # a silence has two seconds

    def be_slow(handler, frames):
        handler.send_response(200)
        for number in range(10):
            handler.send_header(f"X-{number}", "slow")
            handler.flush_headers()
            time.sleep(0.25)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for chunk in frames:
            handler.send_chunk(chunk)
        handler.wfile.write(b"0\r\n\r\n")

    dataset = penstock.Dataset(node.url("pictures"))
    node.misbehave = be_slow
    assert dataset.read(0) == penstock.Dataset(folder).read(0)
    assert node.n_posts == 1


def test_time_that_runs_out_is_blamed_on_each_replica(folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "1.5")
    with Node(pictures=folder) as first, Node(pictures=folder) as second:
        dataset = penstock.Dataset(f"penstock://{first.address},{second.address}/pictures")
        first.misbehave = node_double.be_private
        second.stop()
        with pytest.raises(penstock.InputOutputError, match="sample 'ant/") as caught:
            dataset.read(0)
        assert f"{first.address} answers 403, not for you" in str(caught.value)
        assert f"{second.address}: connection refused" in str(caught.value)


@pytest.mark.parametrize("misdeed", [node_double.be_broken, node_double.trickle])
def test_a_replica_that_is_no_use_is_routed_around(misdeed, folder, stream, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "12")  # slow is what others do in a second
    with Node(pictures=folder) as first, Node(pictures=folder) as second:
        dataset = penstock.Dataset(f"penstock://{first.address},{second.address}/pictures")
        assert stream(dataset) == stream(folder)
        first.misbehave = misdeed
        first.orders.clear()
        assert stream(dataset, epochs=4) == stream(folder, epochs=4)
        assert sum(len(order["items"]) for order in first.orders) < 2 * N


@pytest.mark.parametrize("status", [-2, -5, -11, -13])
def test_a_sample_that_a_server_cannot_send_is_asked_for_elsewhere(status, folder, stream):
    with Node(pictures=folder) as first, Node(pictures=folder) as second:
        dataset = penstock.Dataset(f"penstock://{first.address},{second.address}/pictures")
        first.misbehave = node_double.decline(status)
        assert stream(dataset, epochs=2) == stream(folder, epochs=2)
        assert first.n_posts


@pytest.mark.parametrize("status", [-2, -5, -11, -13])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_sample_that_nobody_can_send_is_an_error_at_once(status, on_error, node, plain_ops):
    dataset = penstock.Dataset(node.url("pictures"))
    node.misbehave = node_double.decline(status)
    with pytest.raises(penstock.InputOutputError, match="sample 'ant/0000'") as caught:
        list(penstock.Loader(dataset, plain_ops, 4, num_workers=1, on_error=on_error))
    assert str(caught.value).endswith(f": {node.address} cannot send it: there is none")
    with pytest.raises(penstock.InputOutputError, match="sample 'ant/") as caught:
        dataset.read(1)
    assert str(caught.value).endswith(f": {node.address} cannot send it: there is none")
    asked = [item[0] for order in node.orders for item in order["items"]]
    assert len(asked) == len(set(asked))  # nothing was asked for twice


def test_a_pipeline_that_is_refused_says_nothing_of_others(node, folder, plain_ops, ops, digests):
    dataset = penstock.Dataset(node.url("pictures"))
    options = {"policy": "fixed", "offload": "auto"}
    node.refuses_pipelines = True
    with pytest.warns(RuntimeWarning, match="does not do this pipeline"):
        list(penstock.Loader(dataset, ops, 4, **options))
    assert all(order["pipeline"] is None for order in node.orders)
    node.refuses_pipelines = False
    node.orders.clear()
    found = digests(penstock.Loader(dataset, plain_ops, 4, **options))
    assert found == digests(penstock.Loader(folder, plain_ops, 4))
    assert all(order["pipeline"] for order in node.orders)


def test_a_server_that_comes_back_with_other_data_is_not_believed(
    tmp_path, folder, monkeypatch, plain_ops
):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "3600")  # it is said at once
    other = shutil.copytree(folder, tmp_path / "other")
    with Node(x=folder) as node:
        remote = penstock.Dataset(node.url("x"))
        remote.read(0)
        file = next(other.glob("bee/*"))
        file.write_bytes(file.read_bytes()[::-1] + b"x")
        node.shelves["x"] = node_double.Shelf(penstock.Dataset(other))
        with pytest.raises(penstock.InputOutputError, match="says: it holds another dataset"):
            remote.read(1)


@pytest.mark.parametrize(
    ("lies", "words"),
    [
        ({"unknown": "x" * 100000}, "says of its dataset is longer than"),
        ({"hash": "\x1b[2J\n" + "0" * 60}, "has no hash"),
    ],
    ids=["endless", "nonsense"],
)
def test_a_server_that_comes_back_with_nonsense_is_waited_for(lies, words, node, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "1.5")
    remote = penstock.Dataset(node.url("pictures"))
    node.lies = lies
    node.misbehave = node_double.reset_at_once
    with pytest.raises(penstock.InputOutputError, match=words) as caught:
        remote.read(1)
    assert str(caught.value).isprintable()


def test_a_server_that_comes_back_and_is_heard_wrongly_is_asked_again(
    node, folder, plain_ops, digests
):
    remote = penstock.Dataset(node.url("pictures"))
    texts: list[bytes] = []

    def flip_once(text: bytes) -> bytes:
        texts.append(text)
        return text.replace(b"ant", b"aut") if len(texts) == 1 else text

    node.spoil_description = flip_once
    node.misbehave = lambda handler, frames: (
        node_double.behave if texts else node_double.reset_at_once
    )(handler, frames)
    found = digests(penstock.Loader(remote, plain_ops, 4))
    assert found == digests(penstock.Loader(folder, plain_ops, 4))
    assert len(texts) >= 2


# ---- faults ----


@pytest.mark.parametrize("misdeed", node_double.MISDEEDS, ids=lambda misdeed: misdeed.__name__)
def test_the_stream_survives(misdeed, node, folder, stream, monkeypatch):
    if misdeed is node_double.stall:
        monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "6")

    def now_and_then(handler, frames):
        bad = node.n_posts in (1, 4)
        (misdeed if bad else node_double.behave)(handler, frames)

    node.misbehave = now_and_then
    assert stream(node.url("pictures"), epochs=2) == stream(folder, epochs=2)
    assert node.n_posts >= 4


@pytest.mark.parametrize(
    ("misdeed", "words"),
    [
        (node_double.send_another_sample, "a frame of another sample"),
        (node_double.send_too_much, "bytes there and .* in the manifest"),
        (node_double.send_too_little, "bytes there and .* in the manifest"),
        (node_double.send_an_unknown_form, "a parcel of version 1 and form 99"),
        (node_double.send_a_form_that_was_not_asked_for, "form that was not asked for"),
        (node_double.flip_a_body_bit, "checksum of a sample differs"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_wrong_with_a_sample_is_said(misdeed, words, node, plain_ops, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "0.5")
    node.misbehave = misdeed
    loader = penstock.Loader(node.url("pictures"), plain_ops, 1, num_workers=1, offload="none")
    with pytest.raises(penstock.InputOutputError, match=words):
        list(loader)


@pytest.mark.parametrize("seed", range(3))
def test_the_stream_survives_faults_at_random(seed, node, folder, stream):
    chance = random.Random(seed)
    harmless = [m for m in node_double.MISDEEDS if m not in (node_double.stall,)]

    def at_random(handler, frames):
        bad = chance.random() < 0.4
        (chance.choice(harmless) if bad else node_double.behave)(handler, frames)

    node.misbehave = at_random
    assert stream(node.url("pictures"), workers=6, epochs=3) == stream(folder, epochs=3)


def test_the_stream_survives_fifty_restarts(node, folder, stream):
    is_over = threading.Event()
    n_restarts = 0

    def slowly(handler, frames):
        time.sleep(0.01)
        node_double.behave(handler, frames)

    def restart():
        nonlocal n_restarts
        while not is_over.is_set():
            time.sleep(0.03)
            node.stop()
            node.start()
            n_restarts += 1

    node.misbehave = slowly
    remote = penstock.Dataset(node.url("pictures"))
    restarter = threading.Thread(target=restart)
    restarter.start()
    try:
        wanted = stream(folder, epochs=4)
        while n_restarts < 50:
            assert stream(remote, epochs=4) == wanted
    finally:
        is_over.set()
        restarter.join()


def test_a_sample_that_never_comes_is_an_error_that_names_server_and_cause(
    node, monkeypatch, plain_ops
):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "1")
    loader = penstock.Loader(node.url("pictures"), plain_ops, 4)
    node.misbehave = node_double.be_broken
    begin = time.monotonic()
    with pytest.raises(penstock.InputOutputError) as caught:
        list(loader)
    assert time.monotonic() - begin < 20
    assert node.address in str(caught.value)
    assert "something is broken" in str(caught.value)


def test_one_poisoned_sample_does_not_take_others_with_it(node, folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "3")
    remote = penstock.Dataset(node.url("pictures"))
    local = penstock.Dataset(folder)

    def break_at_seven(handler, frames):
        ids = [item[0] for item in json.loads(handler.body)["items"]]
        (node_double.reset_at_once if 7 in ids else node_double.behave)(handler, frames)

    node.misbehave = break_at_seven
    answers = {}

    def read(sample):
        try:
            answers[sample] = remote.read(sample)
        except penstock.InputOutputError as error:
            answers[sample] = str(error)

    threads = [threading.Thread(target=read, args=(i,)) for i in range(N)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert "failed tries" in answers.pop(7)
    assert answers == {i: local.read(i) for i in range(N) if i != 7}


def test_a_server_that_is_gone_is_waited_for_and_then_an_error(node, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "1")
    remote = penstock.Dataset(node.url("pictures"))
    node.stop()
    with pytest.raises(
        penstock.InputOutputError, match=r"could not be had in .*: connection refused"
    ):
        remote.read(3)
    node.start()


def test_the_server_is_killed_and_paused(folder, stream, monkeypatch):
    """A process of its own, with real signals."""
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "12")  # stalls are seen after a sixth of it
    port = free_port()
    call = [sys.executable, node_double.__file__, str(port), f"pictures={folder}"]

    def start():
        server = subprocess.Popen(call, stdout=subprocess.PIPE, text=True)
        assert server.stdout.readline() == "ready\n"
        return server

    server = start()
    count = iter(range(100))

    def trouble():
        nonlocal server
        number = next(count)
        if number in (2, 8):
            server.kill()
            server.wait()
            server.stdout.close()
            server = start()
        elif number == 5:
            server.send_signal(signal.SIGSTOP)
            threading.Timer(2.5, server.send_signal, (signal.SIGCONT,)).start()

    try:
        url = f"penstock://127.0.0.1:{port}/pictures"
        assert stream(url, between=trouble, epochs=2) == stream(folder, epochs=2)
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def test_a_loader_closes_while_its_server_stalls(node, plain_ops):
    has_stalled = threading.Event()

    def only_the_first_batch(handler, frames):
        ids = [item[0] for item in json.loads(handler.body)["items"]]
        first = [frame for frame, sample in zip(frames, ids, strict=True) if sample < 4]
        if len(first) == len(frames):
            node_double.behave(handler, frames)
            return
        handler.send_chunks(first, is_whole=False)
        has_stalled.set()
        node.released.wait(30)
        handler.close_connection = True

    node.misbehave = only_the_first_batch
    loader = penstock.Loader(node.url("pictures"), plain_ops, 4, num_workers=2)
    iterator = iter(loader)
    next(iterator)
    assert has_stalled.wait(20)
    begin = time.monotonic()
    del iterator, loader
    assert time.monotonic() - begin < 4  # what stalls is given up after five seconds


# ---- forks, the command, torch ----


def test_a_forked_child_is_told_to_open_it_again(node):
    remote = penstock.Dataset(node.url("pictures"))
    expected = remote.read(2)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            remote.read(2)
        except penstock.ForkError as error:
            os.write(writer, str(error).encode())
        del remote
        os._exit(0)
    os.close(writer)
    assert b"opened before a fork" in os.read(reader, 1000)
    os.close(reader)
    assert os.waitpid(child, 0)[1] == 0
    assert remote.read(2) == expected


COMMANDS = {
    "info": ((), r"{url} \(remote\)"),
    "bench": (("--epochs", "1", "--threads", "2"), r"images_per_s"),
    "replay": (("--epoch", "1", "--batch", "0", "--batch-size", "4"), r"ant/"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_take_an_address(name, node):
    command, url = Path(sys.executable).with_name("penstock"), node.url("pictures")
    options, said = COMMANDS[name]
    done = subprocess.run(
        [command, name, url, *options], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert re.search(said.format(url=re.escape(url)), done.stdout)


def test_torch_takes_an_address(node, folder, plain_ops):
    from penstock.torch import DataLoader

    def images(path):
        return [batch[0].numpy().tobytes() for batch in DataLoader(path, 5, transform=plain_ops)]

    assert images(node.url("pictures")) == images(folder)
