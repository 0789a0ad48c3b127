"""A storage node as any HTTP client sees it: routes, errors, limits, hostile and slow clients, TLS."""

import contextlib
import http.client
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import picture
from node_process import (
    COMMAND,
    Node,
    crc32c,
    frames_of,
    metrics,
    order,
    refused,
    serving,
    until,
)

import penstock
from penstock.sample import pipeline as compiled

TOKEN = "correct-horse-battery"


@pytest.fixture(scope="module")
def node(folder: Path) -> Iterator[Node]:
    with serving("--name", "data", folder, "--cpus", 2, "--max-per-client", 2000) as node:
        yield node


# ---- what is there ----


def test_what_is_served_is_told(node: Node, folder: Path) -> None:
    dataset = penstock.Dataset(folder)
    assert node.get("/healthz").read() == b"ok\n"
    root = json.load(node.get("/v1"))
    assert (root["server"], root["protocol"], root["cpus"]) == ("penstock", 1, 2)
    assert [one["name"] for one in root["datasets"]] == ["data"]
    text = node.get("/v1/data/data").read()
    one = json.loads(text)
    assert text[-24:] == f', "crc32c": "{crc32c(text[:-24]):08x}"}}\n'.encode()
    assert one["hash"] == dataset.hash == root["datasets"][0]["hash"]
    assert (one["count"], one["kind"]) == (len(dataset), "folder")
    assert one["classes"] == ["ant", "bee", "cat"]


def test_every_sample_comes_as_it_is_stored(node: Node, folder: Path) -> None:
    files = sorted(folder.glob("*/*"), key=lambda file: (file.parent.name, file.name))
    for number, file in enumerate(files):
        with node.get(f"/v1/data/data/samples/{number}") as answer:
            assert answer.read() == file.read_bytes()
            etag = answer.headers["ETag"]
    path, data = f"/v1/data/data/samples/{len(files) - 1}", files[-1].read_bytes()
    for text, part in (("0-9", data[:10]), ("10-", data[10:]), ("-7", data[-7:])):
        status, headers, body = node.ask("GET", path, Range=f"bytes={text}")
        assert (status, body) == (206, part)
        assert headers["Content-Range"].endswith(f"/{len(data)}")
    assert node.ask("GET", path, Range="Bytes=0-9")[0::2] == (206, data[:10])
    for text in (f"{len(data)}-", "18446744073709551616-", "9" * 40 + "-" + "9" * 41):
        assert node.ask("GET", path, Range=f"bytes={text}")[0] == 416
    assert node.ask("GET", path, If_None_Match=etag)[0::2] == (304, b"")
    status, headers, body = node.ask("HEAD", path)
    assert (status, int(headers["Content-Length"]), body) == (200, len(data), b"")


def test_the_manifest_has_keys_lengths_labels_and_headers(node: Node, folder: Path) -> None:
    status, _, page = node.ask("GET", "/v1/data/data/manifest?page=0&headers=1")
    assert status == 200
    magic, version, first, count, flags = struct.unpack_from("<4sIQII", page)
    assert (magic, version, first, flags) == (b"PENM", 1, 0, 1)
    assert crc32c(page[:-4]) == struct.unpack("<I", page[-4:])[0]
    at, keys = 24, []
    for _ in range(count):
        length, label, key_length = struct.unpack_from("<QqH", page, at)
        width, height = struct.unpack_from("<HH", page, at + 26)
        key = page[at + 30 : at + 30 + key_length].decode()
        at += 30 + key_length
        file = next(folder.glob(f"{key}.*"))
        assert length == file.stat().st_size
        assert ("ant", "bee", "cat")[label] == file.parent.name
        number = int(file.stem)
        assert (width, height) == (40 + number * 7 % 50, 36 + number * 11 % 60)
        keys.append(key)
    assert at == len(page) - 4
    assert keys == sorted(keys) and len(keys) == len(list(folder.glob("*/*")))
    assert node.ask("GET", "/v1/data/data/manifest?page=1")[0] == 404
    packed = node.ask("GET", "/v1/data/data/manifest?page=0", Accept_Encoding="zstd")
    assert packed[1]["Content-Encoding"] == "zstd"
    assert packed[2][:4] == b"\x28\xb5\x2f\xfd"


