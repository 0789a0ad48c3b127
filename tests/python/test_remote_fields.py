"""Fields of tar shards on remote datasets: those of the local path, whatever servers do."""

import io
import itertools
import random
import signal
import struct
import subprocess
import tarfile
import threading
import time
from pathlib import Path

import node_double
import pytest
from conftest import encoded
from interrupting import interrupt
from node_double import Node, frame, raw_field
from node_process import command, frames_of, order, serving

import penstock
from penstock import transforms as T

NAMES = ("cls", "json", "txt")
LARGE = b'{"caption": "a cat on a mat", "box": [1, 2, 3, 4]}, ' * 20_000  # a megabyte
CHANCE = random.Random(7)
CONTENTS = {
    "json": [b"", b"{}", b'{"a": [1, 2, 3]}' * 90, LARGE, CHANCE.randbytes(70_000)],
    "txt": [b"", b"a cat", bytes(range(256)) * 3, b"\xff\xfe\x00no text at all", b"\0" * 5000],
    "cls": [b"0", b"12", b" 7\n", b"1", b"-1"],
}


def write_rich_tar(path: Path, count: int = 40, first: int = 0) -> Path:
    """Every combination of fields, with every content."""
    with tarfile.open(path, "w") as tar:
        for number in range(first, first + count):
            extension, image = encoded(number % 23)
            members = {extension: image}
            for bit, name in enumerate(NAMES):
                if number >> bit & 1:
                    members[name] = CONTENTS[name][number // 8 % 5]
            for suffix, data in members.items():
                member = tarfile.TarInfo(f"d/{number:04}.{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return path


pytestmark = pytest.mark.usefixtures("plain_remote")


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rich_tar(tmp_path_factory.mktemp("rich") / "rich.tar")


@pytest.fixture
def node(rich: Path):
    with Node(rich=rich) as found:
        yield found


def fields_of(dataset: penstock.Dataset, name: str) -> list[bytes | None]:
    return [dataset.field(sample, name) for sample in range(len(dataset))]


def batches_of(path, batch_size: int = 7) -> list[tuple]:
    """Keys and fields of an epoch's batches."""
    loader = penstock.Loader(path, [T.Resize((8, 8))], batch_size, shuffle=True, seed=3)
    return [(batch.keys, *(batch[name] for name in NAMES)) for batch in loader]


# ---- the same as the local path ----


def test_the_data_is_worth_testing(rich):
    dataset = penstock.Dataset(rich)
    for name in NAMES:
        found = fields_of(dataset, name)
        assert set(found) == {None, *CONTENTS[name]}


def test_fields_are_those_of_the_local_path(rich):
    local = penstock.Dataset(rich)
    with serving("--name", "x", rich) as node:
        url = f"penstock://127.0.0.1:{node.port}/x"
        remote = penstock.Dataset(url)
        for name in NAMES:
            assert fields_of(remote, name) == fields_of(local, name)
        assert remote.field(3, "image") == local.field(3, "image")
        with pytest.raises(ValueError, match="field must be"):
            remote.field(0, "mask")
        assert batches_of(url) == batches_of(rich)


def test_folders_have_none(folder):
    with serving("--name", "x", folder) as node:
        remote = penstock.Dataset(f"penstock://127.0.0.1:{node.port}/x")
        for name in NAMES:
            assert set(fields_of(remote, name)) == {None}


@pytest.mark.parametrize("between", ["+", ","])
def test_shards_and_replicas_have_them(between, rich, tmp_path):
    other = write_rich_tar(tmp_path / "other.tar", 30, 40) if between == "+" else rich
    paths = [rich, other]
    with serving("--name", "x", rich) as first, serving("--name", "x", other) as second:
        url = f"penstock://127.0.0.1:{first.port}{between}127.0.0.1:{second.port}/x"
        remote = penstock.Dataset(url)
        parts = [penstock.Dataset(path) for path in (paths if between == "+" else paths[:1])]
        for name in NAMES:
            assert fields_of(remote, name) == [x for part in parts for x in fields_of(part, name)]
        for batch in penstock.Loader(url, [T.Resize((8, 8))], 7, shuffle=True, seed=3):
            for name in NAMES:
                assert batch[name] == [remote.field(sample, name) for sample in batch.ids]
        if between == "+":
            assert second.metric("fields_total") > 0


def test_fields_travel_in_few_bytes(rich):
    local = penstock.Dataset(rich)
    with serving("--name", "x", rich) as node:
        remote = penstock.Dataset(f"penstock://127.0.0.1:{node.port}/x")
        large = [i for i in range(len(local)) if local.field(i, "json") == LARGE]
        assert large and all(remote.field(i, "json") == LARGE for i in large)
        assert node.metric("parcel_bytes_total") < len(LARGE) * len(large) / 50
        assert node.metric("stored_bytes_total") == len(LARGE) * len(large)
        assert node.metric("fields_total") == len(large)


# ---- how it is asked for ----


def test_a_node_gives_single_fields(rich):
    local = penstock.Dataset(rich)
    with serving("--name", "x", rich) as node:
        for sample, name in itertools.product(range(len(local)), NAMES):
            data = local.field(sample, name)
            status, headers, body = node.ask("GET", f"/v1/data/x/samples/{sample}/{name}")
            if data is None:
                assert status == 404
                assert b"has no such field" in body
            else:
                assert (status, body) == (200, data)
                tag = headers["ETag"]
                path = f"/v1/data/x/samples/{sample}/{name}"
                assert node.ask("GET", path, If_None_Match=tag)[0] == 304
        sample = next(i for i in range(len(local)) if local.field(i, "json") == LARGE)
        path = f"/v1/data/x/samples/{sample}/json"
        status, headers, body = node.ask("GET", path, Range="bytes=5-9")
        assert (status, body) == (206, LARGE[5:10])
        assert headers["Content-Range"] == f"bytes 5-9/{len(LARGE)}"
        assert node.ask("GET", "/v1/data/x/samples/99/json")[0] == 404
        assert node.ask("GET", "/v1/data/x/samples/0/jpeg")[0] == 404


def test_fields_and_images_come_in_one_answer(rich):
    local = penstock.Dataset(rich)
    with serving("--name", "x", rich) as node:
        items = [[i, name, 1] for i in range(24) for name in NAMES]
        items += [[i, 0, 0, 0, 1] for i in range(3)]
        body = node.ask("POST", "/v1/data/x/samples", order(items))[2]
        frames = frames_of(body)
        assert frames.keys() == set(range(len(items)))
        for index, (sample, name, *_) in enumerate(items[:-3]):
            data = local.field(sample, name)
            assert frames[index][0] == sample
            if data is None:
                assert frames[index][1] == -13
                assert b"has no such field" in frames[index][2]
            else:
                assert frames[index][1:] == (0, raw_field(name, data))
        for index in range(3):
            assert frames[len(items) - 3 + index][2][48:] == local.read(index)
        bad = order([[0, "mask", 1]])
        assert node.ask("POST", "/v1/data/x/samples", bad)[0] == 400


def test_a_client_without_processor_time_gets_fields_as_they_are(rich):
    local = penstock.Dataset(rich)
    sample = next(i for i in range(len(local)) if local.field(i, "json") == CONTENTS["json"][2])
    with serving("--name", "x", rich, "--client-cpus", 0.000001) as node:
        items = [[sample, "json", 113]] * 100
        forms = [body[1] for _, _, body in frames_of(
            node.ask("POST", "/v1/data/x/samples", order(items))[2]).values()]  # fmt: skip
        assert forms.count(0) > 0
        assert node.metric("limited_items_total") == forms.count(0)


def test_the_fields_of_a_batch_are_one_request(rich, node):
    batches = list(penstock.Loader(node.url("rich"), [T.Resize((8, 8))], 20))
    local = penstock.Dataset(rich)
    for batch in batches:
        for name in NAMES:
            node.orders.clear()
            assert batch[name] == [local.field(sample, name) for sample in batch.ids]
            (asked,) = [order for order in node.orders if len(order["items"][0]) == 3]
            wanted = [i for i in batch.ids if local.field(i, name) is not None]
            assert asked["items"] == [[i, name, 1 | 1 << 4 | 1 << 5 | 1 << 6] for i in wanted]
            assert asked["pipeline"] is None


def test_what_a_batch_does_not_have_is_not_asked_for(folder):
    with Node(pictures=folder) as node:
        (batch,) = penstock.Loader(node.url("pictures"), [T.Resize((8, 8))], 23)
        node.orders.clear()
        assert batch["json"] == [None] * 23
        assert node.orders == []


# ---- older nodes ----


def test_a_node_that_knows_of_no_fields_has_none(rich, folder):
    with Node(rich=rich) as node:
        node.knows_fields = False
        remote = penstock.Dataset(node.url("rich"))
        assert remote.hash == penstock.Dataset(rich).hash
        assert set(fields_of(remote, "json")) == {None}
        assert remote.read(0) == penstock.Dataset(rich).read(0)


def test_a_replica_that_knows_of_no_fields_does_its_other_work(rich):
    local = penstock.Dataset(rich)
    with Node(rich=rich) as first, Node(rich=rich) as second:
        remote = penstock.Dataset(f"penstock://{first.address},{second.address}/rich")
        first.knows_fields = False
        for _ in range(3):
            assert fields_of(remote, "json") == fields_of(local, "json")
        second.stop()
        assert [remote.read(i) for i in range(9)] == [local.read(i) for i in range(9)]
        second.start()
        second.knows_fields = False
        with pytest.raises(penstock.InputOutputError, match=f"{first.address} answers 400"):
            remote.field(2, "json")


# ---- what goes wrong ----

ASKED_AGAIN = [
    m
    for m in node_double.MISDEEDS
    if m not in (node_double.stall, node_double.send_too_much, node_double.send_too_little)
]


@pytest.mark.parametrize("misdeed", ASKED_AGAIN, ids=lambda m: m.__name__)
def test_what_fails_is_asked_for_again(misdeed, rich, node):
    (batch,) = penstock.Loader(node.url("rich"), [T.Resize((8, 8))], 40)
    local = penstock.Dataset(rich)
    for name in ("txt", "json"):
        left = iter([misdeed])
        node.misbehave = lambda *a, left=left: next(left, node_double.behave)(*a)
        assert batch[name] == [local.field(sample, name) for sample in batch.ids]
        assert next(left, None) is None


def test_a_node_that_dies_in_between_is_waited_for(rich, node):
    local = penstock.Dataset(rich)
    loader = penstock.Loader(node.url("rich"), [T.Resize((8, 8))], 20)
    first, second = loader
    assert first["json"] == [local.field(sample, "json") for sample in first.ids]
    node.stop()
    timer = threading.Timer(0.3, node.start)
    timer.start()
    assert second["json"] == [local.field(sample, "json") for sample in second.ids]
    timer.join()


def test_a_replica_stands_in_for_a_node_that_dies(rich):
    local = penstock.Dataset(rich)
    with Node(rich=rich) as first, Node(rich=rich) as second:
        url = f"penstock://{first.address},{second.address}/rich"
        (batch,) = penstock.Loader(url, [T.Resize((8, 8))], 40)
        wanted = {name: [local.field(i, name) for i in batch.ids] for name in NAMES}
        assert batch["txt"] == wanted["txt"]

        first.misbehave = node_double.reset_within
        for _ in range(2):
            for name in NAMES:
                assert batch[name] == wanted[name]
        first.stop()
        for name in NAMES:
            assert batch[name] == wanted[name]


def start(port: int, path: Path) -> tuple[subprocess.Popen[str], int]:
    call = command("--listen", f"127.0.0.1:{port}", "--name", "x", path, files=None)
    server = subprocess.Popen(call, stdout=subprocess.PIPE, text=True)
    return server, int(server.stdout.readline().rpartition(":")[2])


def kill(server: subprocess.Popen[str]) -> None:
    server.kill()
    server.wait()
    server.stdout.close()


def test_a_real_node_that_is_killed_is_waited_for(rich):
    local = penstock.Dataset(rich)
    server, port = start(0, rich)
    servers = [server]
    try:
        remote = penstock.Dataset(f"penstock://127.0.0.1:{port}/x")
        (batch,) = penstock.Loader(remote, [T.Resize((8, 8))], 40)
        assert batch["json"] == [local.field(sample, "json") for sample in batch.ids]
        kill(servers.pop())
        later = threading.Timer(0.3, lambda: servers.append(start(port, rich)[0]))
        later.start()
        assert batch["txt"] == [local.field(sample, "txt") for sample in batch.ids]
        later.join()
    finally:
        for server in servers:
            kill(server)


def test_no_answer_is_an_error_that_says_what_was_wanted(node, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "4")  # a busy machine may answer late
    remote = penstock.Dataset(node.url("rich"))
    (batch,) = penstock.Loader(remote, [T.Resize((8, 8))], 40)
    node.misbehave = node_double.be_broken
    begin = time.monotonic()
    with pytest.raises(penstock.InputOutputError, match="sample 'd/0002': its json: ") as caught:
        batch["json"]
    assert node.address in str(caught.value)
    assert "something is broken" in str(caught.value)
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize("status", [-13, -2, -11])
def test_a_field_that_nobody_has_after_all_is_an_error_at_once(status, node):
    remote = penstock.Dataset(node.url("rich"))
    node.misbehave = node_double.decline(status)
    with pytest.raises(penstock.InputOutputError, match="its txt: ") as caught:
        remote.field(4, "txt")
    assert str(caught.value).endswith(f"{node.address} cannot send it: there is none")
    assert node.n_posts == 1


# ---- servers that lie ----


def zstd_bomb() -> bytes:
    """Blocks of 128 KiB of one byte each, 4 bytes long: 64 MiB without a length."""
    block = (131072 << 3 | 2).to_bytes(3, "little") + b"x"
    last = (131072 << 3 | 3).to_bytes(3, "little") + b"x"
    return b"\x28\xb5\x2f\xfd\x00\x88" + block * 120 + last


def zstd_claim(length: int) -> bytes:
    """One block of `length` bytes, and a head that says so."""
    return (
        b"\x28\xb5\x2f\xfd\xa0"
        + struct.pack("<I", length)
        + (length << 3 | 3).to_bytes(3, "little")
        + b"x"
    )


def lz4_bomb(n: int) -> bytes:
    return b"\x1fx\x01\x00" + b"\xff" * n + b"\x00\x50xxxxx"


def varint(number: int) -> bytes:
    head = b""
    while number > 127:
        head, number = head + bytes([number & 127 | 128]), number >> 7
    return head + bytes([number])


def snappy_bomb(claim: int) -> bytes:
    """Copies of 64 bytes, as many as there is room for, behind any length."""
    return varint(claim) + b"\x00x" + b"\xfe\x01\x00" * 300


N_BYTES = len(CONTENTS["json"][2])
BOMBS = {
    "zstd": (4, zstd_bomb()),
    "zstd that claims": (4, zstd_claim(100_000)),
    "zstd that is short": (4, zstd_claim(N_BYTES - 1)),
    "lz4": (5, lz4_bomb(900)),
    "lz4 that is short": (5, lz4_bomb(2)),
    "snappy": (6, snappy_bomb(N_BYTES)),
    "snappy that claims": (6, snappy_bomb(2**32 - 1)),
    "snappy that is short": (6, snappy_bomb(9)),
    "nothing": (4, b"\0"),
    "noise": (6, random.Random(2).randbytes(1000)),
}


@pytest.fixture
def json_sample(rich: Path) -> int:
    """One whose json has 1440 bytes."""
    local = penstock.Dataset(rich)
    return next(i for i in range(len(local)) if local.field(i, "json") == CONTENTS["json"][2])


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_does_not_go_off(name, node, json_sample):
    form, payload = BOMBS[name]
    assert len(payload) < N_BYTES
    remote = penstock.Dataset(node.url("rich"))
    body = raw_field("json", payload, form, N_BYTES)

    def send_once(handler, frames):
        if node.n_posts == 1:
            handler.send_chunks([frame(0, json_sample, 0, body)])
        else:
            node_double.behave(handler, frames)

    node.misbehave = send_once
    assert remote.field(json_sample, "json") == CONTENTS["json"][2]
    forms = [order["items"][0][2] for order in node.orders]
    assert forms == [113, 1]  # the second time as it is stored


LIES = {
    "another length": raw_field("json", b"x" * N_BYTES, 0, N_BYTES + 1),
    "too long": raw_field("json", b"x" * (N_BYTES + 1)),
    "too short": raw_field("json", b"x" * (N_BYTES - 1)),
    "short of what it says": raw_field("json", b"x" * (N_BYTES - 1), 0, N_BYTES),
    "longer than what it says": raw_field("json", b"x" * (N_BYTES + 1), 0, N_BYTES),
    "coded and no shorter": raw_field("json", b"x" * N_BYTES, 4, N_BYTES),
    "coded to nothing": raw_field("json", b"", 5, N_BYTES),
    "another field": raw_field("txt", b"x" * N_BYTES),
    "an image": raw_field("image", b"x" * N_BYTES),
    "pixels": raw_field("json", b"x" * 100, 2, N_BYTES),
    "a form of tomorrow": raw_field("json", b"x" * 100, 99, N_BYTES),
    "no head": b"\1\0\2\0",
    "no version": b"\0" + raw_field("json", b"x" * N_BYTES)[1:],
    "a parcel": node_double.raw_parcel(b"x" * N_BYTES),
}


def test_another_sample_is_not_believed(node, json_sample):
    remote = penstock.Dataset(node.url("rich"))
    truth = raw_field("json", CONTENTS["json"][2])
    lies = iter([frame(0, json_sample + 1, 0, truth), frame(1, json_sample, 0, truth)])

    def lie_first(handler, frames):
        handler.send_chunks([next(lies, frames[0])])

    node.misbehave = lie_first
    assert remote.field(json_sample, "json") == CONTENTS["json"][2]
    assert node.n_posts == 3


@pytest.mark.parametrize("name", LIES)
def test_lies_are_not_believed(name, node, json_sample):
    remote = penstock.Dataset(node.url("rich"))
    lies = iter([frame(0, json_sample, 0, LIES[name])])
    node.misbehave = lambda handler, frames: handler.send_chunks([next(lies, frames[0])])
    assert remote.field(json_sample, "json") == CONTENTS["json"][2]
    assert node.n_posts == 2


@pytest.mark.parametrize("name", ["too long", "another field", "zstd"])
def test_who_lies_for_ever_is_named(name, node, json_sample, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "1")
    remote = penstock.Dataset(node.url("rich"))
    form, payload = BOMBS.get(name, (0, b""))
    body = LIES.get(name, raw_field("json", payload, form, N_BYTES))
    node.misbehave = lambda handler, _: handler.send_chunks([frame(0, json_sample, 0, body)])
    with pytest.raises(penstock.InputOutputError, match="its json: could not be had") as caught:
        remote.field(json_sample, "json")
    assert node.address in str(caught.value)


def test_a_manifest_that_lies_about_fields_is_refused(node):
    def with_an_image(page):
        spoiled = bytearray(page[:-4])
        spoiled[24 + 18] |= 1
        return bytes(spoiled) + struct.pack("<I", node_double.crc32c(bytes(spoiled)))

    node.spoil_page = with_an_image
    with pytest.raises(penstock.Error, match="the manifest is wrong"):
        penstock.Dataset(node.url("rich"))


# ---- Ctrl-C ----


@pytest.mark.parametrize("what", ["dataset.field(2, 'json')", "batch['json']"])
def test_ctrl_c_ends_the_wait_for_fields(what, rich, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "600")
    with serving("--name", "x", rich) as node:
        program = f"""
import os, signal, penstock
from interrupting import pause
from penstock import transforms as T
dataset = penstock.Dataset('penstock://127.0.0.1:{node.port}/x')
batch = next(iter(penstock.Loader(dataset, [T.Resize((8, 8))], 40)))
pause({node.process.pid})
print("waiting", flush=True)
try:
    {what}
except KeyboardInterrupt:
    print("interrupted", flush=True)
os.kill({node.process.pid}, signal.SIGCONT)
print({what} is not None)
"""
        try:
            assert interrupt(program) == ("interrupted\nTrue\n", 0)
        finally:
            node.process.send_signal(signal.SIGCONT)
