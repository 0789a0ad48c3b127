"""Lines on which connections end and bits flip, of answers and of requests: the stream stays what it is."""

import re
import shutil
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bad_line import Line
from node_process import Node, serving

import penstock

pytestmark = pytest.mark.usefixtures("plain_remote")


@pytest.fixture(scope="module")
def node(folder: Path) -> Iterator[Node]:
    with serving("--name", "pictures", folder) as found:
        yield found


def stream(path, line, digests, epochs=1, **options):
    loader = penstock.Loader(path, line, 4, shuffle=True, seed=5, num_workers=3, **options)
    return [digest for _ in range(epochs) for digest in digests(loader)]


# ---- the line itself ----


@pytest.fixture
def talker() -> Iterator[int]:
    """The port of one that answers whatever it hears with a hundred thousand bytes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def talk() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                try:
                    while client.recv(100):
                        client.sendall(bytes(100_000))
                except OSError:
                    pass

    thread = threading.Thread(target=talk, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def hear(port: int, length: int = 100_000) -> tuple[str, bytes]:
    """How it ended, and what came."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(b"talk")
        try:
            while len(found) < length:
                piece = client.recv(65536)
                if not piece:
                    return "end", found
                found += piece
        except ConnectionResetError:
            return "reset", found
        return "whole", found


@pytest.mark.parametrize(
    ("misdeed", "ends"),
    [("cut", "end"), ("reset", "reset"), ("cut request", "end"), ("reset request", "reset")],
)
def test_a_line_hangs_up_as_it_is_told(misdeed: str, ends: str, talker: int) -> None:
    with Line(talker, 1, share=1) as line:
        assert hear(line.port) == ("whole", bytes(100_000))
        line.misdeeds = [misdeed]
        for _ in range(10):
            how, found = hear(line.port)
            assert how == ends
            assert len(found) < 100_000
        assert line.n_done == {misdeed: 10}


def test_a_line_flips_bits(talker: int) -> None:
    with Line(talker, 1, share=0.5) as line:
        line.misdeeds = ["flip"]
        how, found = hear(line.port)
        assert how == "whole"
        assert len(found) == 100_000
        assert sum(byte.bit_count() for byte in found) == line.n_done["flip"] > 0


def test_a_line_flips_bits_of_requests() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Line(server.getsockname()[1], 1, share=1) as line,
    ):
        line.misdeeds = ["flip request"]
        with socket.create_connection(("127.0.0.1", line.port), timeout=60) as client:
            client.sendall(bytes(7))
            heard, _ = server.accept()
            with heard:
                found = heard.recv(7, socket.MSG_WAITALL)
        assert len(found) == 7
        assert sum(byte.bit_count() for byte in found) == 1


# ---- what a stream survives ----

REPLIES = ["cut", "reset", "flip", "cut,reset,flip"]
REQUESTS = ["flip request", "cut request", "reset request", "flip request,cut request,reset,flip"]


@pytest.mark.parametrize("misdeeds", [m.split(",") for m in REPLIES + REQUESTS], ids=",".join)
@pytest.mark.parametrize(("seed", "offload"), [(1, "none"), (2, "none"), (3, "auto"), (4, "auto")])
def test_the_stream_survives_a_bad_line(
    seed, offload, misdeeds, node, folder, ops, digests, monkeypatch
):
    """With "auto", what is cut off and flipped are parts of files and coded pixels."""
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "18")  # some a node waits for the end of
    wanted = stream(folder, ops, digests, epochs=3)
    with Line(node.port, seed) as line:
        dataset = penstock.Dataset(f"penstock://127.0.0.1:{line.port}/pictures")
        line.misdeeds = misdeeds
        for _ in range(20):
            found = stream(dataset, ops, digests, epochs=3, offload=offload, policy="fixed")
            assert found == wanted
            if all(line.n_done[misdeed] for misdeed in line.misdeeds):
                break
        else:
            pytest.fail(f"the line was too good: {line.n_done}")


