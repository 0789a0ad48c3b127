"""A storage node that is not ours: the protocol of docs/protocol.md on Python's http.server.

It serves stored files and fields as they are, and it can be told to misbehave in every way a network or a broken
server might.  In a test it is an object with threads; as a program it can be killed and paused:

    python node_double.py PORT NAME=PATH...
"""

import gzip
import json
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import penstock

PAGE = 7  # samples: several pages even of a small dataset
CRC_TABLE = []
for number in range(256):
    for _ in range(8):
        number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
    CRC_TABLE.append(number)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def raw_parcel(data: bytes) -> bytes:
    """A head that says nothing of the image, and the stored file."""
    return struct.pack("<4BI4iQ8B2i", 1, 0, 0, 0, len(data), *[0] * 4, len(data), *[0] * 10) + data


FRAME_HEAD, PARCEL_HEAD = 36, 48
FIELDS = ("image", "cls", "json", "txt")


def raw_field(name: str, data: bytes, form: int = 0, length: int | None = None) -> bytes:
    """A field's head, and its bytes or what is given for them."""
    length = len(data) if length is None else length
    return struct.pack("<4BI", 1, form, FIELDS.index(name), 0, length) + data


def frame(index: int, sample: int, status: int, body: bytes, crc: int | None = None) -> bytes:
    crc = crc32c(body) if crc is None else crc
    head = struct.pack("<4sIQiIII", b"PENF", index, sample, status, len(body), crc, 1000)
    return head + struct.pack("<I", crc32c(head)) + body


def describe(about: dict[str, Any]) -> bytes:
    """A description, sealed: its last value is the checksum of all before that one's comma."""
    text = json.dumps(about)[:-1].encode()
    return text + f', "crc32c": "{crc32c(text):08x}"}}\n'.encode()


def sample_of(sent: bytes) -> int:
    return int(struct.unpack_from("<Q", sent, 8)[0])


def body_of(sent: bytes) -> bytes:
    return sent[FRAME_HEAD:]


