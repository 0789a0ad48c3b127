"""Remote datasets on `penstock serve`: all forms of samples, and a server that is killed for real."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import node_process
import pytest
from conftest import picture, write_folder
from interrupting import interrupt, pause

import penstock
from penstock import transforms as T

COMMAND = Path(sys.executable).with_name("penstock")
N = 23


pytestmark = pytest.mark.usefixtures("plain_remote")


def start(port: int, *arguments: object) -> tuple[subprocess.Popen[str], int]:
    """A server and the port it listens at; 0 lets it choose."""
    call = [str(COMMAND), "serve", "--listen", f"127.0.0.1:{port}", *map(str, arguments)]
    server = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = server.stdout.readline()
    assert line.startswith("serving at http"), server.stderr.read()
    return server, int(line.rpartition(":")[2])


def end(server: subprocess.Popen[str]) -> None:
    server.kill()
    server.wait()
    server.stdout.close()
    server.stderr.close()


@contextlib.contextmanager
def serving(*arguments: object) -> Iterator[int]:
    server, port = start(0, *arguments)
    try:
        yield port
    finally:
        end(server)


def write_classes(root: Path, names: list[bytes]) -> Path:
    """A picture in a directory of each of these names."""
    for number, name in enumerate(names):
        place = root / os.fsdecode(name)
        place.mkdir(parents=True)
        picture(number).save(place / f"{number}.png")
    return root


def test_classes_may_have_any_names(tmp_path, stream):
    """They are bytes, as names of directories are; and never two that are one."""
    names = [b"caf\xe8", b"caf\xe9", "caf\xe9".encode(), b"q"]
    whole = write_classes(tmp_path / "whole", names)
    parts = [write_classes(tmp_path / str(i), of) for i, of in enumerate((names[:2], names[1:]))]
    local = penstock.Dataset(whole)
    assert local.classes == sorted(map(os.fsdecode, names), key=os.fsencode)
    with serving(*("--name", "a", whole), *("--name", "b", parts[0])) as port:
        url = f"penstock://127.0.0.1:{port}"
        remote = penstock.Dataset(f"{url}/a")
        assert (remote.classes, remote.keys()) == (local.classes, local.keys())
        assert stream(f"{url}/a", epochs=1) == stream(whole, epochs=1)
        with serving("--name", "b", parts[1]) as other:
            both = penstock.Dataset(f"{url}+127.0.0.1:{other}/b")
            assert both.classes == local.classes
            labels = [both.classes[both.label(i)] for i in range(len(both))]
            assert labels == [os.fsdecode(names[i]) for i in (0, 1, 2, 1, 3)]
            with pytest.raises(penstock.InvalidError, match="replicas"):
                penstock.Dataset(f"{url},127.0.0.1:{other}/b")


@pytest.fixture(scope="module")
def port(folder: Path, shard: Path) -> Iterator[int]:
    with serving("--name", "pictures", folder, "--name", "shard", shard) as found:
        yield found


def stream(path, line, digests, workers=3, epochs=1, **options):
    loader = penstock.Loader(path, line, 4, shuffle=True, seed=5, num_workers=workers, **options)
    return [digest for _ in range(epochs) for digest in digests(loader)]


LINES = {
    "crop": [T.RandomResizedCrop(20), T.RandomHorizontalFlip(), T.ToTensor()],
    "resize": [T.Resize((24, 20))],
    "grey": [T.Grayscale(), T.Resize(24), T.CenterCrop(16), T.ToTensor()],
    "turned": [T.Decode(exif=True), T.RandomCrop(16, pad_if_needed=True), T.RandomRotation(20)],
    "augmented": [T.RandAugment(), T.RandomResizedCrop(16), T.ToTensor(), T.RandomErasing(0.5)],
    "chosen": [T.RandomChoice([T.CenterCrop(20), T.RandomCrop(20)]), T.ColorJitter(0.3, 0.3)],
}


@pytest.mark.parametrize("name", LINES)
def test_the_stream_is_that_of_the_local_path(name, port, folder, digests):
    url = f"penstock://127.0.0.1:{port}/pictures"
    line = LINES[name]
    assert stream(url, line, digests, epochs=2) == stream(folder, line, digests, epochs=2)


@pytest.mark.parametrize("policy", ["fixed", "model"])
@pytest.mark.parametrize("offload", ["none", "all", "resize", "fastflow", "sophon", "auto"])
@pytest.mark.parametrize("name", ["pictures", "shard"])
def test_how_samples_travel_changes_nothing(name, offload, policy, port, folder, ops, digests):
    url = f"penstock://127.0.0.1:{port}/{name}"
    for workers in (1, 4):
        remote = stream(url, ops, digests, workers, 4, offload=offload, policy=policy)
        assert remote == stream(folder, ops, digests, epochs=4)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7])
def test_how_many_samples_are_worked_on_changes_nothing(share, port, folder, ops, digests):
    url = f"penstock://127.0.0.1:{port}/pictures"
    loader = penstock.Loader(url, ops, 4, shuffle=True, seed=5, num_workers=2)
    loader.knobs.offload = share
    assert digests(loader) + digests(loader) == stream(folder, ops, digests, epochs=2)


@pytest.mark.parametrize("bounds", [{"cut_wire": 0}, {"cut_wire": 1, "codec": 0}, {"codec": 1}])
def test_how_far_nodes_may_go_changes_nothing(bounds, port, folder, ops, digests):
    url = f"penstock://127.0.0.1:{port}/pictures"
    loader = penstock.Loader(url, ops, 4, shuffle=True, seed=5, num_workers=2)
    loader.knobs.set(**bounds)
    assert digests(loader) + digests(loader) == stream(folder, ops, digests, epochs=2)
    assert {name: loader.knobs[name] for name in bounds} == bounds


def test_fed_loaders_have_policies_too(port, folder, ops, digests):
    batches = [[0, 3, 3], [1, 2]]
    paths = {"all": f"penstock://127.0.0.1:{port}/pictures", "none": folder}
    found = [
        digests(penstock.FedLoader(path, ops, 4, offload=o).run(0, batches))
        for o, path in paths.items()
    ]
    assert found[0] == found[1]


def sent_bytes(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    return sum(int(n) for n in re.findall(r"^penstock_node_parcel_bytes_total (\d+)", text, re.M))


def test_offloading_sends_fewer_bytes(port, digests):
    url = f"penstock://127.0.0.1:{port}/pictures"
    line = [T.RandomResizedCrop(8, scale=(0.1, 0.2))]
    counts = [sent_bytes(port)]
    for offload in ("none", "auto"):
        stream(url, line, digests, offload=offload, policy="fixed")
        counts.append(sent_bytes(port))
    raw, packed = counts[1] - counts[0], counts[2] - counts[1]
    assert 0 < packed < raw / 2


def test_what_was_learned_is_kept_and_changes_nothing(port, folder, ops, digests, tmp_path):
    url = f"penstock://127.0.0.1:{port}/pictures"
    want = stream(folder, ops, digests, epochs=2)
    for _ in range(2):
        assert stream(url, ops, digests, epochs=2, cache_dir=tmp_path) == want
        (profile,) = tmp_path.glob("*.profile")
        assert 0 < profile.stat().st_size < 1000
    profile.write_bytes(profile.read_bytes()[:-1] + b"?")
    assert stream(url, ops, digests, epochs=2, cache_dir=tmp_path) == want


def test_where_nothing_can_be_kept_there_is_one_warning(port, folder, ops, digests, tmp_path):
    url = f"penstock://127.0.0.1:{port}/pictures"
    (tmp_path / "file").write_text("no directory")
    with pytest.warns(RuntimeWarning, match="not kept for the next run") as caught:
        found = stream(url, ops, digests, 0, 3, cache_dir=tmp_path / "file" / "cache")
    assert len(caught) == 1
    assert found == stream(folder, ops, digests, epochs=3)


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own on which not a byte is free."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a file system is not allowed here")
    try:
        with contextlib.suppress(OSError), (place / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(4096)):
                pass
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_full_disks_at_both_ends_change_nothing(folder, ops, digests, full_disk, monkeypatch):
    want = stream(folder, ops, digests, epochs=3)
    monkeypatch.setenv("PENSTOCK_CACHE", str(full_disk))
    with serving("--name", "pictures", folder) as port:
        url = f"penstock://127.0.0.1:{port}/pictures"
        with pytest.warns(RuntimeWarning, match="not kept for the next run") as caught:
            found = stream(url, ops, digests, epochs=3)
    assert len(caught) == 1
    assert found == want
    assert not list(full_disk.rglob("*.profile"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda file: None, "is gone"),
        (lambda file: file.write_bytes(b"shorter"), "changed since it was indexed"),
        (lambda file: file.symlink_to("/etc/hostname"), "leads out of the directory"),
        (os.mkfifo, "not a regular file"),
    ],
    ids=["gone", "changed", "link", "fifo"],
)
def test_a_file_that_will_not_come_back_is_an_error_at_once(change, words, tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "3600")
    folder = write_folder(tmp_path / "pictures", 3)
    with serving(folder) as port:
        remote = penstock.Dataset(f"penstock://127.0.0.1:{port}/pictures")
        file = sorted(folder.glob("*/*"))[1]
        file.unlink()
        change(file)
        with pytest.raises(penstock.InputOutputError, match=f"cannot send it: .*{words}"):
            remote.read(1)
        assert remote.read(2)


def test_a_name_that_a_node_without_token_does_not_know_is_told_what_to_do(port):
    url = f"penstock://storage.localhost:{port}/pictures"  # loopback, by RFC 6761
    with pytest.raises(penstock.InputOutputError, match="403, ask by number or as localhost"):
        penstock.Dataset(url)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_bad_samples_are_bad_in_the_same_way(on_error, spoiled, ops, digests):
    with serving("--name", "x", spoiled) as port:
        paths = (spoiled, f"penstock://127.0.0.1:{port}/x")
        local, remote = (stream(path, ops, digests, on_error=on_error) for path in paths)
        assert local == remote
        errors = []
        for path in paths:
            with pytest.raises(penstock.DataError) as caught:
                stream(path, ops, digests)
            errors.append((caught.value.code, caught.value.sample, str(caught.value)))
        assert errors[0] == errors[1]


def test_state_goes_from_local_to_remote_and_back(port, folder, ops, digests):
    whole = stream(folder, ops, digests)
    loaders = [
        penstock.Loader(path, ops, 4, shuffle=True, seed=5)
        for path in (folder, f"penstock://127.0.0.1:{port}/pictures", folder)
    ]
    found, state = [], None
    for loader in loaders:
        if state:
            loader.load_state_dict(state)
        for batch in loader:
            found += digests([batch])
            state = loader.state_dict()
            if len(found) in (2, 4):
                break
    assert found == whole


def test_shards_of_two_nodes_draw_as_one_dataset(tmp_path, folder, digests):
    """Random parameters follow the client's ids, which a node of a later shard does not know."""
    line = LINES["crop"]
    with serving("--name", "x", folder) as first, serving("--name", "x", folder) as second:
        url = f"penstock://127.0.0.1:{first}+127.0.0.1:{second}/x"
        remote = penstock.Dataset(url)
        files = sorted(folder.glob("*/*"), key=lambda file: (file.parent.name, file.name)) * 2
        labels = [remote.label(i) for i in range(len(remote))]
        local = penstock.Dataset.from_list(files, labels, classes=remote.classes, root=folder)
        assert remote.hash == local.hash
        assert stream(remote, line, digests) == stream(local, line, digests)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_node_that_takes_few_requests_at_once_is_not_asked_for_more(most, tmp_path, ops, digests):
    """It would refuse most of them each time that it has rested."""
    write_folder(tmp_path / "x", 104)
    with node_process.serving("--max-requests", most, tmp_path / "x") as node:
        url = node.url.replace("http", "penstock", 1) + "/x"
        found = stream(url, ops, digests, offload="none")
        told = re.search(r'responses_total{status="503"} (\d+)', node_process.metrics(node))
    assert found == stream(tmp_path / "x", ops, digests)
    assert int(told[1] if told else 0) < 6


