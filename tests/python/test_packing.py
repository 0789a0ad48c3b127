"""Packs: written by `penstock pack` and `penstock.pack`, the same dataset and the same stream as before."""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import node_process
import pytest
from conftest import write_tar
from interrupting import interrupt
from node_process import crc32c

import penstock
from penstock import Dataset

COMMAND = Path(sys.executable).with_name("penstock")
FIELDS = ("image", "cls", "json", "txt")


def penstock_command(*arguments: object) -> subprocess.CompletedProcess[str]:
    call = [str(COMMAND), *map(str, arguments)]
    return subprocess.run(call, capture_output=True, text=True, timeout=120, check=False)


def all_of(dataset: Dataset) -> tuple[object, ...]:
    """Everything a dataset says, but where it is."""
    ids = range(len(dataset))
    samples = [
        (dataset.key(i), dataset.label(i), *(dataset.field(i, name) for name in FIELDS))
        for i in ids
    ]
    return dataset.hash, dataset.classes, dataset.nbytes, samples


def stream(data, line, digests, **options):
    loader = penstock.Loader(data, line, 4, shuffle=True, seed=5, num_workers=2, **options)
    return [digest for _ in range(2) for digest in digests(loader)]


@pytest.fixture(scope="module")
def kinds(
    tmp_path_factory: pytest.TempPathFactory, folder: Path, shard: Path
) -> dict[str, Dataset]:
    """A dataset of each kind that lies in files."""
    root = tmp_path_factory.mktemp("kinds")
    for number in range(2):  # keys that need their shard in front
        write_tar(root / f"cap-{number}.tar", folder)
    rows = [
        f"{file.relative_to(folder)},{'dark' if file.stem < '0012' else 'light'}"
        for file in sorted(folder.glob("*/*"))
    ]
    manifest = folder.parent / "packed.csv"
    manifest.write_text("path,label\n" + "".join(f"{folder.name}/{row}\n" for row in rows))
    files = sorted(folder.glob("*/*"), reverse=True)
    return {
        "folder": Dataset(folder),
        "tar": Dataset(shard),
        "tars": Dataset(root / "cap-{0..1}.tar"),
        "manifest": Dataset(manifest),
        "list": Dataset.from_list([*files, files[3]], [*range(len(files)), 3], root=folder),
    }


@pytest.mark.parametrize("shard_size", [None, 50_000])
@pytest.mark.parametrize("kind", ["folder", "tar", "tars", "manifest", "list"])
def test_a_pack_is_the_same_dataset_and_stream(kind, shard_size, kinds, ops, digests, tmp_path):
    spec = penstock.pack(kinds[kind], tmp_path / "x.pen", shard_size=shard_size)
    packed = Dataset(spec)
    assert packed.kind == "pack"
    assert len(list(tmp_path.iterdir())) == (1 if shard_size is None else int(spec[-7:-5]) + 1)
    assert all_of(packed) == all_of(kinds[kind])
    assert stream(spec, ops, digests) == stream(kinds[kind], ops, digests)


@pytest.mark.usefixtures("plain_remote")
def test_so_is_a_pack_of_a_remote_dataset(shard, ops, digests, tmp_path):
    with node_process.serving("--name", "s", shard) as node:
        url = f"penstock://127.0.0.1:{node.port}/s"
        spec = penstock.pack(url, tmp_path / "x.pen")
        assert all_of(Dataset(spec)) == all_of(Dataset(url))
    assert all_of(Dataset(spec)) == all_of(Dataset(shard))
    assert stream(spec, ops, digests) == stream(shard, ops, digests)


@pytest.mark.usefixtures("plain_remote")
@pytest.mark.parametrize("offload", ["none", "all", "auto"])
def test_a_node_that_serves_a_pack_gives_the_local_stream(offload, shard, ops, digests, tmp_path):
    spec = penstock.pack(shard, tmp_path / "train.pen")
    with node_process.serving(spec) as node:  # under its name, without .pen
        url = f"penstock://127.0.0.1:{node.port}/train"
        assert all_of(Dataset(url)) == all_of(Dataset(shard))
        assert stream(url, ops, digests, offload=offload) == stream(shard, ops, digests)


