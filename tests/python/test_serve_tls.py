"""A storage node and its clients over TLS: the stream, and who does not read."""

import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from node_process import Node, order, serving, until

import penstock
from penstock import transforms as T

TOKEN = "correct-horse-battery"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that nobody has heard of; key.pem is beside it."""
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make a certificate")
    place = tmp_path_factory.mktemp("tls")
    call = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    call += ["-subj", "/CN=node", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", place / "key.pem", "-out", place / "cert.pem"]
    subprocess.run([*call, *files], check=True, capture_output=True, timeout=60)
    return place / "cert.pem"


@pytest.fixture(autouse=True)
def environment(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's clients trust the certificate, and ours does where a test says so."""
    for name in ("PENSTOCK_TOKEN", "PENSTOCK_TOKEN_FILE", "PENSTOCK_CA_FILE", "PENSTOCK_OFFLOAD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "30")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))


def tls(certificate: Path) -> list[object]:
    return ["--tls-cert", certificate, "--tls-key", certificate.with_name("key.pem")]


@pytest.fixture(scope="module")
def node(certificate: Path, folder: Path, shard: Path) -> Iterator[Node]:
    data = ["--name", "pictures", folder, "--name", "shard", shard]
    with serving(*data, *tls(certificate)) as found:
        yield found


@pytest.mark.parametrize("offload", ["none", "auto", "all"])
@pytest.mark.parametrize("name", ["pictures", "shard"])
def test_the_stream_is_that_of_the_local_path(
    name: str,
    offload: str,
    node: Node,
    certificate: Path,
    folder: Path,
    ops: list[T.Transform],
    digests: Callable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_CA_FILE", str(certificate))
    url = f"penstocks://127.0.0.1:{node.port}/{name}"
    epochs = []
    for path, policy in ((url, offload), (folder, "none")):
        loader = penstock.Loader(path, ops, 4, shuffle=True, seed=5, num_workers=3, offload=policy)
        epochs.append([digests(loader), digests(loader)])
    assert epochs[0] == epochs[1]
    assert epochs[0][0] != epochs[0][1]


def test_a_token_and_fields_travel_too(
    certificate: Path, shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    monkeypatch.setenv("PENSTOCK_CA_FILE", str(certificate))
    local = penstock.Dataset(shard)
    with serving("--name", "shard", shard, "--token-file", token, *tls(certificate)) as node:
        url = f"penstocks://127.0.0.1:{node.port}/shard"
        with pytest.raises(penstock.InputOutputError, match="token"):
            penstock.Dataset(url)
        monkeypatch.setenv("PENSTOCK_TOKEN", TOKEN)
        remote = penstock.Dataset(url)
        assert (remote.hash, remote.keys()) == (local.hash, local.keys())
        assert remote.read(3) == local.read(3)
        assert remote.field(0, "json") == local.field(0, "json")


def test_without_the_certificate_nothing_is_opened(node: Node) -> None:
    with pytest.raises(penstock.InputOutputError, match="certificate"):
        penstock.Dataset(f"penstocks://127.0.0.1:{node.port}/pictures")


def test_without_tls_it_is_said_what_may_be_wrong(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "1")
    with pytest.raises(penstock.InputOutputError, match="does it want TLS"):
        penstock.Dataset(f"penstock://127.0.0.1:{node.port}/pictures")


def large(root: Path) -> Path:
    (root / "large").mkdir(parents=True)
    for number in range(4):
        (root / "large" / f"{number}.jpg").write_bytes(bytes(range(256)) * 8000)
    return root


def test_who_stops_reading_is_cut_off_and_holds_up_nobody(
    certificate: Path, tmp_path: Path
) -> None:
    limits = ["--slow", 2, "--buffer", "1MiB", "--cpus", 1]
    context = ssl.create_default_context(cafile=str(certificate))
    body = order([[number % 4, 0, 0, 0, 1] for number in range(256)])  # half a gigabyte
    head = f"POST /v1/data/data/samples HTTP/1.1\r\nHost: 1\r\nContent-Length: {len(body)}\r\n\r\n"
    with serving(large(tmp_path / "data"), *limits, *tls(certificate)) as node:
        peers = []
        for _ in range(3):
            plain = socket.create_connection(("127.0.0.1", node.port), timeout=60)
            peers.append(context.wrap_socket(plain, server_hostname="127.0.0.1"))
            peers[-1].sendall(head.encode() + body)
            assert peers[-1].recv(12) == b"HTTP/1.1 200"
        assert len(node.get("/v1/data/data/samples/1").read()) == 256 * 8000
        until(lambda: node.metric("cut_connections_total") == 3)
        until(lambda: node.metric("buffered_bytes") == 0 and node.metric("waiting_items") == 0)
        assert node.get("/healthz").read() == b"ok\n"
        for peer in peers:
            peer.close()