def test_a_replica_of_each_shard_may_die_in_an_epoch(folder, digests):
    """Two shards of two nodes each."""
    line = LINES["crop"]
    servers = [start(0, "--name", "x", folder) for _ in range(4)]
    try:
        a, b, c, d = (f"127.0.0.1:{port}" for _, port in servers)
        wanted = stream(f"penstock://{a}+{c}/x", line, digests, epochs=2)
        loader = penstock.Loader(
            f"penstock://{a},{b}+{c},{d}/x", line, 4, shuffle=True, seed=5, num_workers=3
        )
        found = []
        for _ in range(2):
            for batch in loader:
                found += digests([batch])
                if len(found) == 3:
                    end(servers[0][0])
                    end(servers[3][0])
        assert found == wanted
    finally:
        for server, _ in servers:
            end(server)


def test_the_stream_survives_a_server_that_is_killed_fifty_times_in_an_epoch(
    tmp_path, ops, digests
):
    """Batch n is taken when the server was killed n times; when, nobody knows."""
    write_folder(tmp_path / "x", 104)
    wanted = stream(tmp_path / "x", ops, digests)
    server, port = start(0, tmp_path / "x")
    is_over = threading.Event()
    found: list[str] = []
    n_kills = 0

    def kill_often():
        nonlocal server, n_kills
        while not is_over.wait(0.01):
            if n_kills > 2 * len(found) + 2:  # so that there is time for something to come
                continue
            end(server)
            server, _ = start(port, tmp_path / "x")
            n_kills += 1

    loader = penstock.Loader(
        f"penstock://127.0.0.1:{port}/x", ops, 4, shuffle=True, seed=5, num_workers=3
    )
    killer = threading.Thread(target=kill_often)
    killer.start()
    try:
        for batch in loader:
            found += digests([batch])
            while n_kills < 2 * len(found):
                time.sleep(0.005)
    finally:
        is_over.set()
        killer.join()
        end(server)
    assert found == wanted
    assert n_kills >= 50


