"""What a storage node does not let one client take from others: memory, places, processor time."""

import socket
from pathlib import Path

import pytest
from node_process import Node, order, serving, until


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
    with serving(root, "--memory", "40MiB", "--slow", 0.3, "--cpus", 1) as node:
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
