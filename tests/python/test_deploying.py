"""What docs/near-storage.md says of deploying a node: its examples start one, with paths of this machine."""

import contextlib
import json
import os
import re
import shlex
import urllib.request
from pathlib import Path

import pytest
from node_process import Node, refused, serving

MANUAL = Path(__file__).resolve().parents[2] / "docs" / "near-storage.md"
ROOT = MANUAL.parents[1]
TOKEN = "correct-horse-battery"
NOBODY = 65534


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


def hand_out(token: str, mode: int) -> None:
    """As somebody else's file, which a group may read; where that can be done."""
    Path(token).chmod(mode)
    if os.geteuid() == 0:
        os.chown(token, NOBODY, os.getegid())


def complaints(node: Node) -> bytes:
    """What it has said by now."""
    pipe = node.process.stderr.fileno()
    os.set_blocking(pipe, False)
    with contextlib.suppress(BlockingIOError):
        return os.read(pipe, 4096)
    return b""


def start(words: list[str], places: dict[str, str], name: str) -> None:
    """What an example starts, on a port of its own, serves its dataset to those who have the token,
    and has nothing to complain of."""
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
        assert node.ask("GET", f"/v1/data/{name}")[0] == 401
        # Who is not root cannot give files away: then the token is the node's own, and its group's.
        assert complaints(node) == b"" or os.geteuid() != 0


def test_the_container_is_built_as_the_manual_says() -> None:
    text, image = MANUAL.read_text(), block("dockerfile")
    build, run = (part.replace("\\\n", " ") for part in image.split("FROM debian:12\n"))
    # What the program is linked with is what the README and scripts/setup name, without Python.
    (wanted,) = re.findall(r"with `(libjpeg-dev[^`]*)` installed", (ROOT / "README.md").read_text())
    wanted = set(re.findall(r"lib\S+-dev", wanted))
    (line,) = re.findall(r"^    apt-get install (.*)$", text, re.MULTILINE)
    assert set(re.findall(r"lib\S+-dev", build)) == set(re.findall(r"lib\S+-dev", line)) == wanted
    setup = (ROOT / "scripts" / "setup").read_text()
    assert all(f"need {package} " in setup for package in wanted)
    libraries = re.findall(r" lib\S+", run)
    assert len(libraries) == len(wanted) + 1  # libwebp-dev is of two
    # Options are there, and meson is new enough.
    options = set(re.findall(r"-D(\w+)=", text.partition("### Getting it there")[2]))
    assert options == {"python", "tests"}
    there = re.findall(r"^option\('(\w+)'", (ROOT / "meson_options.txt").read_text(), re.MULTILINE)
    assert options <= set(there)
    (version,) = re.findall(r"meson_version: '(>=[\d.]+)\.0'", (ROOT / "meson.build").read_text())
    assert image.count(f"'meson{version}'") == 1
    # As the user that the DaemonSet has it run as.
    (user,) = re.findall(r"^USER (\d+):\d+$", image, re.MULTILINE)
    assert f"runAsUser: {user}" in block("yaml")


def test_the_systemd_unit_starts_a_node(places: dict[str, str]) -> None:
    unit = block("ini")
    assert re.findall(r"^\[(\w+)\]$", unit, re.MULTILINE) == ["Unit", "Service", "Install"]
    (line,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    program, *words = shlex.split(line)
    assert program.endswith("/penstock")
    assert "LoadCredential=token:" in unit
    hand_out(places["${CREDENTIALS_DIRECTORY}/token"], 0o440)  # an ACL shows as the group's bits
    start(words, places, Path(places["/data/train"]).name)


def test_the_daemon_set_starts_a_node(places: dict[str, str]) -> None:
    text = block("yaml")
    (line,) = re.findall(r"^ +command: \[(.*)\]$", text, re.MULTILINE)
    program, *words = (word.strip().strip('"') for word in line.split(","))
    assert program == "penstock"
    (mode,) = re.findall(r"defaultMode: (\d+)", text)
    hand_out(places["/secrets/token"], int(mode, 8))
    start(words, places, "train")
    # What the command names is mounted, and probes ask where it listens.
    mounted = set(re.findall(r"mountPath: ([\w/]+)", text))
    assert {"/data", "/secrets", "/cache"} <= mounted
    named = set(re.findall(r"^ +- \{name: (\w+), mountPath", text, re.MULTILINE))
    volumes = text.partition(" volumes:")[2]
    assert named == set(re.findall(r"- \{name: (\w+)", volumes))
    assert set(re.findall(r"port: (\d+)", text)) == {"7470"}


@pytest.mark.parametrize(
    ("mode", "is_ours", "is_told"),
    [
        (0o600, True, False),
        (0o400, True, False),
        (0o440, True, True),
        (0o620, True, True),
        (0o604, True, True),
        (0o602, True, True),
        (0o440, False, False),
        (0o660, False, False),
        (0o444, False, True),
    ],
)
def test_a_token_that_others_may_read_is_told(
    mode: int, is_ours: bool, is_told: bool, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(mode)
    if not is_ours:
        if os.geteuid() != 0:
            pytest.skip("files are given away by root")
        os.chown(token, NOBODY, os.getegid())
    said = refused(tmp_path / "no-dataset", "--token-file", token)
    assert ("can be read or written by others: chmod 600" in said) == is_told
    assert "no such file" in said
