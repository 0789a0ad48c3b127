"""A running loader seen from outside: HTTP, `penstock top`, notebooks."""

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import textwrap
import threading
import urllib.error
import urllib.request
from pathlib import Path
from xml.etree import ElementTree

import pytest

import penstock
from penstock.display import as_html, sparkline


def get(address: str, path: str) -> tuple[str, str]:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


@pytest.fixture
def loader(folder, ops):
    with penstock.Loader(folder, ops, 4, num_workers=1, metrics="127.0.0.1:0") as loader:
        for _ in loader:
            pass
        yield loader


def test_metrics_and_status_are_served(loader):
    kind, text = get(loader.address, "/metrics")
    assert kind == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert text.endswith("\n# EOF\n")
    assert re.search(rf"^penstock_batches_total{{.*}} {len(loader)}$", text, re.MULTILINE)
    kind, text = get(loader.address, "/status.json")
    status = json.loads(text)
    assert status["pid"] == os.getpid()
    assert len(loader) in [one["batches"] for one in status["loaders"]]
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(loader.address, "/")


def test_text_without_a_server(folder, ops):
    with penstock.Loader(folder, ops, metrics="off") as loader:
        assert loader.address == ""
        assert loader.openmetrics().endswith("# EOF\n")
        assert loader.status()["batches"] == 0
    with pytest.raises(penstock.InvalidError, match="closed"):
        loader.status()


def test_the_end_of_the_loader_ends_the_server(folder, ops):
    with penstock.Loader(folder, ops, metrics="127.0.0.1:0") as loader:
        address = loader.address
        get(address, "/metrics")
    with pytest.raises(urllib.error.URLError):
        get(address, "/metrics")


def test_wrong_addresses_are_refused(folder, ops):
    for wrong in ("nonsense", "127.0.0.1", "example.org:80", "127.0.0.1:70000"):
        with pytest.raises(penstock.InvalidError, match="metrics wants an address"):
            penstock.Loader(folder, ops, metrics=wrong)


def test_the_environment_asks_too(folder, ops, monkeypatch):
    monkeypatch.setenv("PENSTOCK_METRICS", "127.0.0.1:0")
    with penstock.Loader(folder, ops) as loader, penstock.FedLoader(folder, ops) as fed:
        assert loader.address == fed.address != ""
        assert len(json.loads(get(loader.address, "/status.json")[1])["loaders"]) == 2


# top

PENSTOCK = Path(sys.executable).with_name("penstock")


def top(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PENSTOCK, "top", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"LC_ALL": "C.UTF-8"} | environment,
    )


def test_top_shows_a_frame_of_an_address(loader):
    done = top("--once", loader.address)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"process {os.getpid()}" in done.stdout
    for word in ("waiting", "decode", "workers", "(pinned)", "memory", "policy   model", "verdict"):
        assert word in done.stdout
    assert "\033" not in done.stdout
    assert "cut_wire" not in done.stdout and "share_decode" not in done.stdout
    table = done.stdout.partition("\nstage")[2].partition("\npolicy")[0]
    assert all(len(line) <= 80 for line in table.splitlines())


def test_top_finds_a_process_by_its_number(loader):
    done = top("--once", str(os.getpid()))
    assert done.returncode == 0, done.stderr
    assert f"process {os.getpid()}" in done.stdout
    status = json.loads(top("--json", str(os.getpid())).stdout)
    assert status["pid"] == os.getpid()


def test_top_turns_knobs_of_a_running_process(loader):
    here = str(os.getpid())
    done = top("--set", "ready_batches=5", "--set", "read_ahead=7", "--once", here)
    assert done.returncode == 0, done.stderr
    assert loader.knobs.ready_batches == 5 and loader.knobs.read_ahead == 7
    knobs = json.loads(top("--json", "--set", "read_ahead=auto", here).stdout)["loaders"][0][
        "knobs"
    ]
    assert knobs["ready_batches"]["pinned"] and not knobs["read_ahead"]["pinned"]
    for words, why in (
        (("--set", "speed=9"), "there is no knob 'speed'"),
        (("--set", "workers=9999"), "workers"),
        (("--set", "workers=2", "--loader", "77777"), "there is no loader 77777"),
    ):
        done = top(*words, here)
        assert done.returncode == 1 and why in done.stderr
    assert "by a process number" in top("--set", "workers=2", loader.address).stderr
    for words in ("workers", "=2", "workers=", "workers=2 3", "workers=2&io=3", "loader=1"):
        assert top("--set", words, here).returncode == 2
    assert loader.knobs.ready_batches == 5


def test_top_speaks_ascii_where_it_must(loader):
    done = top("--once", loader.address, LC_ALL="C")
    assert done.stdout.isascii() and "#" in done.stdout


def test_top_says_why_nobody_answers():
    done = top("--once", str(os.getppid()))
    assert done.returncode == 1
    assert "does not answer" in done.stderr and "PENSTOCK_METRICS" in done.stderr
    assert "there is no process" in top("4194305").stderr
    assert "nobody answers at 127.0.0.1:1" in top("127.0.0.1:1").stderr
    assert "neither a process number" in top("something").stderr
    assert top().returncode == top("a", "b").returncode == top("--what").returncode == 2