def test_the_manifest_goes_on_where_a_page_ends(tmp_path: Path) -> None:
    first = tmp_path / "many" / "0000.jpg"
    first.parent.mkdir()
    first.write_bytes(b"a file")
    for number in range(1, 2100):
        (first.parent / f"{number:04}.jpg").hardlink_to(first)
    with serving(first.parent) as node:
        about = json.load(node.get("/v1/data/many"))
        assert (about["count"], about["page"]) == (2100, 1024)
        keys = []
        for number, held in enumerate((1024, 1024, 52)):
            page = node.get(f"/v1/data/many/manifest?page={number}").read()
            assert struct.unpack_from("<4sIQII", page) == (b"PENM", 1, len(keys), held, 0)
            keys += re.findall(rb"\d{4}", page[24:])
        assert keys == [b"%04d" % number for number in range(2100)]
        assert node.ask("GET", "/v1/data/many/manifest?page=3")[0] == 404
        remote = penstock.Dataset(f"penstock://127.0.0.1:{node.port}/many")
        assert [remote.key(number) for number in (0, 1023, 1024, 2099)] == [
            "0000", "1023", "1024", "2099"
        ]  # fmt: skip
        assert remote.hash == penstock.Dataset(first.parent).hash


def test_headers_of_samples_that_were_sent_are_known(folder: Path) -> None:
    with serving("--name", "data", folder) as node:
        known = "/v1/data/data/manifest?page=0&headers=2"
        before = node.ask("GET", known)[2]
        assert not any(before[24 + 18 : 24 + 30])
        count = struct.unpack_from("<I", before, 16)[0]
        items = [[number, 1, 0, 0, 1] for number in range(count)]
        assert node.ask("POST", "/v1/data/data/samples", order(items))[0] == 200
        after = node.ask("GET", known)[2]
        assert after != before
        assert after == node.ask("GET", "/v1/data/data/manifest?page=0&headers=1")[2]


def test_frames_come_for_all_items_and_errors_in_their_own(node: Node, folder: Path) -> None:
    files = sorted(folder.glob("*/*"), key=lambda file: (file.parent.name, file.name))
    items = [[number, 1, 0, 0, 1] for number in (*range(len(files)), 10**6)]
    status, headers, body = node.ask("POST", "/v1/data/data/samples", order(items))
    assert status == 200
    assert headers["Content-Type"] == "application/vnd.penstock.frames"
    frames = frames_of(body)
    assert frames.keys() == set(range(len(items)))
    for number, file in enumerate(files):
        sample, status, parcel = frames[number]
        data = file.read_bytes()
        version, form, cut, _, length = struct.unpack_from("<BBBBI", parcel)
        assert (sample, status, version, form, cut, length) == (number, 0, 1, 0, 0, len(data))
        assert parcel[48:] == data
    sample, status, text = frames[len(files)]
    assert (sample, status) == (10**6, -2)
    assert b"no sample" in text
    body = node.ask("POST", "/v1/data/data/samples", order([[3, "json", 1], [99, "json", 1]]))[2]
    frames = frames_of(body)
    assert [frames[index][:2] for index in (0, 1)] == [(3, -13), (99, -2)]
    assert frames[0][2].endswith(b"has no such field: json")