class Shelf:
    """A dataset as a node sees it."""

    def __init__(self, dataset: penstock.Dataset) -> None:
        self.dataset = dataset
        self.parcels: dict[int, tuple[bytes, int]] = {}

    def describe(self, name: str) -> dict[str, Any]:
        ds = self.dataset
        return {
            "name": name, "count": len(ds), "bytes": ds.nbytes, "hash": ds.hash,
            "kind": ds.kind, "classes": ds.classes, "page": PAGE, "unknown": None,
        }  # fmt: skip

    def fields(self, sample: int) -> bytes:
        """Which a sample has, and how long they are."""
        found = {i: self.dataset.field(sample, FIELDS[i]) for i in range(1, len(FIELDS))}
        there = {i: len(data) for i, data in found.items() if data is not None}
        mask = sum(1 << i for i in there)
        return struct.pack(f"<B{len(there)}I", mask, *there.values())

    def page(self, number: int, has_fields: bool = False) -> bytes:
        ids = range(number * PAGE, min((number + 1) * PAGE, len(self.dataset)))
        text = struct.pack("<4sIQII", b"PENM", 1, number * PAGE, len(ids), 2 * has_fields)
        for sample in ids:
            key = self.dataset.key(sample).encode()
            length = len(self.dataset.read(sample))
            text += struct.pack("<QqH", length, self.dataset.label(sample), len(key))
            text += (self.fields(sample) if has_fields else b"") + key
        return text + struct.pack("<I", crc32c(text))

    def frame(self, index: int, sample: int, name: Any = None) -> bytes:
        if isinstance(name, str):
            data = self.dataset.field(sample, name)
            if data is None:
                return frame(index, sample, -13, b"has no such field")
            return frame(index, sample, 0, raw_field(name, data))
        if not 0 <= sample < len(self.dataset):
            return frame(index, sample, -2, b"no such sample")
        if sample not in self.parcels:
            parcel = raw_parcel(self.dataset.read(sample))
            self.parcels[sample] = parcel, crc32c(parcel)
        parcel, crc = self.parcels[sample]
        return frame(index, sample, 0, parcel, crc)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    node: "Node"
    body = b""

    def log_message(self, *_: object) -> None:
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:  # the client went away, or we did
            self.close_connection = True

    def send_response(self, code: int, message: str | None = None) -> None:
        """Every answer says what it answers."""
        super().send_response(code, message)
        if self.node.says_what_it_was_asked:
            target = getattr(self, "path", "")  # what is no HTTP has none
            asked = crc32c(target.encode() + self.body)
            self.send_header("Penstock-Asked", f"{asked:08x}")

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status: int, why: str, **headers: str) -> None:
        self.reply(status, json.dumps({"error": why}).encode(), **headers)

    def is_welcome(self) -> bool:
        self.node.seen.append((self.command, self.path))
        token = self.node.token
        if token and self.headers.get("Authorization") != f"Bearer {token}":
            self.refuse(401, "wrong token")
            return False
        return True

    def do_GET(self) -> None:
        self.body = b""
        if not self.is_welcome():
            return
        path, _, query = self.path.partition("?")
        parts = path.strip("/").split("/")
        shelf = self.node.shelves.get(parts[2]) if parts[:2] == ["v1", "data"] else None
        if not shelf:
            self.refuse(404, "no such dataset")
        elif self.node.drips:
            self.drip()
        elif len(parts) == 3:
            about = self.node.spoil_description(describe(shelf.describe(parts[2]) | self.node.lies))
            self.reply(200, about)
        else:
            asked = parse_qs(query)
            has_fields = self.node.knows_fields and asked.get("fields") == ["1"]
            page = self.node.spoil_page(shelf.page(int(asked["page"][0]), has_fields))
            if "gzip" in self.headers.get("Accept-Encoding", ""):
                self.reply(200, gzip.compress(page), Content_Encoding="gzip")
            else:
                self.reply(200, page)

    def drip(self) -> None:
        """A byte now and then, and no end."""
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        while not self.node.released.wait(0.002):
            self.wfile.write(b" ")

    def do_PUT(self) -> None:
        self.body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.is_welcome():
            return
        if self.node.refuses_pipelines or not json.loads(self.body).get("ops"):
            self.refuse(422, "another numerics version")
            return
        self.node.pipelines.add(self.path.rpartition("/")[2])
        self.reply(201, b"")

    def do_POST(self) -> None:
        self.body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.is_welcome():
            return
        order = json.loads(self.body)
        shelf = self.node.shelves.get(self.path.split("/")[3])
        if not shelf:
            self.refuse(404, "no such dataset")
        elif order["pipeline"] and order["pipeline"] not in self.node.pipelines:
            self.refuse(404, "no such pipeline")
        elif order["hash"] != shelf.dataset.hash:
            self.refuse(409, "the dataset is another one")
        elif not self.node.knows_fields and any(len(item) != 5 for item in order["items"]):
            self.refuse(400, "item 0 is not [id, epoch, occurrence, max_cut, forms]")
        else:
            self.node.n_posts += 1
            self.node.orders.append(order)
            frames = [shelf.frame(i, *item[:2]) for i, item in enumerate(order["items"])]
            self.node.misbehave(self, frames)

    # ---- what may be done with frames ----

    def send_chunk(self, chunk: bytes) -> None:
        self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")

    def send_chunks(self, chunks: list[bytes], is_whole: bool = True) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/vnd.penstock.frames")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in chunks:
            self.send_chunk(chunk)
        if is_whole:
            self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def hang_up(self, is_reset: bool) -> None:
        """End the connection, with RST or in order."""
        if is_reset:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_WR if not is_reset else socket.SHUT_RD)
        self.connection.close()


def behave(handler: Handler, frames: list[bytes]) -> None:
    handler.send_chunks(frames)


def reset_at_once(handler: Handler, _: list[bytes]) -> None:
    handler.hang_up(is_reset=True)


