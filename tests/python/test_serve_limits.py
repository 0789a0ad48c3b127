"""What a storage node does not let one client take from others: memory, places, processor time."""

import contextlib
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from node_process import Node, frames_of, order, refused, serving, until
from PIL import Image

import penstock
from penstock.sample import pipeline as compiled


def large(root: Path, size: int, count: int = 1) -> Path:
    """Files that are no pictures: they travel as they are."""
    (root / "large").mkdir(parents=True)
    for number in range(count):
        (root / "large" / f"{number}.jpg").write_bytes(bytes(range(256)) * (size // 256))
    return root


def request(method: str, path: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: 1\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def deaf(node: Node, data: bytes, address: str = "127.0.0.1") -> socket.socket:
    """A client that asks and does not read."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 15)
    peer.settimeout(60)
    peer.bind((address, 0))
    peer.connect((node.host, node.port))
    peer.sendall(data)
    return peer


def close(peers: list[socket.socket]) -> None:
    for peer in peers:
        peer.close()


# ---- memory ----


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_samples_that_nobody_reads_stay_within_memory(tmp_path: Path, method: str) -> None:
    root = large(tmp_path / "data", 8_000_000)
    limits = ["--memory", "40MiB", "--slow", 0.3, "--item-timeout", 60]  # all get their turn
    with serving(root, *limits, "--cpus", 1) as node:
        if method == "GET":
            data = request("GET", "/v1/data/data/samples/0")
        else:
            data = request("POST", "/v1/data/data/samples", order([[0, 0, 0, 0, 1]]))
        peers = [deaf(node, data) for _ in range(24)]
        until(lambda: node.metric("cut_connections_total") == len(peers))
        assert node.memory("VmHWM") < 120e6  # they asked for 192 MB
        close(peers)
        until(lambda: node.metric("buffered_bytes") == 0)
        assert len(node.get("/v1/data/data/samples/0").read()) == 8_000_000


def test_a_description_that_nobody_reads_is_there_once(tmp_path: Path) -> None:
    for number in range(2000):
        place = tmp_path / "data" / f"{number:04}{chr(1) * 240}"  # six letters each, in JSON
        place.mkdir(parents=True)
        (place / "0.jpg").write_bytes(b"x")
    with serving(tmp_path / "data", "--cpus", 1) as node:
        assert len(node.get("/v1/data/data").read()) > 2_800_000
        before = node.memory("VmHWM")
        peers = [deaf(node, request("GET", "/v1/data/data") * 4) for _ in range(40)]
        until(lambda: node.metric('responses_total{status="200"}') > len(peers))
        assert node.memory("VmHWM") < before + 30e6  # they asked for 112 MB, four times
        close(peers)


def test_metrics_that_nobody_reads_are_counted(tmp_path: Path) -> None:
    root = large(tmp_path / "data", 256)
    with serving(root) as node:
        assert node.metric("buffered_bytes") == 0
        peer = deaf(node, request("GET", "/metrics") * 3000)  # until the kernel takes no more
        until(lambda: node.metric("buffered_bytes") > 1000)
        peer.close()
        until(lambda: node.metric("buffered_bytes") == 0)


def test_who_finds_no_memory_in_time_is_told_and_others_find_some(tmp_path: Path) -> None:
    root = large(tmp_path / "data", 8_000_000)
    path = "/v1/data/data/samples/0"
    with serving(root, "--memory", "20MiB", "--item-timeout", 2) as node:
        peers = [deaf(node, request("GET", path))]  # it has almost half of the memory
        assert peers[0].recv(12) == b"HTTP/1.1 200"
        status, headers, _ = node.ask("GET", path)
        assert status == 503
        assert int(headers["Retry-After"]) >= 1
        peers.append(deaf(node, request("GET", path), "127.0.0.2"))
        assert peers[1].recv(12) == b"HTTP/1.1 200"
        close(peers)


def test_memory_of_a_burst_is_given_back(tmp_path: Path) -> None:
    root = large(tmp_path / "data", 8_000_000)
    with serving(root, "--cpus", 1) as node:
        before = node.memory("VmRSS")
        data = request("POST", "/v1/data/data/samples", order([[0, 0, 0, 0, 1]] * 3))
        peers = [deaf(node, data) for _ in range(4)]
        for peer in peers:
            left = 24_000_000
            while left > 0:
                piece = peer.recv(1 << 20)
                assert piece
                left -= len(piece)
        assert node.memory("VmHWM") > before + 40e6
        until(lambda: node.memory("VmRSS") < before + 20e6)
        close(peers)


# ---- places ----


def test_too_many_requests_at_once_are_told(tmp_path: Path) -> None:
    root = large(tmp_path / "data", 2_000_000)
    with serving(root, "--max-requests", 1) as node:
        peer = deaf(node, request("POST", "/v1/data/data/samples", order([[0, 0, 0, 0, 1]] * 100)))
        assert peer.recv(12) == b"HTTP/1.1 200"
        status, headers, _ = node.ask("GET", "/v1/data/data/samples/0")
        assert status == 503
        assert int(headers["Retry-After"]) >= 1
        assert node.get("/healthz").read() == b"ok\n"
        peer.close()


def test_bodies_that_never_come_take_no_place(folder: Path) -> None:
    with serving("--name", "data", folder, "--max-requests", 1) as node:
        peers = [node.connect() for _ in range(5)]
        for peer in peers:
            peer.sendall(request("POST", "/v1/data/data/samples", b"{}")[:-1])
        until(lambda: node.metric('requests_total{route="samples"}') == len(peers))
        assert node.ask("GET", "/v1/data/data/samples/0")[0] == 200
        close(peers)


def test_a_client_leaves_places_to_others(tmp_path: Path) -> None:
    root = large(tmp_path / "data", 2_000_000)
    data = request("POST", "/v1/data/data/samples", order([[0, 0, 0, 0, 1]] * 100))
    with serving(root, "--max-requests", 4) as node:
        answers, peers = [], []
        for address in ("127.0.0.1",) * 4 + ("127.0.0.2",) * 2:
            peers.append(deaf(node, data, address))
            answers.append(peers[-1].recv(12)[-3:])
        assert answers == [b"200", b"200", b"200", b"503", b"200", b"503"]
        close(peers)


# ---- connections ----


HEALTH = request("GET", "/healthz")


def knock(node: Node, address: str, peers: list[socket.socket]) -> bytes:
    """The status that a new connection gets, empty for one that is closed at once."""
    there = "127.0.0.1" if "." in address else "::1"
    peers.append(socket.create_connection((there, node.port), 60, (address, 0)))
    with contextlib.suppress(ConnectionError):
        peers[-1].sendall(HEALTH)
        return peers[-1].recv(12)[-3:]
    return b""


def test_connections_need_descriptors(folder: Path) -> None:
    text = refused(folder, "--max-connections", 1000, files=400)
    assert "1000" in text and "400" in text
    with serving(folder, "--max-connections", 300, files=400) as node:
        assert node.get("/healthz").read() == b"ok\n"
    with serving(folder, files=40) as node:  # the default gives way
        peers = [node.connect() for _ in range(60)]
        close(peers)
        assert knock(node, "127.0.0.2", peers) == b"200"
        close(peers)


def has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


@pytest.mark.parametrize(
    ("place", "address"),
    [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "127.0.0.1"), ("[::]:0", "::1")],
)
def test_connections_of_one_client_are_limited(
    folder: Path, tmp_path: Path, place: str, address: str
) -> None:
    if "[" in place and not has_ipv6():
        pytest.skip("no IPv6")
    token = tmp_path / "token"
    token.write_text("open-sesame")
    options = ["--listen", place, "--token-file", token, "--max-per-client", 4]
    with serving(folder, *options) as node:
        peers: list[socket.socket] = []
        assert [knock(node, address, peers) for _ in range(6)] == [b"200"] * 4 + [b"", b""]
        if "." in address:
            assert knock(node, "127.0.0.2", peers) == b"200"
        peers.pop(0).close()
        until(lambda: knock(node, address, peers) == b"200")  # once it is seen to be gone
        close(peers)


def test_one_client_has_a_quarter_of_all_connections(folder: Path) -> None:
    with serving(folder, files=40) as node:  # 30 connections
        peers: list[socket.socket] = []
        assert [knock(node, "127.0.0.1", peers) for _ in range(9)] == [b"200"] * 8 + [b""]
        assert knock(node, "127.0.0.2", peers) == b"200"
        close(peers)
    with serving(folder, "--max-per-client", 20, files=40) as node:  # as one likes
        assert [knock(node, "127.0.0.1", peers) for _ in range(9)] == [b"200"] * 9
        close(peers)


IN_A_NETWORK = """
import contextlib, socket, subprocess, sys
sys.path.insert(0, sys.argv[1])
from node_process import serving
for address in ("fd00::1", "fd00::2", "fd00::3", "fd00:0:0:1::1"):
    subprocess.run(["ip", "address", "add", address + "/64", "dev", "lo", "nodad"], check=True)
options = ["--listen", "[::]:0", "--token-file", sys.argv[3], "--max-per-client", 4]
peers, answers = [], []
with serving(sys.argv[2], *options) as node:
    for address in ["fd00::2", "fd00::3"] * 3 + ["fd00:0:0:1::1"]:
        peers.append(socket.create_connection(("fd00::1", node.port), 60, (address, 0)))
        answer = b""
        with contextlib.suppress(ConnectionError):
            peers[-1].sendall(b"GET /healthz HTTP/1.1\\r\\nHost: 1\\r\\n\\r\\n")
            answer = peers[-1].recv(12)[-3:]
        answers.append(answer.decode())
print(",".join(answers))
"""


def test_addresses_of_one_network_are_one_client(folder: Path, tmp_path: Path) -> None:
    alone = ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && "$@"', "sh"]
    if not (shutil.which("unshare") and shutil.which("ip") and has_ipv6()):
        pytest.skip("no network of its own to be had")
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no network of its own to be had")
    token = tmp_path / "token"
    token.write_text("open-sesame")
    call = [*alone, sys.executable, "-c", IN_A_NETWORK, Path(__file__).parent, folder, token]
    run = subprocess.run(call, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "200,200,200,200,,,200"


# ---- time ----


def test_who_reads_in_trickles_is_cut_off(tmp_path: Path) -> None:
    root = large(tmp_path / "data", 2_000_000)
    with (
        serving(root, "--slow", 2, "--slowest", "1GB", "--cpus", 1) as node,
        node.connect() as peer,
    ):
        data = order([[0, 0, 0, 0, 1]] * 256)  # half a gigabyte
        peer.sendall(request("POST", "/v1/data/data/samples", data))

        def is_cut() -> bool:
            with contextlib.suppress(ConnectionError):
                peer.recv(1 << 18)  # far more than a piece, again and again
            return node.metric("cut_connections_total") == 1

        until(is_cut)
        until(lambda: node.metric("buffered_bytes") == 0)
        assert node.ask("GET", "/v1/data/data/samples/0")[0] == 200


def test_frames_tell_what_sending_takes_as_well(tmp_path: Path) -> None:
    root = large(tmp_path / "data", 1_000_000)

    def told_s(node: Node) -> float:
        """Of eight samples as they are stored, by their frames."""
        body = node.ask("POST", "/v1/data/data/samples", order([[0, 0, 0, 0, 1]] * 8))[2]
        told_us = 0
        while body:
            length, _, cpu_us = struct.unpack_from("<III", body, 20)
            told_us, body = told_us + cpu_us, body[36 + length :]
        return told_us * 1e-6

    with serving(root, "--cpus", 1) as node:
        before = node.metric("work_cpu_seconds_total")
        told = told_s(node)
        assert told > node.metric("work_cpu_seconds_total") - before


def test_no_pace_at_all_may_be_asked_for(tmp_path: Path) -> None:
    root = large(tmp_path / "data", 1000)
    with serving(root, "--slowest", 0, "--cpus", 1) as node:
        assert node.ask("GET", "/v1/data/data/samples/0")[0] == 200


# ---- processor time ----


@pytest.fixture
def slow_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A picture for SLOW_LINE, which takes seconds to pack without SIMD."""
    monkeypatch.setenv("PENSTOCK_CPU", "scalar")
    place = tmp_path / "data" / "a"
    place.mkdir(parents=True)
    noise = np.random.default_rng(1).integers(0, 256, (1000, 1000, 3), dtype=np.uint8)
    Image.fromarray(noise).save(place / "0.jpg", quality=50)
    return place.parent


SLOW_LINE = compiled([penstock.GaussianBlur(31, sigma=9.0), penstock.Resize((8, 8))])


def slow_order(node: Node) -> bytes:
    path = f"/v1/pipelines/{SLOW_LINE.hash}"
    assert node.ask("PUT", path, SLOW_LINE.description.encode())[0] in (200, 201)
    return order([[0, 0, 0, 9, 0b1101]], SLOW_LINE.hash)  # raw, pixels, coded pixels


def form_of(node: Node) -> int:
    status, _, body = node.ask("POST", "/v1/data/data/samples", slow_order(node))
    assert status == 200
    _, status, parcel = frames_of(body)[0]
    assert status == 0
    return parcel[1]


def test_what_takes_too_long_to_pack_goes_out_as_it_is_stored(slow_work: Path) -> None:
    with serving(slow_work, "--cpus", 1, "--item-timeout", 1) as node:
        assert form_of(node) == 0
        assert node.metric("cancelled_items_total") == 1


def test_packing_for_who_hung_up_ends_and_is_charged(slow_work: Path) -> None:
    with serving(slow_work, "--cpus", 1, "--client-cpus", 0.001) as node:
        peer = node.connect()
        peer.sendall(request("POST", "/v1/data/data/samples", slow_order(node)))
        until(lambda: node.metric("open_requests") == 2)  # this one, and that for the metrics
        until(lambda: node.metric("waiting_items") == 0)
        peer.close()
        until(lambda: node.metric("cancelled_items_total") == 1)
        assert node.metric("open_requests") == 1
        assert node.metric("limited_items_total") == 0
        assert form_of(node) == 0  # it has used its share
        assert node.metric("limited_items_total") == 1