def test_pipelines_are_put_by_their_hash(node: Node) -> None:
    pipeline = compiled([penstock.RandomResizedCrop(16), penstock.ToTensor()])
    text, path = pipeline.description.encode(), f"/v1/pipelines/{pipeline.hash}"
    assert (
        node.ask("POST", "/v1/data/data/samples", order([[0, 0, 0, 1, 63]], pipeline.hash))[0]
        == 404
    )
    assert node.ask("PUT", path, text)[0] == 201
    assert node.ask("PUT", path, text)[0] == 200
    for wrong in (text + b" ", text.replace(b"16", b"17"), b"", b"[]", b"x" * 60000):
        status, _, body = node.ask("PUT", path, wrong)
        assert status == 422
        assert json.loads(body)["error"]
    items = [[number, 5, 0, 2, 63] for number in range(20)]
    status, _, body = node.ask("POST", "/v1/data/data/samples", order(items, pipeline.hash))
    assert status == 200
    frames = frames_of(body)
    assert all(status == 0 for _, status, _ in frames.values())
    assert any(parcel[1] != 0 for _, _, parcel in frames.values())  # smaller than the file


def test_metrics_count_what_happened(node: Node) -> None:
    text = metrics(node)
    assert text.endswith("# EOF\n")
    found = dict(re.findall(r"^(\S+) (\S+)$", text, re.MULTILINE))
    before = float(found['penstock_node_items_total{form="raw"}'])
    node.ask("POST", "/v1/data/data/samples", order([[0, 0, 0, 0, 1], [999, 0, 0, 0, 1]]))
    text = metrics(node)
    found = dict(re.findall(r"^(\S+) (\S+)$", text, re.MULTILINE))
    assert float(found['penstock_node_items_total{form="raw"}']) == before + 1
    assert float(found['penstock_node_item_errors_total{error="PEN_EINVAL"}']) >= 1
    assert float(found["penstock_node_work_cpu_seconds_total"]) > 0


