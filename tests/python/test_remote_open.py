"""Opening remote datasets: what nodes hold, whom to wait for, tokens, certificates, damage on the way."""

import contextlib
import shutil
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from interrupting import interrupt
from node_double import Node, free_port

import penstock

COMMAND = Path(sys.executable).with_name("penstock")
N = 23
pytestmark = pytest.mark.usefixtures("plain_remote")


# ---- whom to wait for ----


def asked(node: Node) -> int:
    """How often it was asked what it holds."""
    return sum(path.count("/") == 3 for _, path in node.seen)


def test_opening_waits_for_nodes_that_start(folder, stream):
    with Node(pictures=folder) as first, Node(pictures=folder) as second:
        url = f"penstock://{first.address}+{second.address}/pictures"
        wanted = penstock.Dataset(url).hash
        for node in (first, second):
            node.stop()
        starters = [threading.Timer(0.3 * i, node.start) for i, node in enumerate((first, second))]
        for starter in starters:
            starter.start()
        assert penstock.Dataset(url).hash == wanted
        for starter in starters:
            starter.join()


def test_opening_waits_for_nobody_whom_it_does_not_need(folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "3600")
    with Node(pictures=folder) as node:
        url = f"penstock://127.0.0.1:{free_port()},{node.address}/pictures"
        assert penstock.Dataset(url).hash == penstock.Dataset(folder).hash
        assert asked(node) == 1


def test_an_answer_that_will_not_change_is_an_error_at_once(folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "3600")
    with Node(token="s3cret", pictures=folder) as node:
        with pytest.raises(penstock.InputOutputError, match="401"):
            penstock.Dataset(node.url("pictures"))
        monkeypatch.setenv("PENSTOCK_TOKEN", "s3cret")
        with pytest.raises(penstock.NotFoundError, match="has no dataset 'other'"):
            penstock.Dataset(node.url("other"))
        assert asked(node) == 2


def test_one_that_refuses_is_not_asked_again_while_another_is_waited_for(folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "1")
    with Node(token="s3cret", pictures=folder) as node:
        away = f"127.0.0.1:{free_port()}"
        with pytest.raises(penstock.InputOutputError, match="none of 2 replicas") as caught:
            penstock.Dataset(f"penstock://{node.address},{away}/pictures")
        assert asked(node) == 1
        assert f"{node.address} answers 401" in str(caught.value)
        assert f"cannot ask {away} for 'pictures': connection refused" in str(caught.value)


def test_what_cannot_be_opened_is_said_clearly(node, folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "0.5")
    refused = f"penstock://127.0.0.1:{free_port()}/x"
    with pytest.raises(penstock.InputOutputError, match="connection refused"):
        penstock.Dataset(refused)
    with pytest.raises(penstock.NotFoundError, match="has no dataset 'other'"):
        penstock.Dataset(node.url("other"))
    both = refused.replace("/x", ",127.0.0.1:1/x")
    with pytest.raises(penstock.InputOutputError, match="none of 2 replicas serves it") as caught:
        penstock.Dataset(both)
    for address in both.removeprefix("penstock://").removesuffix("/x").split(","):
        assert f"cannot ask {address} for 'x': connection refused" in str(caught.value)
    for url in ("penstock://", "penstock://host", "penstock:///name", "penstock://h:0/n"):
        with pytest.raises(penstock.InvalidError, match="penstock://HOST"):
            penstock.Dataset(url)


def test_a_wrong_token_is_said_clearly(folder, monkeypatch, tmp_path):
    with Node(token="s3cret", pictures=folder) as node:
        with pytest.raises(penstock.InputOutputError, match="401, wrong token: give the node's"):
            penstock.Dataset(node.url("pictures"))
        monkeypatch.setenv("PENSTOCK_TOKEN", "s3cret")
        assert len(penstock.Dataset(node.url("pictures"))) == N
        monkeypatch.setenv("PENSTOCK_TOKEN", "two words")
        with pytest.raises(penstock.InvalidError, match="no token has"):
            penstock.Dataset(node.url("pictures"))
        monkeypatch.delenv("PENSTOCK_TOKEN")
        (tmp_path / "token").write_text("s3cret\n")
        monkeypatch.setenv("PENSTOCK_TOKEN_FILE", str(tmp_path / "token"))
        remote = penstock.Dataset(node.url("pictures"))
        assert remote.read(0)
        node.token = "changed"
        with pytest.raises(penstock.InputOutputError, match="401"):
            remote.read(1)