def test_nothing_is_left_after_a_kill(folder, tmp_path):
    script = textwrap.dedent(f"""
        import sys, time, penstock
        from penstock import transforms as t
        loader = penstock.Loader({str(folder)!r}, [t.Resize(8), t.CenterCrop(8)], 2)
        next(iter(loader))
        print("ready", flush=True)
        time.sleep(600)
    """)
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "ready\n"
        assert top("--once", str(child.pid)).returncode == 0
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    assert f"penstock-{child.pid}" not in Path("/proc/net/unix").read_text()
    assert top("--once", str(child.pid)).returncode == 1


def test_top_draws_what_strangers_say_without_control_codes():
    import http.server
    import threading

    class Stranger(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            evil = "\u001b]0;title\u0007\u001b[2J"
            loader = {
                "verdict": evil,
                "policy": [1],
                "stages": {"read": {"mean_s": "x", "total_s": 1e308}},
                "knobs": {evil: {"value": None, "unit": evil}},
                "decisions": [7, {"reason": evil, "changed": {evil: 3}}],
                "wait_shares": [-1, "x", 5, None],
            }
            wide = {"verdict": "é" * 200}  # no place to wrap at, and two bytes each
            body = json.dumps({"version": evil, "loaders": [loader, 3, None, wide]}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = top("--once", f"127.0.0.1:{server.server_port}")
        server.shutdown()
    assert done.returncode == 0, done.stderr
    assert not set(done.stdout) & {chr(code) for code in range(32) if chr(code) != "\n"}
    assert done.stdout.count("é") == 200


# notebooks


def test_html_of_a_loader(loader):
    text = loader._repr_html_()
    root = ElementTree.fromstring(text.replace("<br>", "<br/>"))
    cells = [cell.text for cell in root.iter("td")]
    assert "decode" in cells and "tensor" in cells
    assert "workers=1 (pinned)" in text
    assert repr(loader).startswith("Loader(")


def test_html_of_a_closed_loader_is_its_name(folder, ops):
    loader = penstock.Loader(folder, ops)
    assert "<table>" in loader._repr_html_()
    loader.close()
    assert loader._repr_html_().startswith("<code>Loader(")


def test_html_is_escaped(loader):
    status = loader.status() | {"verdict": "<script>", "policy": "a&b", "reason": '"<'}
    text = as_html("<loader>", status)
    assert "<script>" not in text and "&lt;script&gt;" in text and "&lt;loader&gt;" in text
    ElementTree.fromstring(text.replace("<br>", "<br/>"))


def test_sparklines_have_a_point_a_second():
    assert sparkline([]) == sparkline([0.5]) == ""
    line = ElementTree.fromstring(sparkline([0, 0.5, 1, 7])).find("polyline")
    assert line is not None
    points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    assert points == [(0, 23), (60, 12), (120, 1), (180, 1)]


def test_torch_loaders_show_themselves_too(folder):
    torch_loader = pytest.importorskip("penstock.torch").DataLoader
    transform = [penstock.transforms.Resize(8), penstock.transforms.CenterCrop(8)]
    with torch_loader(folder, 4, transform=transform, metrics="127.0.0.1:0") as loader:
        assert loader._repr_html_().startswith("<code>")
        n = sum(1 for _ in loader)
        assert loader.status()["batches"] == n
        assert "penstock_batches_total" in get(loader.address, "/metrics")[1]
        assert "<table>" in loader._repr_html_()
    with pytest.raises(penstock.InvalidError, match="metrics wants an address"):
        torch_loader(folder, 4, transform=transform, metrics="nonsense")


def test_the_environment_speaks_to_loaders_that_load(folder, monkeypatch):
    torch_loader = pytest.importorskip("penstock.torch").DataLoader
    native = pytest.importorskip("penstock.torch.native")
    asked = []

    class Noted(penstock.Loader):
        def __init__(self, *args, **options):
            asked.append(options["metrics"])
            super().__init__(*args, **options)

    monkeypatch.setattr(native, "Loader", Noted)
    monkeypatch.setenv("PENSTOCK_METRICS", "192.0.2.1:9464")  # not ours: cannot be had
    transform = [penstock.transforms.Resize(8), penstock.transforms.CenterCrop(8)]
    with torch_loader(folder, 4, transform=transform) as loader:
        assert asked == ["off"]  # it checks the options
        assert sum(1 for _ in loader) > 0
        assert asked == ["off", None]
        assert loader.address == ""


# traces


def test_a_trace_is_written_when_the_loader_ends(folder, ops, tmp_path):
    with penstock.Loader(folder, ops, 4, num_workers=2) as loader:
        loader.trace(tmp_path / "trace.json", seconds=3600)
        with pytest.raises(penstock.InvalidError, match="already"):
            loader.trace(tmp_path / "other.json")
        for _ in loader:
            pass
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    decoded = [event["args"]["sample"] for event in events if event["name"] == "decode"]
    assert set(decoded) == set(range(len(loader.dataset)))
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert len(names) >= 2


def test_a_trace_ends_by_itself(folder, ops, tmp_path):
    path = tmp_path / "trace.json"
    with penstock.Loader(folder, ops, 4) as loader:
        loader.trace(path, seconds=0.01)
        while loader._tracing is not None and not loader._tracing._is_over:
            for _ in loader:
                pass
        loader.trace(tmp_path / "second.json")  # it is over
    assert json.loads(path.read_text())["traceEvents"]
    for bad in (0, -1, float("nan"), 1e9, "5"):
        with pytest.raises(ValueError, match="seconds must be above 0 and at most 86400"):
            loader.trace(path, bad)  # type: ignore[arg-type]


def test_others_go_on_while_a_trace_is_written(folder, ops, tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)  # whoever writes to it waits for a reader, and that is us
    with penstock.Loader(folder, ops, 4, num_workers=2) as loader:
        for _ in loader:
            loader._core.trace_start()
            writer = threading.Thread(target=loader._core.trace_stop, args=(str(path),))
            writer.start()
            break
        assert sum(1 for _ in loader) == len(loader)
        assert json.loads(path.read_text())["traceEvents"]
        writer.join()


# the terminal


def in_terminal(
    arguments: list[str], key: bytes, rows: int = 12, columns: int = 60
) -> tuple[int, bytes]:
    """Run top in a terminal, press a key after its first frame; all it wrote."""
    pid, terminal = pty.fork()
    if pid == 0:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(1, termios.TIOCSWINSZ, size)  # before it draws anything
        os.environ["LC_ALL"] = "C.UTF-8"
        os.execv(PENSTOCK, ["penstock", "top", *arguments])
    written = b""
    is_pressed = False
    while True:
        try:
            some = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not some:
            break
        written += some
        if not is_pressed and b"q: end" in written:
            is_pressed = True
            os.write(terminal, key)
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), written


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_top_on_a_terminal_ends_with_a_key_and_leaves_it_as_it_was(loader, key):
    code, written = in_terminal([loader.address], key)
    assert code == 0
    assert b"\033[?1049h" in written and b"waiting" in written
    assert written.rstrip().endswith(b"\033[?25h\033[?1049l")


def test_top_shows_what_was_decided_on_a_terminal_of_the_usual_size(loader):
    _, written = in_terminal([loader.address], b"q", 24, 80)
    frame = written.decode().partition("\033[H")[2].partition("q: end")[0]
    lines = [line.removesuffix("\r").removesuffix("\033[K") for line in frame.split("\n")]
    assert len(lines) <= 24 and all(len(line) <= 80 for line in lines[:-1])
    told = [line.partition(" ")[0] for line in lines]
    assert told.index("verdict") < told.index("stage") < told.index("policy")
    behind = lines[told.index("verdict") + 1 : told.index("stage") - 1]
    assert all(line.startswith(" " * 9) for line in behind)


def test_top_scrolls_to_what_a_small_terminal_hides(loader):
    _, written = in_terminal([loader.address], b"jjjjjjjjjjjj\033[B" + b"j" * 30 + b"kq", 12, 60)
    first, _, rest = written.partition(b"q: end")
    assert b"waiting" in first and b"read_ahead" not in first
    assert b"j, k: down, up" in rest and b"read_ahead" in rest


def test_a_loader_whose_trace_cannot_be_written_is_closed_all_the_same(folder, ops, tmp_path):
    loader = penstock.Loader(folder, ops)
    with pytest.raises(FileNotFoundError):
        loader.trace(tmp_path / "missing" / "trace.json", seconds=3600)
    (tmp_path / "there").mkdir()
    loader.trace(tmp_path / "there" / "trace.json", seconds=3600)
    shutil.rmtree(tmp_path / "there")
    with pytest.raises(penstock.Error):
        loader.close()
    with pytest.raises(penstock.InvalidError, match="closed"):
        next(iter(loader))
    loader.close()


def test_a_program_that_ends_leaves_its_trace(folder, tmp_path):
    path = tmp_path / "trace.json"
    program = (
        "import penstock, sys\n"
        "loader = penstock.Loader(sys.argv[1], [penstock.Resize((8, 8))], 4)\n"
        "loader.trace(sys.argv[2], seconds=3600)\n"
        "next(iter(loader))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, folder, path], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert any(event["name"] == "decode" for event in json.loads(path.read_text())["traceEvents"])


def test_a_child_that_ends_leaves_the_trace_to_its_parent(folder, ops, tmp_path):
    path = tmp_path / "trace.json"
    with penstock.Loader(folder, ops) as loader:
        loader.trace(path, seconds=3600)
        child = os.fork()
        if child == 0:
            loader._tracing.finish()
            os._exit(path.stat().st_size != 0)
        assert os.waitpid(child, 0)[1] == 0
    assert json.loads(path.read_text())["traceEvents"]


def test_a_notebook_shows_a_loader_whose_status_cannot_be_read(folder, ops, monkeypatch):
    with penstock.Loader(folder, ops) as loader:
        monkeypatch.setattr(loader, "status", lambda: json.loads("{"))
        assert loader._repr_html_().startswith("<code>Loader(")
