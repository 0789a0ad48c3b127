"""The command's manners: what it accepts, what it refuses and with which exit code."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from node_double import free_port

COMMAND = Path(sys.executable).with_name("penstock")


def penstock(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(COMMAND), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment or None,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("bench", "x", "--ops", "mine"), "imagenet-train or imagenet-val"),
        (("bench", "x", "--memory", "2XB"), "2GiB"),
        (("bench", "x", "--memory", "-1"), "2GiB"),
        (("bench", "x", "--memory", "nan"), "2GiB"),
        (("bench", "x", "--step-ms", "40,"), "MEAN,JITTER"),
        (("bench", "x", "--step-ms", "10,20"), "MEAN,JITTER"),
        (("bench", "x", "--step-ms", "-1"), "MEAN,JITTER"),
        (("bench", "x", "--step-ms", "nan"), "MEAN,JITTER"),
        (("bench", "x", "--policy", "clever"), "fixed, rules, hillclimb or model"),
        (("bench", "x", "--set", "worker=1"), "workers=N"),
        (("bench", "x", "--set", "share_decode=1"), "workers=N"),
        (("bench", "x", "--set", "io=many"), "--set"),
        (("bench", "x", "--seed", "-1"), "2^64-1"),
        (("bench", "x", "--seed", "18446744073709551616"), "2^64-1"),
        (("replay", "x", "--ops", "mine"), "imagenet-train or imagenet-val"),
        (("bench",), "one DATASET"),
        (("machine", "--ms", "0"), "from 1 to"),
        (("machine", "a", "b"), "one PATH"),
        (("doctor", "--seconds", "soon", "x.py"), "a number above 0"),
        (("dance",), "no command 'dance'"),
    ],
)
def test_wrong_use_is_told_and_ends_with_2(arguments: tuple[str, ...], said: str) -> None:
    run = penstock(*arguments)
    assert (run.returncode, run.stdout) == (2, "")
    assert said in run.stderr


def test_a_dataset_that_is_not_there_ends_with_1(tmp_path: Path) -> None:
    run = penstock("info", tmp_path / "none")
    assert run.returncode == 1
    assert "none" in run.stderr


@pytest.mark.parametrize("memory", ["300000000", "300MB", "0.25GiB", "300m"])
def test_bench_takes_memory_with_units_and_every_seed(folder: Path, memory: str) -> None:
    run = penstock(
        "bench", folder, "--epochs", 1, "--memory", memory, "--seed", 2**64 - 1, "--json"
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert len(json.loads(run.stdout)["images_per_s"]) == 1


def test_bench_says_that_decisions_were_not_written(folder: Path) -> None:
    run = penstock("bench", folder, "--epochs", 8, "--step-ms", 40, "--decisions", "/dev/full")
    assert run.returncode == 1
    assert run.stderr == ("penstock: the decision log cannot be written: No space left on device\n")
    assert json.loads(run.stdout)["verdict"]  # what was measured is told all the same


def test_bench_beside_a_device_reports_what_the_run_cost(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    device = ("--step-ms", "30,10", "--policy", "model", "--decisions", log)
    run = penstock(
        "bench", folder, "--epochs", 2, "--batch-size", 4, *device, "--set", "io=3", "--json"
    )
    assert (run.returncode, run.stderr) == (0, "")
    told = json.loads(run.stdout)
    assert (told["policy"], told["step_ms"], told["jitter_ms"]) == ("model", 30, 10)
    assert 0 <= told["wait_share"] <= 1
    assert 0 <= told["batch_wait_p50_ms"] <= told["batch_wait_p95_ms"] <= told["batch_wait_p99_ms"]
    assert told["seconds"] >= 2 * 6 * 0.02  # it slept: no batch came sooner
    assert told["rss_peak_bytes"] > 0 and told["cpu_s"] > 0 and told["samples_per_s"] > 0
    assert told["knobs"]["io"] == 3
    assert told["verdict"].startswith("training waits")
    assert all(json.loads(line)["pinned"] == ["io"] for line in log.read_text().splitlines())


def on_a_terminal(*arguments: object, stream: str = "stdout", code: int = 0) -> str:
    """What the command prints to a stream that is a terminal."""
    ours, theirs = pty.openpty()
    call = [str(COMMAND), *map(str, arguments)]
    with subprocess.Popen(call, **{stream: theirs}) as process:
        os.close(theirs)
        said = b""
        with contextlib.suppress(OSError):  # how a terminal says that nobody is there any more
            while some := os.read(ours, 4096):
                said += some
    os.close(ours)
    assert process.returncode == code
    return said.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("command", ["info", "profile", "bench"])
def test_progress_is_erased_before_an_error(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "0.5")
    nobody = f"penstock://127.0.0.1:{free_port()}/x"
    said = on_a_terminal(command, nobody, stream="stderr", code=1)
    shown, error = said.removesuffix("\n").split("penstock: ", 1)
    assert shown.startswith("\rindexing: 0") and shown.endswith("\r\033[K")
    assert error.startswith("cannot ask") and "indexing" not in error


def test_bench_beside_a_device_prints_what_the_json_has(folder: Path) -> None:
    said = on_a_terminal("bench", folder, "--epochs", 2, "--batch-size", 4, "--step-ms", 5)
    number, size = r"\d+(?:\.\d+)?", r"\d+(?:\.\d+)? [kMGT]?i?B"
    for line in (
        rf"waiting +{number} % of the time, the first batch left out",
        rf"batch wait +p50 {number} ms, p95 {number} ms, p99 {number} ms",
        rf"samples +{number} a second",
        rf"CPU +{number} s in {number} s; I/O wait (?:{number}|-) % of all cores",
        rf"memory +{size} at most, {size} on average",
        rf"read +{size}",
        r"training waits .*",
    ):
        assert re.search(rf"^{line}$", said, re.MULTILINE), line


def test_bench_alone_prints_no_table(folder: Path) -> None:
    said = on_a_terminal("bench", folder, "--epochs", 1)
    assert "batch wait" not in said and " s of CPU in " in said


def test_percentiles_of_waits_leave_the_first_batch_out(folder: Path) -> None:
    options = ("--epochs", 1, "--batch-size", 1000, "--json")
    told = json.loads(penstock("bench", folder, *options).stdout)
    assert told["batch_wait_p50_ms"] is None  # there is no other
    assert told["first_batch_ms"] > 0


def test_a_misspelt_switch_is_named() -> None:
    run = penstock("--version", PENSTOCK_CPU="avx", PENSTOCK_JPEG="turbo")
    assert run.returncode == 0
    assert "PENSTOCK_CPU=avx" in run.stderr
    assert "PENSTOCK_JPEG=turbo" in run.stderr


def test_machine_tells_what_it_knows_and_null_for_the_rest(tmp_path: Path) -> None:
    run = penstock("machine", tmp_path, "--ms", 20, "--json")
    assert (run.returncode, run.stderr) == (0, "")
    told = json.loads(run.stdout)
    assert told["seconds"] >= 0.02
    assert len(told["cores"]) >= 1
    assert told["process"]["rss_bytes"] > 0
    assert told["memory"]["free_bytes"] <= told["memory"]["total_bytes"]
    assert {"disks", "data_disk", "network", "loopback", "package", "gpus"} <= told.keys()


def test_machine_prints_a_line_for_each_part() -> None:
    run = penstock("machine", "--ms", 1)
    assert (run.returncode, run.stderr) == (0, "")
    for part in ("cpu ", "memory ", "pressure io ", "group memory ", "disks ", "network ", "gpu"):
        assert f"\n{part}" in run.stdout


def test_machine_says_which_path_is_not_there(tmp_path: Path) -> None:
    run = penstock("machine", tmp_path / "none")
    assert (run.returncode, run.stdout) == (1, "")
    assert "none" in run.stderr


@pytest.mark.parametrize("port", ["99999", "0", "-1", "x", ""])
def test_top_takes_no_port_that_does_not_exist(port: str) -> None:
    ran = penstock("top", f"127.0.0.1:{port}", "--once")
    assert ran.returncode == 1
    assert "neither a process number nor HOST:PORT" in ran.stderr


@pytest.mark.parametrize("arguments", [("info",), ("info", "--json"), ("bench", "--json")])
def test_a_full_stdout_is_told(folder: Path, arguments: tuple[str, ...]) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full")
    for words in ((*arguments, str(folder)), ("--version",), ("--help",)):
        with open("/dev/full", "wb") as full:
            call = [str(COMMAND), *words]
            run = subprocess.run(call, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        assert run.returncode == 1
        assert run.stderr == "penstock: cannot write: No space left on device\n"


def test_who_has_seen_enough_is_told_nothing(folder: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as pipe:
        call = [str(COMMAND), "info", str(folder)]
        run = subprocess.run(call, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (1, "")