def test_a_paused_server_is_routed_around(folder, ops, digests, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "6")  # a stall is a second
    wanted = stream(folder, ops, digests, epochs=2)
    servers = [start(0, "--name", "x", folder) for _ in range(2)]
    try:
        url = "penstock://" + ",".join(f"127.0.0.1:{port}" for _, port in servers) + "/x"
        loader = penstock.Loader(url, ops, 4, shuffle=True, seed=5, num_workers=3)
        found = []
        for _ in range(2):
            for batch in loader:
                found += digests([batch])
                if len(found) == 2:
                    assert all(sent_bytes(port) > 0 for _, port in servers)  # both are in use
                    pause(servers[0][0].pid)
        assert found == wanted
        assert (Path("/proc") / str(servers[0][0].pid) / "stat").read_text().split()[2] == "T"
    finally:
        for server, _ in servers:
            end(server)


def test_a_paused_server_alone_is_an_error_within_the_timeout(folder, ops, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "1.5")
    server, port = start(0, "--name", "x", folder)
    try:
        loader = penstock.Loader(f"penstock://127.0.0.1:{port}/x", ops, 4, num_workers=2)
        pause(server.pid)
        begin = time.monotonic()
        with pytest.raises(penstock.InputOutputError, match=f"127.0.0.1:{port}"):
            list(loader)
        assert time.monotonic() - begin < 12  # a machine may be busy
    finally:
        end(server)