@pytest.mark.usefixtures("plain_remote")
def test_nodes_with_a_shard_each_are_one_dataset(folder, ops, digests, tmp_path):
    penstock.pack(folder, tmp_path / "x.pen", shard_size=30_000)
    first, *others = sorted(tmp_path.iterdir())
    rest = "{" + ",".join(path.stem for path in others) + "}.pen"
    with (
        node_process.serving("--name", "x", first) as one,
        node_process.serving("--name", "x", tmp_path / rest) as two,
    ):
        url = f"penstock://127.0.0.1:{one.port}+127.0.0.1:{two.port}/x"
        assert all_of(Dataset(url)) == all_of(Dataset(folder))
        assert stream(url, ops, digests) == stream(folder, ops, digests)


@pytest.mark.usefixtures("plain_remote")
def test_a_node_tells_strangers_no_more_of_a_pack_than_its_name(folder, tmp_path):
    penstock.pack(folder, tmp_path / "x.pen")
    with node_process.serving(tmp_path / "x.pen") as node:
        os.utime(tmp_path / "x.pen", (1, 1))
        status, _, body = node.ask("GET", "/v1/data/x/samples/0")
        assert status == 404
        assert b"'x.pen': changed since it was indexed" in body
        assert str(tmp_path).encode() not in body


@pytest.mark.parametrize("index", [False, True])
def test_a_damaged_sample_is_a_bad_sample(index, folder, plain_ops, tmp_path):
    path = tmp_path / "x.pen"
    penstock.pack(folder, path)
    content = bytearray(path.read_bytes())
    bad = Dataset(folder).read(7)
    content[content.index(bad) + len(bad) // 2] ^= 4
    path.write_bytes(content)
    with pytest.raises(penstock.DataError, match="checksum differs") as caught:
        for _ in penstock.Loader(path, plain_ops, 4, index=index):
            pass
    assert caught.value.sample == 7
    assert Dataset(folder).key(7) in str(caught.value)
    ledger = tmp_path / "ledger"
    loader = penstock.Loader(path, plain_ops, 4, on_error="skip", ledger=ledger, index=index)
    assert sum(len(batch) for batch in loader) == len(Dataset(folder)) - 1
    assert "PEN_ECORRUPT" in ledger.read_text()


def test_the_format_is_as_documented(kinds, tmp_path):
    """A reader of docs/pack.md in thirty lines."""
    penstock.pack(kinds["tars"], tmp_path / "x.pen")
    content = (tmp_path / "x.pen").read_bytes()
    magic, version, flags, n, first, n_all, at, n_names, n_classes, n_class_names, crc = (
        struct.unpack_from("<8sII7QI", content)
    )
    assert (magic, version, flags, first, n_all) == (b"PENPACK\n", 1, 0, 0, n)
    assert content[76:108].decode() == kinds["tars"].hash
    assert content[108:508] == bytes(400)
    assert crc32c(content[:508]) == struct.unpack_from("<I", content, 508)[0]
    index = content[at:]
    assert crc32c(index) == crc
    assert len(index) == 40 * n + n_names + n_class_names
    names = index[40 * n : 40 * n + n_names]
    for i in range(n):
        name, block, length, label, *fields = struct.unpack_from("<3Ii6I", index, 40 * i)
        key = names[name : names.index(b"\0", name)].decode()
        assert (key, label) == (kinds["tars"].key(i), kinds["tars"].label(i))
        places = [(block, length), *zip(fields[::2], fields[1::2], strict=True)]
        for field, (begin, size) in zip(FIELDS, places, strict=True):
            end = 512 * begin + size
            data = content[512 * begin : end] if begin else None
            assert data == kinds["tars"].field(i, field)
            if data is not None:
                assert crc32c(data) == struct.unpack_from("<I", content, end)[0]
    classes = index[40 * n + n_names :].split(b"\0")[:-1]
    assert len(classes) == n_classes
    assert [name.decode() for name in classes] == kinds["tars"].classes


# ---- the command ----


def test_the_command_says_what_to_open(folder, tmp_path):
    run = penstock_command("pack", folder, tmp_path / "x.pen")
    assert (run.returncode, run.stdout, run.stderr) == (0, f"{tmp_path}/x.pen\n", "")
    run = penstock_command("pack", folder, tmp_path / "s.pen", "--shard-size", "50KB")
    assert (run.returncode, run.stderr) == (0, "")
    spec = run.stdout.strip()
    assert spec.startswith(f"{tmp_path}/s-{{000..0") and spec.endswith("}.pen")
    told = json.loads(penstock_command("info", spec, "--json").stdout)
    assert (told["kind"], told["identity"]) == ("pack", Dataset(folder).hash)
    assert told["failed"] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("x.pen",), 2, "a DATASET and a name for the pack"),
        (("DATA", "x.pen", "y.pen"), 2, "a DATASET and a name for the pack"),
        (("DATA", "x.pen", "--shard-size", "many"), 2, "--shard-size"),
        (("DATA", "x.pen", "--shard-size", "2TiB"), 1, "1 TiB"),
        (("DATA", "x.tar"), 1, "ends in .pen"),
        (("DATA", "none/x.pen"), 1, "none/x.pen': No such file or directory"),
        (("DATA", "old.pen"), 1, "is there already"),
        (("none", "x.pen"), 1, "none"),
    ],
)
def test_what_cannot_be_done_is_told(arguments, code, said, folder, tmp_path):
    (tmp_path / "old.pen").write_text("old")
    call = [str(COMMAND), "pack", *(str(folder) if a == "DATA" else a for a in arguments)]
    run = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (code, "")
    assert said in run.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["old.pen"]
    assert (tmp_path / "old.pen").read_text() == "old"


