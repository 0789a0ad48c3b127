"""What docs/near-storage.md says of deploying a node: its examples start one, with paths of this machine."""

import json
import re
import shlex
import urllib.request
from pathlib import Path

import pytest
from node_process import serving

MANUAL = Path(__file__).resolve().parents[2] / "docs" / "near-storage.md"
TOKEN = "correct-horse-battery"


@pytest.fixture
def places(folder: Path, tmp_path: Path) -> dict[str, str]:
    """Paths of the examples, and those that stand for them here."""
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text(TOKEN)
    found = {name: str(token) for name in ("${CREDENTIALS_DIRECTORY}/token", "/secrets/token")}
    return {**found, "/data/train": str(folder)}


def block(kind: str) -> str:
    """The manual's only example in that language."""
    (found,) = re.findall(rf"```{kind}\n(.*?)```", MANUAL.read_text(), re.DOTALL)
    return found


def start(words: list[str], places: dict[str, str], name: str) -> None:
    """What an example starts, on a port of its own, serves its dataset to those who have the token."""
    assert words[:1] == ["serve"]
    at = words.index("--listen")
    assert words[at + 1] == "0.0.0.0:7470"
    kept = words[1:at] + words[at + 2 :]
    with serving(*(places.get(word, word) for word in kept)) as node:
        assert node.get("/healthz").read() == b"ok\n"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        request = urllib.request.Request(f"{node.url}/v1/data/{name}", headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["name"] == name
        refused = node.ask("GET", f"/v1/data/{name}")
        assert refused[0] == 401


def test_the_systemd_unit_starts_a_node(places: dict[str, str]) -> None:
    unit = block("ini")
    assert re.findall(r"^\[(\w+)\]$", unit, re.MULTILINE) == ["Unit", "Service", "Install"]
    (line,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    program, *words = shlex.split(line)
    assert program.endswith("/penstock")
    assert "LoadCredential=token:" in unit
    start(words, places, Path(places["/data/train"]).name)


def test_the_daemon_set_starts_a_node(places: dict[str, str]) -> None:
    text = block("yaml")
    (line,) = re.findall(r"^ +command: \[(.*)\]$", text, re.MULTILINE)
    program, *words = (word.strip().strip('"') for word in line.split(","))
    assert program == "penstock"
    start(words, places, "train")
    # What the command names is mounted, and probes ask where it listens.
    mounted = set(re.findall(r"mountPath: ([\w/]+)", text))
    assert {"/data", "/secrets", "/cache"} <= mounted
    named = set(re.findall(r"^ +- \{name: (\w+), mountPath", text, re.MULTILINE))
    volumes = text.partition(" volumes:")[2]
    assert named == set(re.findall(r"- \{name: (\w+)", volumes))
    assert set(re.findall(r"port: (\d+)", text)) == {"7470"}