@pytest.mark.parametrize(
    ("lies", "words"),
    [
        ({"hash": "0" * 32}, "the manifest gives the dataset hash"),
        ({"hash": "x"}, "has no hash"),
        ({"count": 10**12}, "number of samples"),
        ({"count": 2**30}, "number of samples"),
        ({"count": N + 1}, "other samples"),
        ({"page": 0}, "samples a page"),
        ({"page": 2**17}, "samples a page"),
        ({"count": 2**17, "page": 1}, "samples a page"),
        ({"bytes": 1}, r"the manifest has \d+ bytes of samples, the server says 1$"),
        ({"classes": ["ant", "ant"]}, "names a class twice"),
        ({"classes": ["ant"]}, "fewer classes"),
        ({"classes": "ant"}, "no list"),
        ({"class_bytes": "616e74"}, "no list"),
        ({"class_bytes": ["616e74"]}, "two numbers of classes"),
        ({"class_bytes": ["61", "6", "63"]}, "class without a name"),
        ({"class_bytes": ["61", "6g", "63"]}, "class without a name"),
        ({"class_bytes": ["61", "62", "6300"]}, "class without a name"),
        ({"class_bytes": ["61", "62", "62"]}, "names a class twice"),
    ],
)
def test_a_description_that_lies_is_found_out(lies, words, node):
    node.lies = lies
    with pytest.raises(penstock.DataError, match=words) as caught:
        penstock.Dataset(node.url("pictures"))
    assert node.address in str(caught.value)


@pytest.mark.parametrize("order", [1, -1])
def test_a_replica_whose_name_nobody_knows_is_routed_around(order, node, folder, stream):
    """Asked again and again; a name of that length is known without asking anybody."""
    replicas = [node.address, "x" * 64 + ":7470"][::order]
    assert stream(f"penstock://{','.join(replicas)}/pictures", epochs=2) == stream(folder, epochs=2)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("page", [{"hash": "It works!"}, {"count": -1}, None])
def test_a_replica_that_has_something_else_is_routed_around(page, order, node, folder, stream):
    """It was started without the dataset, or another program has its port by now."""
    with Node(**{"pictures" if page else "other": folder}) as wrong:
        wrong.lies = page or {}
        replicas = [node.address, wrong.address][::order]
        url = f"penstock://{','.join(replicas)}/pictures"
        assert stream(url, epochs=2) == stream(folder, epochs=2)


def test_replicas_that_all_have_something_else_are_an_error_at_once(folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "3600")
    with Node(pictures=folder) as first, Node(pictures=folder) as second:
        both = f"{first.address},{second.address}"
        with pytest.raises(penstock.NotFoundError, match="none of 2 replicas serves it") as caught:
            penstock.Dataset(f"penstock://{both}/other")
        for node in (first, second):
            assert f"{node.address} has no dataset 'other'" in str(caught.value)
        first.lies = second.lies = {"count": 0}
        with pytest.raises(penstock.DataError, match="number of samples"):
            penstock.Dataset(f"penstock://{both}/pictures")
        second.token = "s3cret"
        with pytest.raises(penstock.InputOutputError, match="answers 401"):
            penstock.Dataset(f"penstock://{both}/pictures")


def test_a_name_that_nobody_knows_is_said_clearly(monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "1")
    with pytest.raises(penstock.InputOutputError, match="resolve host"):
        penstock.Dataset(f"penstock://{'x' * 64}/pictures")


@pytest.mark.parametrize("order", [1, -1])
def test_an_answer_that_does_not_end_is_not_waited_for(order, node, folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "6")
    with Node(pictures=folder) as dripping:
        dripping.drips = True
        url = f"penstock://{','.join([dripping.address, node.address][::order])}/pictures"
        assert penstock.Dataset(url).hash == penstock.Dataset(folder).hash
        monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "1")
        with pytest.raises(penstock.InputOutputError, match="no whole answer in time"):
            penstock.Dataset(dripping.url("pictures"))


def test_many_that_do_not_end_are_not_waited_for_one_after_another(folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "1")
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(Node(pictures=folder)) for _ in range(16)]
        for node in nodes:
            node.drips = True
        began = time.monotonic()
        with pytest.raises(penstock.InputOutputError, match="none of 16 replicas serves it"):
            penstock.Dataset(f"penstock://{','.join(node.address for node in nodes)}/pictures")
        assert time.monotonic() - began < 12  # 16, were each given the whole time


# ---- damage on the way ----


def damaged(page: bytes) -> bytes:
    return page[:50] + bytes([page[50] ^ 1]) + page[51:]


@pytest.mark.parametrize("which", range(4))
def test_a_page_that_was_damaged_is_asked_for_again(which, node, folder):
    pages = iter(range(100))
    node.spoil_page = lambda page: damaged(page) if next(pages) == which else page
    assert penstock.Dataset(node.url("pictures")).hash == penstock.Dataset(folder).hash


def test_a_page_that_one_replica_damages_comes_from_another(node, folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "3600")
    node.spoil_page = damaged
    with Node(pictures=folder) as other:
        url = f"penstock://{node.address},{other.address}/pictures"
        assert penstock.Dataset(url).hash == penstock.Dataset(folder).hash