def allowances(log: Path) -> list[float]:
    whole = [line for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
    states = [json.loads(line)["state"] for line in whole]
    return [s["node_allowance"] for s in states if s["node_allowance"] is not None]


def test_two_jobs_share_a_node_and_are_told_what_they_may_use(folder, digests, tmp_path):
    """One core, two loaders that want all of it: both get their own stream, and hear of each other."""
    lines = {"first": LINES["crop"], "second": LINES["resize"]}
    wanted = {name: stream(folder, line, digests) for name, line in lines.items()}
    faults = []

    def train(name, url):
        log = tmp_path / f"{name}.jsonl"
        loader = penstock.Loader(
            url, lines[name], 4, shuffle=True, seed=5, num_workers=2, decision_log=log
        )
        for epoch in range(300):
            found = digests(loader)
            if epoch == 0 and found != wanted[name]:
                faults.append(name)
            if log.exists() and allowances(log):  # a period has passed since the first answer
                return

    with serving("--cpus", 1, "--name", "x", folder) as port:
        url = f"penstock://127.0.0.1:{port}/x"
        threads = [threading.Thread(target=train, args=(name, url)) for name in lines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            text = answer.read().decode()
    assert not faults
    for name in lines:
        told = allowances(tmp_path / f"{name}.jsonl")
        assert told
        assert all(1 / 8 <= cores <= 1 for cores in told)  # of two or three jobs of an address
    spent = dict(
        re.findall(r'^penstock_node_turn_cpu_seconds_total{turn="(\w+)"} (\S+)', text, re.M)
    )
    assert float(spent["fair"]) > 0
    assert float(spent["worth"]) > 0


# ---- Ctrl-C ----

WAITS = {
    "loader": """
loader = penstock.Loader(dataset, [T.Resize((24, 20))], 4, num_workers=0)
found = iter(loader)
wait = lambda: next(found)
""",
    "read": "wait = lambda: dataset.read(0)",
    "replay": """
loader = penstock.Loader(dataset, [T.Resize((24, 20))], 4, num_workers=2)
wait = lambda: loader.replay(0, 0)
""",
}


@pytest.mark.parametrize("what", WAITS)
def test_ctrl_c_ends_the_wait_for_a_paused_server(what, folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "600")
    server, port = start(0, "--name", "x", folder)
    program = (
        "import os, signal, sys, penstock\nfrom interrupting import pause\nfrom penstock import transforms as T\n"
        f"dataset = penstock.Dataset('penstock://127.0.0.1:{port}/x')\n"
        + WAITS[what]
        + f"""
pause({server.pid})
print("waiting", flush=True)
try:
    wait()
except KeyboardInterrupt:
    print("interrupted", flush=True)
os.kill({server.pid}, signal.SIGCONT)
if {what == "loader"}:
    print(sorted(id for batch in found for id in batch.ids) == list(range({N})))
else:
    print(wait() is not None)
"""
    )
    try:
        assert interrupt(program) == ("interrupted\nTrue\n", 0)
    finally:
        end(server)