# Where a bit flips in a request, as the first group of a pattern.
PLACES = {
    "method": rb"^(PO)ST",
    "target": rb"^POST (\S+)",
    "name": rb"/v1/data/(\w+)",
    "page": rb"(\?\S+)",
    "version": rb"(HTTP/1.1)\r",
    "host": rb"Host: (\S+)",
    "length": rb"Content-Length: (\d+)",
    "name of a header": rb"(Content-Length)",
    "end of a line": rb"(\r\n)",
    "pipeline": rb'"pipeline":"(\w+)',
    "name of a member": rb'"(seed)"',
    "seed": rb'"seed":"(5)"',
    "base": rb'"base":(\d+)',
    "hash": rb'"hash":"(\w+)',
    "epoch": rb"\[\d+,(\d+),0,",
    "forms": rb"\[\d+,\d+,0,\d+,(\d+)",
}


def within(pattern: bytes, line: Line) -> Callable[[bytes], int | None]:
    def at(piece: bytes) -> int | None:
        found = re.search(pattern, piece)
        return line.chance.randrange(*found.span(1)) if found else None

    return at


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[tuple[Node, Node]]:
    """Two nodes, each with a part of the pictures as its own."""
    root = tmp_path_factory.mktemp("halves")
    names = sorted(path.name for path in folder.iterdir())
    for half, part in (("a", names[:1]), ("b", names[1:])):
        for name in part:
            shutil.copytree(folder / name, root / half / name)
    with serving("--name", "x", root / "a") as first, serving("--name", "x", root / "b") as second:
        yield first, second


@pytest.mark.parametrize("place", PLACES)
def test_no_flipped_bit_of_a_request_changes_the_stream(place, halves, ops, digests, monkeypatch):
    """Nor does one end it, or what nodes do: four are fewer than make a no final."""
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "18")
    first, second = halves
    wanted = stream(f"penstock://127.0.0.1:{first.port}+127.0.0.1:{second.port}/x", ops, digests)
    n_flips = 0
    for seed in range(2):
        with Line(second.port, seed, share=0.5, most=4) as line:
            line.at = within(PLACES[place], line)
            line.misdeeds = ["flip request"]
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                dataset = penstock.Dataset(
                    f"penstock://127.0.0.1:{first.port}+127.0.0.1:{line.port}/x"
                )
                assert stream(dataset, ops, digests, offload="auto", policy="fixed") == wanted
            n_flips += line.n_done["flip request"]
    assert n_flips > 0


def packed(node: Node) -> float:
    """Samples that it did something with."""
    forms = ("jpeg_cut", "pixels", "pixels_coded")
    return sum(node.metric(f'items_total{{form="{form}"}}') for form in forms)


def test_a_pipeline_that_was_damaged_on_its_way_is_put_again(folder, ops, digests):
    with serving("--name", "x", folder) as node, Line(node.port, 1, share=1, most=3) as line:
        line.at = within(rb'(?s)^PUT.*(\{"numerics".*)', line)
        line.misdeeds = ["flip request"]
        url = f"penstock://127.0.0.1:{line.port}/x"
        wanted = stream(folder, ops, digests)
        assert stream(url, ops, digests, offload="auto", policy="fixed") == wanted
        assert line.n_done["flip request"] == 3
        assert packed(node) > 0


def test_a_request_that_is_always_damaged_is_an_error_that_says_so(
    folder, ops, digests, monkeypatch
):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "2")
    with serving("--name", "x", folder) as node, Line(node.port, 1, share=1) as line:
        dataset = penstock.Dataset(f"penstock://127.0.0.1:{line.port}/x")
        line.at = within(rb'"seed":"(0)"', line)
        line.misdeeds = ["flip request"]
        with pytest.raises(penstock.InputOutputError, match=r"damaged on its way|answers 400"):
            dataset.read(0)