def test_pages_that_are_always_damaged_are_an_error(node, folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "1")
    node.spoil_page = damaged
    with pytest.raises(penstock.InputOutputError, match="the manifest's checksum differs"):
        penstock.Dataset(node.url("pictures"))
    with Node(pictures=folder) as other:  # it divides the manifest in another way
        other.lies = {"page": 20}
        url = f"penstock://{node.address},{other.address}/pictures"
        with pytest.raises(penstock.InputOutputError, match="the manifest's checksum differs"):
            penstock.Dataset(url)


@pytest.mark.parametrize("bit", [0, 7, 300, -9, -24 * 8 + 3])
def test_a_description_that_was_damaged_is_asked_for_again(bit, node, folder):
    answers = iter(range(100))

    def flip(text: bytes) -> bytes:
        if next(answers) > 1:
            return text
        at = bit // 8 % len(text)
        return text[:at] + bytes([text[at] ^ 1 << bit % 8]) + text[at + 1 :]

    node.spoil_description = flip
    assert penstock.Dataset(node.url("pictures")).hash == penstock.Dataset(folder).hash
    assert asked(node) == 3


def test_a_description_that_is_always_damaged_is_an_error(node, folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "1")
    node.spoil_description = lambda text: text.replace(b"ant", b"aunt")
    with pytest.raises(penstock.InputOutputError, match="another checksum") as caught:
        penstock.Dataset(node.url("pictures"))
    assert node.address in str(caught.value)
    with Node(pictures=folder) as other:
        url = f"penstock://{node.address},{other.address}/pictures"
        assert penstock.Dataset(url).classes == ["ant", "bee", "cat"]


@pytest.mark.parametrize("replicas", [1, 2])
def test_ctrl_c_ends_the_wait_for_a_page(replicas, node, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "600")
    is_over = threading.Event()
    node.spoil_page = lambda page: page if is_over.wait() else b""
    url = f"penstock://{','.join([node.address] * replicas)}/pictures"
    program = f"""
import penstock
print("waiting", flush=True)
try:
    penstock.Dataset({url!r})
except KeyboardInterrupt:
    print("interrupted")
"""
    try:
        assert interrupt(program) == ("interrupted\n", 0)
    finally:
        is_over.set()


# ---- certificates ----


def make_certificate(place: Path) -> Path:
    """A certificate for 127.0.0.1 that nobody has heard of, with its key; alone in PLACE.crt."""
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make a certificate")
    call = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    call += ["-subj", f"/CN={place.stem}", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        [*call, "-keyout", place, "-out", f"{place}.crt"], check=True, capture_output=True
    )
    place.write_text(place.read_text() + Path(f"{place}.crt").read_text())
    return place


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls") / "node.pem")


def test_tls_is_spoken_and_certificates_are_checked(certificate, folder, stream, monkeypatch):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with Node(context=context, pictures=folder) as node:
        with pytest.raises(penstock.InputOutputError, match=r"certificate.*PENSTOCK_CA_FILE"):
            penstock.Dataset(node.url("pictures"))
        monkeypatch.setenv("PENSTOCK_CA_FILE", f"{certificate}.crt")
        assert stream(node.url("pictures")) == stream(folder)
        monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "0.5")
        with pytest.raises(penstock.InputOutputError, match="cannot ask"):
            penstock.Dataset(node.url("pictures").replace("penstocks", "penstock"))


def test_tls_where_none_is_spoken_is_an_error_at_once(node, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REMOTE_TIMEOUT", "3600")
    with pytest.raises(penstock.InputOutputError, match="it does not speak TLS: penstock://"):
        penstock.Dataset(node.url("pictures").replace("penstock:", "penstocks:"))


def test_certificates_that_are_given_are_trusted_instead_of_the_systems(
    certificate, folder, tmp_path
):
    """In a place where the system trusts the node's, which is another one than the user's."""
    if not shutil.which("unshare"):
        pytest.skip("no unshare")
    other = make_certificate(tmp_path / "other.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    script = """
mount -t tmpfs none /etc/ssl/certs || exit 77
cp "$3" /etc/ssl/certs/ca-certificates.crt
cp "$1" "/etc/ssl/certs/$(openssl x509 -hash -noout -in "$1").0"
"$4" info "$2" >/dev/null || exit 77
PENSTOCK_CA_FILE=$3 exec "$4" info "$2"
"""
    with Node(context=context, pictures=folder) as node:
        call = ["unshare", "--mount", "sh", "-c", script, "sh", f"{certificate}.crt"]
        call += [node.url("pictures"), f"{other}.crt", str(COMMAND)]
        done = subprocess.run(call, capture_output=True, text=True, timeout=120)
    if done.returncode == 77 or "unshare:" in done.stderr:
        pytest.skip("the system's certificates cannot be changed for a test here")
    assert done.returncode == 1, done
    assert "certificate" in done.stderr
