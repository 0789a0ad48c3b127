"""A running `penstock serve`, for tests that ask it as any HTTP client would."""

import contextlib
import http.client
import json
import re
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

COMMAND = Path(sys.executable).with_name("penstock")


class Node:
    """A running `penstock serve`."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process = process
        self.scheme, _, place = address.partition("://")
        self.host, _, port = place.rpartition(":")
        self.port = int(port)
        self.url = address

    def get(self, path: str, **headers: str) -> http.client.HTTPResponse:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.url + path, headers=names)
        return urllib.request.urlopen(request, timeout=60)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str):
        """(status, headers, body), whatever the status."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        with contextlib.closing(connection):
            connection.request(method, path, body, names)
            answer = connection.getresponse()
            self.check_asked(answer, path, body)
            return answer.status, answer.headers, answer.read()

    def check_asked(self, answer: http.client.HTTPResponse, path: str, body: bytes | None) -> None:
        """Does it say that it is the answer to this?  What the HTTP library answers says nothing."""
        told = answer.headers["Penstock-Asked"]
        if told is not None or answer.status == 200:
            assert told == f"{crc32c(path.encode() + (body or b'')):08x}"

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=60)

    def metric(self, name: str) -> float:
        found = re.search(rf"^penstock_node_{re.escape(name)} (\S+)$", metrics(self), re.MULTILINE)
        return float(found[1])

    def memory(self, name: str) -> int:
        """Bytes of the process: VmRSS, or VmHWM, the most there ever were."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)[1]) * 1024


def command(*arguments: object, files: int | None) -> list[str]:
    """`penstock serve`, which may have so many files open."""
    limited = ["prlimit", f"--nofile={files}:{files}"] if files else []
    return [*limited, str(COMMAND), "serve", *map(str, arguments)]


@contextlib.contextmanager
def serving(*arguments: object, files: int | None = None) -> Iterator[Node]:
    call = command("--listen", "127.0.0.1:0", *arguments, files=files)
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as node:
        try:
            line = node.stdout.readline()
            assert line.startswith("serving at http"), node.stderr.read()
            yield Node(node, line.split()[-1])
            assert node.poll() is None, "it has ended by itself"
            node.send_signal(signal.SIGTERM)
            assert node.wait(timeout=60) == 0
        finally:
            node.kill()


def refused(*arguments: object, files: int | None = None) -> str:
    call = command(*arguments, files=files)
    run = subprocess.run(call, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode in (1, 2), run.stdout
    return run.stderr


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def frames_of(body: bytes) -> dict[int, tuple[int, int, bytes]]:
    """{index: (id, status, body)}; every checksum is right."""
    found = {}
    while body:
        fields = struct.unpack_from("<4sIQiIIII", body)
        magic, index, sample, status, length, crc, _, head_crc = fields
        assert magic == b"PENF"
        assert crc32c(body[:32]) == head_crc
        content, body = body[36 : 36 + length], body[36 + length :]
        assert len(content) == length
        assert crc32c(content) == crc
        assert index not in found
        found[index] = (sample, status, content)
    return found


def order(items: list[list[int]], pipeline: str | None = None, **more: object) -> bytes:
    return json.dumps({"pipeline": pipeline, "seed": "3", "items": items} | more).encode()


def metrics(node: Node) -> str:
    return node.get("/metrics").read().decode()


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)