def test_force_takes_the_place_of_what_is_there(folder, tmp_path):
    (tmp_path / "x.pen").write_text("old")
    assert penstock_command("pack", folder, tmp_path / "x.pen", "--force").returncode == 0
    assert Dataset(tmp_path / "x.pen").hash == Dataset(folder).hash


def test_a_full_disk_leaves_nothing(folder, tmp_path):
    """The limit on a file's size is what comes closest without a file system of our own."""
    limit = ["prlimit", "--fsize=65536", str(COMMAND)]
    ignoring = "import os, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); os.execvp(sys.argv[1], sys.argv[1:])"
    call = [sys.executable, "-c", ignoring, *limit, "pack", str(folder), str(tmp_path / "x.pen")]
    run = subprocess.run(call, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "File too large" in run.stderr
    assert list(tmp_path.iterdir()) == []


def slow_folder(folder: Path, root: Path) -> Path:
    """As many samples as take a while."""
    for copy in range(200):
        shutil.copytree(folder, root / f"{copy:03}", copy_function=os.link)
    return root


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_command_leaves_nothing(by, folder, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    data = slow_folder(folder, tmp_path / "data")
    with subprocess.Popen(
        [str(COMMAND), "pack", str(data), str(out / "x.pen")], stderr=subprocess.PIPE, text=True
    ) as run:
        while run.poll() is None and not list(out.iterdir()):
            time.sleep(0.0005)
        run.send_signal(by)
        _, said = run.communicate(timeout=60)
    if run.returncode == 0:  # it was quicker
        assert [path.name for path in out.iterdir()] == ["x.pen"]
    else:
        assert (run.returncode, said) == (1, "penstock: packing was cancelled\n")
        assert list(out.iterdir()) == []


# ---- Python ----

INTERRUPTED = """
import sys, threading, penstock
dataset = penstock.Dataset(sys.argv[1])
print("waiting", flush=True)
try:
    while True:
        penstock.pack(dataset, sys.argv[2], overwrite=True)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_ends_packing(folder, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    said, code = interrupt(INTERRUPTED, str(folder), str(out / "x.pen"))
    assert (said, code) == ("interrupted\n", 0)
    assert {path.name for path in out.iterdir()} <= {"x.pen"}


def test_arguments_are_checked(folder, tmp_path):
    with pytest.raises(ValueError, match="shard_size"):
        penstock.pack(folder, tmp_path / "x.pen", shard_size="big")
    with pytest.raises(ValueError, match="shard_size"):
        penstock.pack(folder, tmp_path / "x.pen", shard_size=0)
    with pytest.raises(penstock.InvalidError, match=r"ends in \.pen"):
        penstock.pack(folder, tmp_path / "x")
    with pytest.raises(TypeError, match="Dataset"):
        penstock._core.pack(folder, tmp_path / "x.pen", 0, False)
    penstock.pack(folder, tmp_path / "x.pen")
    with pytest.raises(penstock.InvalidError, match="is there already"):
        penstock.pack(folder, tmp_path / "x.pen")
    assert [path.name for path in tmp_path.iterdir()] == ["x.pen"]