def test_an_index_of_jpeg_files_is_left_to_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    count, folder = 5, tmp_path / "photos" / "one"
    folder.mkdir(parents=True)
    for number in range(count):
        picture(number, 300 + number, 200).save(folder / f"{number}.jpg", quality=95)
    pipeline = compiled([penstock.RandomResizedCrop(64), penstock.ToTensor()])
    items = [[number, 5, 0, 0, 3] for number in range(count)]  # files, or parts of them

    def serve(*options: str) -> tuple[list[bytes], list[float]]:
        with serving(folder.parent, *options) as node:
            found = node.metric("index_entries")
            assert node.ask("PUT", f"/v1/pipelines/{pipeline.hash}", pipeline.description.encode())
            answer = node.ask("POST", "/v1/data/photos/samples", order(items, pipeline.hash))[2]
            parcels = [parcel for _, (_, _, parcel) in sorted(frames_of(answer).items())]
            return parcels, [found, *(node.metric(f"index_{n}_total") for n in ("made", "hits"))]

    plain, counts = serve("--no-index")
    assert counts == [0, 0, 0]
    assert serve() == (plain, [0, count, 0])
    assert serve() == (plain, [count, 0, count])
    assert serve("--no-index") == (plain, [0, 0, 0])


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl")
def test_the_examples_of_the_protocol_work(folder: Path, shard: Path, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
    examples = re.findall(r"^    \$ (curl .*)$", text, re.MULTILINE)
    assert len(examples) >= 10
    with serving("--name", "photos", folder, "--name", "captions", shard) as node:
        for example in examples:
            call = example.replace("http://127.0.0.1:7470", node.url).replace(
                "curl ", "curl -f ", 1
            )
            run = subprocess.run(
                ["bash", "-o", "pipefail", "-c", call],
                cwd=tmp_path,
                capture_output=True,
                timeout=60,
            )
            assert run.returncode in (0, 23), (example, run.stderr)  # 23: head has seen enough
            if example.endswith("od -An -tx1"):
                assert run.stdout == b" ff d8 ff e0\n"
            if example.endswith("head -c 4"):
                assert run.stdout == b"PENF"
            if example.endswith("/json"):
                assert run.stdout == b'{"number": 0}'
    assert (tmp_path / "first.jpg").read_bytes() == (folder / "ant" / "0000.jpg").read_bytes()


# ---- what is refused ----


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/", None, 404),
        ("GET", "/v1/", None, 404),
        ("GET", "/v1/data/none", None, 404),
        ("GET", "/v1/data/data/samples/23", None, 404),
        ("GET", "/v1/data/data/samples/23/json", None, 404),
        ("GET", "/v1/data/data/samples/0/json", None, 404),
        ("GET", "/v1/data/data/samples/0/image", None, 404),
        ("GET", "/v1/data/data/samples/0/..%2f..%2fjson", None, 404),
        ("PUT", "/v1/data/data/samples/0/json", b"{}", 405),
        ("GET", "/v1/data/data/manifest?fields=2", None, 400),
        ("POST", "/v1/data/data/samples", order([[0, "mask", 1]]), 400),
        ("POST", "/v1/data/data/samples", order([[0, "json", 1]] * 257), 413),
        ("GET", "/v1/data/data/samples/-1", None, 404),
        ("GET", "/v1/data/data/samples/99999999999999999999", None, 404),
        ("GET", "/v1/data/data/manifest?page=x", None, 400),
        ("GET", "/v1/data/data/manifest?page=99999999999999999999", None, 400),
        ("GET", "/v1/data/data/samples", None, 405),
        ("DELETE", "/v1/data/data/samples/0", None, 405),
        ("POST", "/v1", b"x", 405),
        ("PUT", "/v1/pipelines/short", b"{}", 404),
        ("POST", "/v1/data/data/samples", b"", 400),
        ("POST", "/v1/data/data/samples", b"[" * 2000, 400),
        ("POST", "/v1/data/data/samples", b"[" * 60000, 413),
        ("POST", "/v1/data/data/samples", b"\0\xff{}", 400),
        ("POST", "/v1/data/data/samples", order([]), 400),
        ("POST", "/v1/data/data/samples", order([[0, 0, 0, 0, 1]] * 257), 413),
        ("POST", "/v1/data/data/samples", b" " * 65537, 413),
        ("POST", "/v1/data/data/samples", b" " * 3_000_000, 413),
        ("POST", "/v1/data/data/samples", order([[0, 0, 0, 0, 1]], "0" * 32), 404),
        ("POST", "/v1/data/data/samples", order([[0, 0, 0, 0, 1]], hash="0" * 32), 409),
        ("POST", "/v1/data/none/samples", order([[0, 0, 0, 0, 1]]), 404),
        # ways out of the root
        ("GET", "/v1/data/../../../etc/passwd", None, 404),
        ("GET", "/v1/data/..%2f..%2fetc%2fpasswd", None, 404),
        ("GET", "/v1/data/%2e%2e/%2e%2e/etc/passwd", None, 404),
        ("GET", "/v1/data/data/samples/..%2f..%2f..%2fetc%2fpasswd", None, 404),
        ("GET", "/v1/data/data/samples/0%00.jpg", None, 404),
        ("GET", "//etc/passwd", None, 404),
        ("GET", "/v1/data/data\\..\\..", None, 404),
    ],
)
def test_what_cannot_be_is_refused(node: Node, method, path, body, status) -> None:
    try:
        answer = node.ask(method, path, body)
    except (ConnectionError, BrokenPipeError):
        assert body is not None and len(body) > 2**20  # it was not read to its end
    else:
        assert answer[0] == status
        assert json.loads(answer[2])["error"]
    assert node.get("/healthz").read() == b"ok\n"