def reset_within(handler: Handler, frames: list[bytes]) -> None:
    stream = b"".join(frames)
    handler.send_chunks([stream[: len(stream) * 2 // 3]], is_whole=False)
    handler.hang_up(is_reset=True)


def cut_a_frame(handler: Handler, frames: list[bytes]) -> None:
    """A well-formed answer that ends within its last frame."""
    handler.send_chunks([*frames[:-1], frames[-1][:-5]])


def cut_a_head(handler: Handler, frames: list[bytes]) -> None:
    handler.send_chunks([*frames[:-1], frames[-1][:17]])


def leave_one_out(handler: Handler, frames: list[bytes]) -> None:
    handler.send_chunks(frames[:-1])


def flip_a_body_bit(handler: Handler, frames: list[bytes]) -> None:
    spoiled = bytearray(frames[0])
    spoiled[-1] ^= 4
    handler.send_chunks([bytes(spoiled), *frames[1:]])


def flip_a_head_bit(handler: Handler, frames: list[bytes]) -> None:
    spoiled = bytearray(frames[0])
    spoiled[21] ^= 1  # of the length
    handler.send_chunks([bytes(spoiled), *frames[1:]])


def send_twice(handler: Handler, frames: list[bytes]) -> None:
    handler.send_chunks([frames[0], *frames])


def send_backwards_in_crumbs(handler: Handler, frames: list[bytes]) -> None:
    """Not wrong at all: any order, any chunks."""
    stream = b"".join(reversed(frames))
    handler.send_chunks([stream[i : i + 701] for i in range(0, len(stream), 701)])


def send_another_sample(handler: Handler, frames: list[bytes]) -> None:
    wrong = frame(0, sample_of(frames[0]) + 1, 0, body_of(frames[0]))
    handler.send_chunks([wrong, *frames[1:]])


def send_unasked(handler: Handler, frames: list[bytes]) -> None:
    handler.send_chunks([*frames, frame(len(frames), 0, 0, body_of(frames[0]))])


def resend(handler: Handler, frames: list[bytes], body: bytes) -> None:
    """Another body for the first sample, in a frame that is right."""
    handler.send_chunks([frame(0, sample_of(frames[0]), 0, body), *frames[1:]])


def send_too_much(handler: Handler, frames: list[bytes]) -> None:
    resend(handler, frames, raw_parcel(body_of(frames[0])[PARCEL_HEAD:] + b"x"))


def send_too_little(handler: Handler, frames: list[bytes]) -> None:
    resend(handler, frames, raw_parcel(body_of(frames[0])[PARCEL_HEAD:-1]))


def send_another_form(handler: Handler, frames: list[bytes], form: int) -> None:
    parcel = bytearray(body_of(frames[0]))
    parcel[1] = form
    resend(handler, frames, bytes(parcel))


def send_an_unknown_form(handler: Handler, frames: list[bytes]) -> None:
    send_another_form(handler, frames, 99)


def send_a_form_that_was_not_asked_for(handler: Handler, frames: list[bytes]) -> None:
    """A head that could be: the file's bytes as coded ones, of an ordinary picture."""
    data = body_of(frames[0])[PARCEL_HEAD:]
    image = struct.pack("<8B2i", 1, 3, 8, 1, 0, 1, 1, 0, 8, 8)
    head = struct.pack("<4BI4iQ", 1, 5, 0, 0, len(data), *[0] * 4, len(data))
    resend(handler, frames, head + image + data)


def send_pixels_of_another_cut(handler: Handler, frames: list[bytes]) -> None:
    """A head that could be: pixels behind more operations than were asked for."""
    n_bytes, cut = len(body_of(frames[0])) - PARCEL_HEAD, 64
    image = struct.pack("<8B2i", 1, 3, 8, 1, 0, 1, 1, 0, 8, 8)
    head = struct.pack("<4BI4iQ", 1, 2, cut, 3, 8 * 8 * 3, 0, 0, 8, 8, n_bytes)
    resend(handler, frames, head + image + bytes(8 * 8 * 3))


def send_garbage(handler: Handler, frames: list[bytes]) -> None:
    handler.send_chunks([b"<html>It works!</html>" * 9])


def fail_a_read(handler: Handler, frames: list[bytes]) -> None:
    sample = sample_of(frames[0])
    handler.send_chunks([frame(0, sample, -4, b"the disk is unwell"), *frames[1:]])


def decline(status: int) -> Callable[[Handler, list[bytes]], None]:
    """Say of all samples that they cannot be had."""

    def say_no(handler: Handler, frames: list[bytes]) -> None:
        ids = map(sample_of, frames)
        handler.send_chunks(
            [frame(i, sample, status, b"there is none") for i, sample in enumerate(ids)]
        )

    return say_no


def send_a_strange_status(handler: Handler, frames: list[bytes]) -> None:
    sample = sample_of(frames[0])
    handler.send_chunks([frame(0, sample, 7, b"?"), *frames[1:]])


def stall(handler: Handler, frames: list[bytes]) -> None:
    """Half an answer, and then nothing for long."""
    handler.send_chunks([frames[0][:40]], is_whole=False)
    handler.node.released.wait(30)
    handler.close_connection = True


def trickle(handler: Handler, frames: list[bytes]) -> None:
    """Bytes all the time, and next to nothing."""
    handler.send_chunks([frames[0][:40]], is_whole=False)
    while not handler.node.released.wait(0.05):
        handler.send_chunk(b"x")
    handler.close_connection = True


def be_overloaded(handler: Handler, _: list[bytes]) -> None:
    handler.refuse(503, "too much to do", Retry_After="0")


def be_limited(handler: Handler, _: list[bytes]) -> None:
    handler.refuse(429, "too many requests", Retry_After="1")


def be_private(handler: Handler, _: list[bytes]) -> None:
    handler.refuse(403, "not for you")


def be_broken(handler: Handler, _: list[bytes]) -> None:
    handler.refuse(500, "something is broken")


def redirect(handler: Handler, _: list[bytes]) -> None:
    handler.reply(302, b"", Location="http://127.0.0.1:9/")


MISDEEDS = [
    reset_at_once, reset_within, cut_a_frame, cut_a_head, leave_one_out, flip_a_body_bit,
    flip_a_head_bit, send_twice, send_backwards_in_crumbs, send_another_sample, send_unasked,
    send_too_much, send_too_little, send_an_unknown_form, send_a_form_that_was_not_asked_for,
    send_pixels_of_another_cut, send_garbage, fail_a_read, send_a_strange_status, stall, be_overloaded, be_limited, be_broken, redirect,
]  # fmt: skip


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        pass

    def process_request(self, request: Any, address: Any) -> None:
        self.open_connections.add(request)
        super().process_request(request, address)

    def shutdown_request(self, request: Any) -> None:
        self.open_connections.discard(request)
        super().shutdown_request(request)


class Node:
    """A node on loopback.  `misbehave(handler, frames)` sends the answer to a POST."""

    def __init__(
        self, token: str = "", context: ssl.SSLContext | None = None, port: int = 0, **data: Any
    ) -> None:
        self.shelves = {name: Shelf(penstock.Dataset(path)) for name, path in data.items()}
        self.token, self.context = token, context
        self.misbehave: Callable[[Handler, list[bytes]], None] = behave
        self.spoil_page: Callable[[bytes], bytes] = lambda page: page
        self.spoil_description: Callable[[bytes], bytes] = lambda text: text
        self.lies: dict[str, Any] = {}
        self.refuses_pipelines = False
        self.says_what_it_was_asked = True
        self.drips = False  # instead of telling what it holds
        self.knows_fields = True  # as nodes did not at first
        self.pipelines: set[str] = set()
        self.seen: list[tuple[str, str]] = []
        self.orders: list[dict[str, Any]] = []
        self.n_posts = 0
        self.released = threading.Event()
        self.port = port
        self.start()

    def start(self) -> None:
        handler = type("Handler", (Handler,), {"node": self})
        self.server = Server(("127.0.0.1", self.port), handler, bind_and_activate=False)
        self.server.open_connections = set()
        self.server.allow_reuse_address = True
        self.server.server_bind()
        self.server.server_activate()
        if self.context:
            self.server.socket = self.context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """As if it was killed: no more connections, and those there are break."""
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
        for connection in list(self.server.open_connections):
            try:
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.released.clear()
        self.pipelines.clear()  # a new process would not know them

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, name: str) -> str:
        return f"penstock{'s' if self.context else ''}://{self.address}/{name}"

    def __enter__(self) -> "Node":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def main() -> None:
    Node(port=int(sys.argv[1]), **dict(argument.split("=", 1) for argument in sys.argv[2:]))
    print("ready", flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
