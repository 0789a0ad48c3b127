"""bench.command_line: what the benchmarks' commands share."""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import command_line  # noqa: E402


def test_words_stand_between_commas():
    assert command_line.words("a, b,,c ") == ["a", "b", "c"]
    assert command_line.words("") == []


def test_what_is_saved_is_read_again(tmp_path):
    target = tmp_path / "deep" / "out.json"
    command_line.save(target, {"a": 1})
    command_line.save(target, {"a": 2})
    command_line.save(None, {"a": 3})
    assert command_line.load([target, target]) == [{"a": 2}, {"a": 2}]
    assert [path.name for path in target.parent.iterdir()] == ["out.json"]


def test_a_file_that_is_none_ends_the_command(tmp_path):
    (tmp_path / "bad.json").write_text("{")
    for name in ("bad.json", "absent.json"):
        with pytest.raises(SystemExit, match="measured before"):
            command_line.load([tmp_path / name])


def test_a_report_is_written_or_printed(tmp_path, capsys):
    command_line.write_report("text", tmp_path / "deep" / "out.md")
    assert (tmp_path / "deep" / "out.md").read_text() == "text\n"
    command_line.write_report("text", None)
    assert capsys.readouterr().out == "text\n"


def test_options_mean_the_same_everywhere():
    parser = argparse.ArgumentParser()
    command_line.add_common(parser, quick="short", plot="-bars")
    options = parser.parse_args(["--from", "a.json", "b.json", "--quick"])
    assert [path.name for path in options.from_] == ["a.json", "b.json"]
    assert options.quick and not options.list and options.json is None


def test_being_asked_to_end_runs_what_cleans_up():
    script = (
        f"import sys, time; sys.path.insert(0, {str(ROOT)!r})\n"
        "from bench.command_line import run_command\n"
        "def main():\n"
        "    try:\n"
        "        print('up', flush=True); time.sleep(600)\n"
        "    finally:\n"
        "        print('clean', flush=True)\n"
        "run_command(main)\n"
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", script], **pipes) as process:
        assert process.stdout.readline() == "up\n"
        os.kill(process.pid, signal.SIGTERM)
        said, error = process.communicate(timeout=60)
    assert said == "clean\n" and error == "\nbench: interrupted\n"
    assert process.returncode == 1