# 0: closed without an answer; or it was lost, as what is not read to its end resets the connection.
MALFORMED = (
    (b"\r\n\r\n", {0, 400}),
    (b"GET\r\n\r\n", {0, 400}),
    (b"GET / HTTP/9.9\r\n\r\n", {505}),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", {0, 400}),
    (b"POST /v1/data/data/samples HTTP/1.1\r\nHost: 1\r\nContent-Length: -1\r\n\r\n", {400}),
    (
        b"POST /v1/data/data/samples HTTP/1.1\r\nHost: 1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        {400},
    ),
    (b"GET /v1 HTTP/1.1\r\nHost: 1\r\n" + b"X: y\r\n" * 20000 + b"\r\n", {0, 431}),
    (b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n", {0, 414}),
    (random.Random(7).randbytes(50000), {0, 400, 414}),
    (bytes(50000), {0, 400, 414}),
)


def test_malformed_requests_do_no_harm(folder: Path) -> None:
    with serving(folder, "--idle", 2) as node:  # half a request is waited for
        for request, statuses in MALFORMED:
            answer = b""
            with node.connect() as peer, contextlib.suppress(OSError):
                peer.sendall(request)
                peer.shutdown(socket.SHUT_WR)
                while piece := peer.recv(65536):
                    answer += piece
            found = re.match(rb"HTTP/1\.[01] (\d\d\d) ", answer)
            assert (int(found[1]) if found else len(answer)) in statuses, (request[:80], answer)
        assert node.get("/healthz").read() == b"ok\n"


@pytest.mark.parametrize("head", [b"GET /v1 HTTP/1.1\r\nHost: 1\r\nX: ", b"GET /v1/"])
def test_heads_are_read_up_to_a_size(folder: Path, head: bytes) -> None:
    """The connection's memory is what limits them, not the time that it may be idle."""

    def status(node: Node, n_bytes: int) -> int:
        end = b"\r\n\r\n" if b"Host" in head else b" HTTP/1.1\r\nHost: 1\r\n\r\n"
        with node.connect() as peer:
            peer.sendall(head + b"a" * n_bytes + end)
            return int(peer.recv(65536).split()[1])

    with serving(folder, "--max-header", 8192, "--idle", 600) as node:
        assert status(node, 2000) == (200 if b"Host" in head else 404)
        assert status(node, 10000) == (431 if b"Host" in head else 414)
        assert node.get("/healthz").read() == b"ok\n"


POST = b"POST /v1/data/data/samples HTTP/1.1\r\nHost: 1\r\n"
AMBIGUOUS = {
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 9\r\n\r\n{}",
    "two equal lengths": POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "length and chunks": POST
    + b"Content-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "chunks and length": POST
    + b"Transfer-Encoding: chunked\r\nContent-Length: 99\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "two encodings": POST
    + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "no chunks": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "a hidden length": POST + b"Content-Length : 2\r\nContent-Length: 2\r\n\r\n{}",
    "a tab": b"GET /v1 HTTP/1.1\r\nHost: 1\r\nTransfer-Encoding\t: chunked\r\n\r\n",
    "chunks of a GET": b"GET /v1 HTTP/1.1\r\nHost: 1\r\nContent-Length: 9\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths of a GET": b"GET /v1 HTTP/1.1\r\nHost: 1\r\nContent-Length: 0\r\n"
    b"Content-Length: 9\r\n\r\n",
    "two hosts": b"GET /v1 HTTP/1.1\r\nHost: 127.0.0.1\r\nhost: evil.example\r\n\r\n",
    "two tokens": b"GET /v1 HTTP/1.1\r\nHost: 1\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n",
    "arguments": b"GET /v1?" + b"a=1&" * 500 + b" HTTP/1.1\r\nHost: 1\r\n\r\n",
    "many arguments": b"GET /v1/data/data/manifest?"
    + b"&" * 8000
    + b" HTTP/1.1\r\nHost: 1\r\n\r\n",
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_what_may_be_read_in_two_ways_is_refused(node: Node, name: str) -> None:
    smuggled = b"GET /healthz HTTP/1.1\r\nHost: 1\r\n\r\n"
    with node.connect() as peer:
        peer.sendall(AMBIGUOUS[name] + smuggled)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while piece := peer.recv(65536):
                answer += piece
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1  # and the connection is closed
    assert b"Connection: close" in answer
    assert node.get("/healthz").read() == b"ok\n"


def test_arguments_are_read_up_to_a_number(node: Node) -> None:
    assert node.ask("GET", "/v1/data/data/manifest?" + "a=1&" * 15 + "page=0")[0] == 200
    assert node.ask("GET", "/v1/data/data/manifest?" + "a=1&" * 16 + "page=0")[0] == 400


def test_a_body_that_never_ends_is_cut_off(node: Node) -> None:
    with node.connect() as peer, contextlib.suppress(OSError):
        peer.sendall(
            b"POST /v1/data/data/samples HTTP/1.1\r\nHost: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for _ in range(2000):
            peer.sendall(b"8000\r\n" + bytes(0x8000) + b"\r\n")
        pytest.fail("64 MB were accepted")
    assert node.get("/healthz").read() == b"ok\n"


def with_links(place: Path) -> Path:
    """A folder with links that stay inside, to a file and a directory, and links out of it."""
    secret = place / "private" / "secret.jpg"
    secret.parent.mkdir()
    secret.write_bytes(b"this is not for everyone")
    root = place / "root"
    (root / "a").mkdir(parents=True)
    (root / "a" / "fine.jpg").write_bytes(b"fine")
    (root / "a" / "inside.jpg").symlink_to("fine.jpg")
    (root / "b").symlink_to("a")
    (root / "a" / "absolute.jpg").symlink_to(secret)
    (root / "a" / "relative.jpg").symlink_to("../../private/secret.jpg")
    (root / "c").symlink_to("../private")
    return root


def test_links_out_of_the_root_are_not_even_told_of(tmp_path: Path) -> None:
    with serving(with_links(tmp_path)) as node:
        assert "left out: 5" in node.process.stderr.readline()  # two of them by two ways
        about = json.load(node.get("/v1/data/root"))
        assert (about["count"], about["classes"], about["bytes"]) == (4, ["a", "b"], 16)
        page = node.get("/v1/data/root/manifest?page=0").read()
        assert [b"a/inside" in page, b"b/inside" in page] == [True, True]
        assert not any(name in page for name in (b"absolute", b"relative", b"secret", b"c/"))
        for number in range(4):
            assert node.get(f"/v1/data/root/samples/{number}").read() == b"fine"
        assert node.ask("GET", "/v1/data/root/samples/4")[0] == 404


def test_files_that_become_links_out_of_the_root_are_refused(tmp_path: Path) -> None:
    root = with_links(tmp_path)
    with serving(root) as node:
        (root / "a" / "fine.jpg").unlink()
        (root / "a" / "fine.jpg").symlink_to("../../private/secret.jpg")
        for number in range(4):
            status, _, body = node.ask("GET", f"/v1/data/root/samples/{number}")
            assert status == 404
            assert "leads out of the directory" in json.loads(body)["error"]
        items = [[number, 0, 0, 0, 1] for number in range(4)]
        frames = frames_of(node.ask("POST", "/v1/data/root/samples", order(items))[2])
        assert [frames[number][1] for number in range(4)] == [-13] * 4
        assert not any(b"everyone" in body for _, _, body in frames.values())


def test_rows_of_a_manifest_that_lead_out_are_refused(tmp_path: Path) -> None:
    rows = with_links(tmp_path) / "rows.csv"
    rows.write_text(
        "path,label\na/fine.jpg,0\na/absolute.jpg,1\na/relative.jpg,1\nc/secret.jpg,2\n"
    )
    with serving("--name", "rows", rows) as node:
        answers = [node.ask("GET", f"/v1/data/rows/samples/{number}") for number in range(4)]
    assert sorted(status for status, _, _ in answers) == [200, 404, 404, 404]
    for status, _, body in answers:
        assert body == b"fine" if status == 200 else b"leads out of the directory" in body


def test_errors_do_not_tell_where_the_data_lies(folder: Path, shard: Path, tmp_path: Path) -> None:
    data = shutil.copytree(folder, tmp_path / "secret" / "data")
    tars = [shutil.copy(shard, tmp_path / "secret" / f"{name}.tar") for name in ("gone", "changed")]
    with serving(data, *tars) as node:
        shutil.rmtree(data / "ant")
        tars[0].unlink()
        tars[1].write_bytes(b"short")
        for name in ("data", "gone", "changed"):  # for good: clients need not ask again
            status, _, body = node.ask("GET", f"/v1/data/{name}/samples/0")
            assert status == 404
            assert b"ant/0000" in body and b"secret" not in body
            body = node.ask("POST", f"/v1/data/{name}/samples", order([[0, 0, 0, 0, 1]]))[2]
            _, status, text = frames_of(body)[0]
            assert status == -13
            assert b"ant/0000" in text and b"secret" not in text


# ---- who may ask ----


def test_beyond_this_machine_needs_a_token_or_tls(folder: Path) -> None:
    assert "token, or TLS" in refused("--listen", "0.0.0.0:0", folder)
    assert "token, or TLS" in refused("--listen", "[::]:0", folder)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:7470", 200),
        ("[::1]", 200),
        ("[::1]:7470", 200),
        ("localhost:80", 200),
        ("evil.example", 403),
        ("127.0.0.1:evil.example", 403),
        ("localhost:80@evil.example", 403),
        ("[::1]:evil.example", 403),
        ("[::1].evil.example", 403),
        ("[evil.example]", 403),
    ],
)
def test_pages_of_others_cannot_read_what_is_served_here(
    node: Node, host: str, status: int
) -> None:
    assert node.ask("GET", "/v1", Host=host)[0] == status


def test_a_token_is_wanted(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    with serving("--name", "data", folder, "--token-file", file) as node:
        assert node.get("/healthz").read() == b"ok\n"
        for path in ("/v1", "/metrics", "/v1/data/data/samples/0", "/none"):
            assert node.ask("GET", path)[0] == 401
            assert node.ask("GET", path, Authorization=f"Bearer {TOKEN}x")[0] == 401
            assert node.ask("GET", path, Authorization=f"Bearer {TOKEN[:-1]}")[0] == 401
        status, headers, _ = node.ask("POST", "/v1/data/data/samples", order([[0, 0, 0, 0, 1]]))
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
        assert node.ask("GET", "/v1", Authorization=f"Bearer {TOKEN}")[0] == 200


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1")
def test_tls(folder: Path, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert,
         "-days", "2", "-subj", "/CN=node", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    assert "its key" in refused(folder, "--tls-cert", cert)
    with serving("--name", "data", folder, "--tls-cert", cert, "--tls-key", key) as node:
        trusting = ssl.create_default_context(cafile=str(cert))
        with urllib.request.urlopen(f"{node.url}/v1", context=trusting, timeout=60) as answer:
            assert json.load(answer)["server"] == "penstock"
        body = order([[number, 0, 0, 0, 1] for number in range(20)])
        request = urllib.request.Request(f"{node.url}/v1/data/data/samples", body)
        with urllib.request.urlopen(request, context=trusting, timeout=60) as answer:
            assert len(frames_of(answer.read())) == 20
        with pytest.raises(urllib.error.URLError, match="certificate"):
            urllib.request.urlopen(f"{node.url}/v1", timeout=60)
        old = ssl.create_default_context(cafile=str(cert))
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((OSError, urllib.error.URLError)):
            urllib.request.urlopen(f"{node.url}/v1", context=old, timeout=60)
        with node.connect() as plain, contextlib.suppress(OSError):
            plain.sendall(b"GET /v1 HTTP/1.1\r\nHost: 1\r\n\r\n")
            assert b"penstock" not in plain.recv(1000)


# ---- limits ----


def test_a_thousand_idle_connections_do_not_stop_a_good_client(node: Node) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2500:
        pytest.skip("not enough descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2500, hard))
    idle: list[socket.socket] = []
    try:
        for number in range(1000):
            idle.append(node.connect())
            if number % 3 == 1:
                idle[-1].sendall(b"POST /v1/data/da")
            if number % 3 == 2:
                idle[-1].sendall(
                    b"POST /v1/data/data/samples HTTP/1.1\r\nHost: 1\r\nContent-Length: 9\r\n\r\n{"
                )
        until(lambda: node.metric("connections") > 1000)  # they are held, not turned away
        items = [[number % 23, 0, 0, 0, 1] for number in range(100)]
        for _ in range(5):
            status, _, body = node.ask("POST", "/v1/data/data/samples", order(items))
            assert status == 200
            assert len(frames_of(body)) == 100
        assert node.metric("connections") > 1000
    finally:
        for peer in idle:
            peer.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_who_does_not_read_is_cut_off_and_holds_up_nobody(tmp_path: Path) -> None:
    root = tmp_path / "large" / "a"
    root.mkdir(parents=True)
    for number in range(8):
        (root / f"{number}.jpg").write_bytes(os.urandom(2_000_000))
    with serving(root.parent, "--slow", 2, "--buffer", "1MiB", "--cpus", 1) as node:
        body = order([[number % 8, 0, 0, 0, 1] for number in range(256)])  # half a gigabyte
        head = b"POST /v1/data/large/samples HTTP/1.1\r\nHost: 1\r\nContent-Length: %d\r\n\r\n"
        deaf = [node.connect() for _ in range(6)]
        for peer in deaf:
            peer.sendall(head % len(body) + body)
        status, _, answer = node.ask("POST", "/v1/data/large/samples", order([[3, 0, 0, 0, 1]]))
        assert (status, len(answer)) == (200, 36 + 48 + 2_000_000)
        wanted = ("cut_connections_total 6", "buffered_bytes 0", "waiting_items 0")
        deadline = time.monotonic() + 60
        while not all(f"penstock_node_{line}\n" in metrics(node) for line in wanted):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        for peer in deaf:
            peer.close()


def test_who_asks_too_often_is_told(folder: Path) -> None:
    with serving(folder, "--rate", 1) as node:
        answers = [node.ask("GET", "/v1")[:2] for _ in range(12)]
        assert answers[0][0] == 200
        assert answers[-1][0] == 429
        assert int(answers[-1][1]["Retry-After"]) >= 1


# ---- the end ----


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_while_clients_ask(folder: Path, number: signal.Signals) -> None:
    call = [str(COMMAND), "serve", "--listen", "127.0.0.1:0", "--name", "data", str(folder)]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as process:
        node = Node(process, process.stdout.readline().split()[-1])
        is_over = threading.Event()

        def keep_asking() -> None:
            body = order([[number, 0, 0, 0, 1] for number in range(20)])
            while not is_over.is_set():
                with contextlib.suppress(OSError, http.client.HTTPException):
                    node.ask("POST", "/v1/data/data/samples", body)

        clients = [threading.Thread(target=keep_asking) for _ in range(4)]
        for client in clients:
            client.start()
        with node.connect():  # an idle one
            time.sleep(0.3)
            process.send_signal(number)
            assert process.wait(timeout=30) == 0
        is_over.set()
        for client in clients:
            client.join()


def test_wrong_use_is_told(folder: Path, tmp_path: Path) -> None:
    assert "DATASET" in refused()
    assert "no such file" in refused(tmp_path / "none")
    assert "no name for a dataset" in refused("--name", "a/b", folder)
    assert "two datasets" in refused(folder, folder)
    assert "before its dataset" in refused(folder, "--name", "x")
    assert "--cpus" in refused(folder, "--cpus", "0")
    assert "127.0.0.1:7470" in refused(folder, "--listen", "nowhere")
    assert "names are not looked up" not in refused(folder, "--listen", "127.0.0.1:99999")
    assert "names are not looked up" not in refused(folder, "--listen", "10.0.0.256:7470")
    assert "names are not looked up" in refused(folder, "--listen", "nohost.invalid:1")
    assert "cannot read" in refused(folder, "--token-file", tmp_path / "none")
    token = tmp_path / "token"
    for text, words in ((b"one\ntwo\n", "more than one line"), (b"o\0ne", "it is no text")):
        token.write_bytes(text)
        assert words in refused(folder, "--token-file", token)
    for option in ("memory", "buffer", "max-header", "rate", "idle", "slow", "item-timeout"):
        assert f"--{option} takes" in refused(folder, f"--{option}", "0.01")
        assert f"--{option} takes" in refused(folder, f"--{option}", "1e19")
