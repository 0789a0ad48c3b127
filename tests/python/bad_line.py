"""A way to a server on which connections end and bits flip."""

import contextlib
import random
import select
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable

PIECE = 2048
REPLY_MISDEEDS = ("cut", "reset", "flip")
REQUEST_MISDEEDS = ("cut request", "reset request", "flip request")


class Hung(Exception):
    """The line was hung up."""


class Line:
    """The places are those that a seed chooses: the n-th misdeed is the same whenever it happens.

    Replies are spoiled in frames, behind the head of the answer, of which nothing has a checksum;
    requests anywhere.  One thread has both ends of a connection, so that it can be reset: while
    another thread reads from a socket, closing it sends nothing.
    """

    def __init__(self, port: int, seed: int, share: float = 0.05, most: int = 1 << 30) -> None:
        self.to_port, self.chance, self.share = port, random.Random(seed), share
        self.misdeeds: list[str] = []  # a line is good until it has some
        self.n_done: Counter[str] = Counter()
        self.most = most  # misdeeds
        self.at: Callable[[bytes], int | None] = self.anywhere  # where a bit of a request flips
        self.lock = threading.Lock()  # guards chance and n_done
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)  # who accepts there leaves
        self.listener.close()

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def anywhere(self, piece: bytes) -> int | None:
        return self.chance.randrange(len(piece))

    def accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self.join_to_server, args=(client,), daemon=True).start()

    def join_to_server(self, client: socket.socket) -> None:
        with (
            client,
            contextlib.suppress(OSError, Hung),
            socket.create_connection(("127.0.0.1", self.to_port)) as server,
        ):
            while True:
                for end in select.select([client, server], [], [])[0]:
                    self.carry(end, client, server)

    def carry(self, source: socket.socket, client: socket.socket, server: socket.socket) -> None:
        piece = source.recv(PIECE)
        if not piece:
            raise Hung
        is_request = source is client
        kept, misdeed = self.spoil(piece, is_request)
        (server if is_request else client).sendall(kept)
        if misdeed.startswith("reset"):
            for end in (client, server):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if not misdeed.startswith("flip") and misdeed:
            raise Hung

    def spoil(self, piece: bytes, is_request: bool) -> tuple[bytes, str]:
        """What of it gets through, and what was done."""
        possible = REQUEST_MISDEEDS if is_request else REPLY_MISDEEDS
        with self.lock:
            misdeeds = [misdeed for misdeed in self.misdeeds if misdeed in possible]
            is_over = self.n_done.total() >= self.most
            if not misdeeds or is_over or self.chance.random() > self.share:
                return piece, ""
            misdeed = self.chance.choice(misdeeds)
            at = self.at(piece) if misdeed == "flip request" else self.anywhere(piece)
            if at is None or (misdeed == "flip" and piece.startswith(b"HTTP")):
                return piece, ""
            self.n_done[misdeed] += 1
            if not misdeed.startswith("flip"):
                return piece[:at], misdeed
            bit = 1 << self.chance.randrange(8)
            return piece[:at] + bytes([piece[at] ^ bit]) + piece[at + 1 :], misdeed
