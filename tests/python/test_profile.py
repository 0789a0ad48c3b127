"""`penstock profile`: its figures, what it writes, and how it refuses."""

import io
import itertools
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from conftest import picture
from node_process import serving

from penstock import Loader
from penstock import transforms as T

COMMAND = Path(sys.executable).with_name("penstock")
N = 12
SHAPE = (224, 224, 3)


def penstock(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [str(COMMAND), *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == code, run.stderr
    return run


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JPEG files of all sizes, and one PNG file."""
    root = tmp_path_factory.mktemp("photos")
    for number in range(N):
        out = io.BytesIO()
        image = picture(number, 150 + 70 * number, 120 + 50 * number)
        image.save(out, "PNG" if number == 5 else "JPEG", quality=90)
        extension = "png" if number == 5 else "jpg"
        (root / f"{number:02}.{extension}").write_bytes(out.getvalue())
    return root


@pytest.fixture(scope="module")
def told(photos: Path) -> dict:
    return json.loads(penstock("profile", photos, "--json", "-", "--seed", 3).stdout)


def column(told: dict, after: str, form: str, key: str = "bytes") -> list:
    at = [(point["after"], point["form"]) for point in told["points"]].index((after, form))
    return [sample[key][at] for sample in told["samples"]]


def test_every_sample_is_measured_once(told: dict, photos: Path) -> None:
    assert (told["count"], told["measured"], told["failed"]) == (N, N, 0)
    assert sorted(sample["id"] for sample in told["samples"]) == list(range(N))
    sizes = [file.stat().st_size for file in sorted(photos.iterdir())]
    files = column(told, "", "file")
    assert [files[i] for i in np.argsort([s["id"] for s in told["samples"]])] == sizes


def test_pixels_and_tensors_have_the_size_of_the_crop(told: dict) -> None:
    for after in ("RandomResizedCrop", "RandomHorizontalFlip"):
        assert set(column(told, after, "pixels")) == {np.prod(SHAPE)}
    assert set(column(told, "Normalize", "tensor")) == {4 * np.prod(SHAPE)}
    cut = column(told, "", "JPEG cut")
    assert cut.count(None) == 1  # of the PNG file
    assert all(cpu > 0 for cpu in column(told, "Normalize", "tensor", "cpu_s"))


def test_rows_and_totals_follow_from_the_samples(told: dict) -> None:
    for i, point in enumerate(told["points"]):
        values = [sample["bytes"][i] for sample in told["samples"]]
        values = [value for value in values if value is not None]
        assert point["samples"] == len(values)
        quantiles = np.percentile(values, [10, 50, 90])
        assert [point["p10"], point["p50"], point["p90"]] == pytest.approx(quantiles)
    files = column(told, "", "file")
    sophon = sum(min(size, np.prod(SHAPE)) for size in files)  # the crop is there, or it is not
    totals = {name: total["bytes"] for name, total in told["totals"].items()}
    assert totals["files"] == sum(files)
    assert totals["sophon"] == sophon
    assert totals["smallest"] == sum(sample["sent_bytes"] for sample in told["samples"])
    assert totals["smallest"] < totals["sophon"] < totals["files"]
    assert told["totals"]["files"]["cpu_s"] == 0


def test_shares_and_bins_count_every_sample(told: dict) -> None:
    smallest = [min(b for b in s["bytes"] if b is not None) for s in told["samples"]]
    shrinking = sum(a < b for a, b in zip(smallest, column(told, "", "file"), strict=True))
    assert told["shrinking"] == shrinking
    assert sum(point["smallest"] for point in told["points"]) == N
    bins = told["saved_per_cpu_s"]
    assert sum(bin["samples"] for bin in bins) + told["saves_nothing"] == N
    saved = told["totals"]["files"]["bytes"] - told["totals"]["smallest"]["bytes"]
    assert sum(bin["bytes"] for bin in bins) == pytest.approx(saved)


def test_bytes_depend_on_the_seed_alone(told: dict, photos: Path) -> None:
    def bytes_of(seed: int) -> list:
        again = json.loads(penstock("profile", photos, "--json", "-", "--seed", seed).stdout)
        return [(s["id"], s["bytes"], s["sent_bytes"]) for s in again["samples"]]

    assert bytes_of(3) == [(s["id"], s["bytes"], s["sent_bytes"]) for s in told["samples"]]
    assert bytes_of(4) != bytes_of(3)


def test_the_table_is_for_a_person(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "profile.json"
    run = penstock("profile", photos, "--samples", 7, "--json", out)
    assert f"7 of {N} samples, imagenet-train" in run.stdout
    for text in ("JPEG cut", "RandomResizedCrop", "coded pixels", "SOPHON's rule", "#", "p90"):
        assert text in run.stdout
    assert run.stderr == ""  # no progress bar where nobody sees it
    assert json.loads(out.read_text())["measured"] == 7


def test_a_job_with_a_slow_device_does_not_wait_for_its_data(photos: Path) -> None:
    options = ("--samples", 4, "--step-ms", "20,5", "--batch-size", 1, "--threads", 2)
    told = json.loads(penstock("profile", photos, *options, "--json", "-").stdout)["job"]
    assert told["is_io_bound"] is False
    assert told["device_s"] >= 0.014 and told["fetched"] == N
    assert 0 < told["net_smallest_s"] < told["net_s"] < told["device_s"]
    assert told["client_s"] > 0 and told["storage_s"] > 0
    run = penstock("profile", photos, "--samples", 2, "--step-ms", 1, "--batch-size", 1)
    assert "ms a sample, each alone: device" in run.stdout and "I/O-bound" in run.stdout


def test_a_node_is_asked_for_the_smallest_form_of_each(photos: Path, told: dict) -> None:
    def bytes_of(profile: dict) -> dict:
        return {sample["id"]: sample["bytes"] for sample in profile["samples"]}

    with serving("--name", "photos", photos, "--cpus", 1) as node:
        address = f"penstock://127.0.0.1:{node.port}/photos"
        remote = json.loads(penstock("profile", address, "--json", "-", "--seed", 3).stdout)
        table = penstock("profile", address, "--samples", 3).stdout
    assert bytes_of(remote) == bytes_of(told)
    assert all(sample["node_cpu_s"] > 0 for sample in remote["samples"])
    assert remote["node_slowness"] > 0 and told["node_slowness"] is None
    assert "The node took" in table


def test_what_loaders_have_kept_is_told(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: dict
) -> None:
    assert told["kept"] is None
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    line = [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor()]
    with serving("--name", "photos", photos) as node:
        url = f"penstock://{node.host}:{node.port}/photos"
        loader = Loader(url, [*line, T.Normalize(mean, std)], 4, offload="auto", policy="fixed")
        for _ in range(30):  # ratios are to what is expected, and that takes some to settle
            for _ in loader:
                pass
        (file,) = tmp_path.glob("*.profile")
        train, val = (
            json.loads(penstock("profile", path, "--samples", 1, "--json", "-", *ops).stdout)
            for path, ops in ((url, ()), (photos, ("--ops", "imagenet-val")))
        )
        text = penstock("profile", url, "--samples", 1).stdout
    kept = train["kept"]
    assert (kept["bytes"], kept["headers"]) == (file.stat().st_size, N)
    assert 0 < kept["ratios"] <= N
    assert (kept["is_this_pipeline"], val["kept"]) == (True, kept | {"is_this_pipeline": False})
    words = f"headers of {N} of {N} samples, ratios of {kept['ratios']} (with this pipeline)"
    assert words in " ".join(text.split())
    file.unlink()
    text = penstock("profile", photos, "--samples", 1).stdout
    assert "as a remote dataset: nothing." in text


def test_a_resize_and_its_crop_are_one_row(photos: Path) -> None:
    run = penstock("profile", photos, "--ops", "imagenet-val", "--samples", 3)
    assert "CenterCrop" in run.stdout and "\nResize" not in run.stdout


def test_the_picture_is_svg(photos: Path, tmp_path: Path) -> None:
    plot = tmp_path / "profile.svg"
    penstock("profile", photos, "--plot", plot)
    root = ElementTree.parse(plot).getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    texts = [element.text for element in root.iter(f"{space}text")]
    assert "RandomResizedCrop coded pixels" in texts
    assert f"{N} of {N} samples, imagenet-train: sizes on the way to a tensor" in texts
    width = float(root.get("width"))
    boxes = list(root.iter(f"{space}rect"))
    assert len(boxes) > 20
    for box in boxes:
        x, w = float(box.get("x")), float(box.get("width"))
        assert 0 <= x <= x + w <= width


def test_what_cannot_be_decoded_is_left_out_and_told(spoiled: Path, tmp_path: Path) -> None:
    run = penstock("profile", spoiled, "--json", "-")
    told = json.loads(run.stdout)
    assert told["failed"] == 2 and told["measured"] == told["count"] - 2
    assert "2 of 23 samples cannot be decoded" in run.stderr
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "a.jpg").write_bytes(b"no picture at all")
    run = penstock("profile", tmp_path / "none", code=1)
    assert run.stdout == "" and "no sample can be decoded" in run.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--samples", "0"), "from 1 to"),
        (("--samples", "many"), "from 1 to"),
        (("--plot", "a.png"), "FILE.svg"),
        (("--step-ms", "0"), "MEAN,JITTER"),
        (("--threads", "0"), "from 1 to"),
        (("--ops", "mine"), "imagenet-train or imagenet-val"),
        (("--seed", "-1"), "2^64-1"),
        (("more",), "one DATASET"),
    ],
)
def test_wrong_use_is_told(arguments: tuple[str, ...], said: str) -> None:
    run = penstock("profile", "x", *arguments, code=2)
    assert run.stdout == "" and said in run.stderr


def test_what_cannot_be_written_is_an_error(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "is.svg").mkdir()
    places = (tmp_path / "none" / "profile.svg", tmp_path / "is.svg")
    for option, path in itertools.product(("--json", "--plot"), places):
        run = penstock("profile", photos, "--samples", 1, option, path, code=1)
        assert f"cannot write {path}" in run.stderr
        assert run.stdout == ""  # before anything is measured
    if os.path.exists("/dev/full"):
        run = penstock("profile", photos, "--samples", 1, "--json", "/dev/full", code=1)
        assert "cannot write /dev/full: No space left on device" in run.stderr
        assert not Path("/dev/full").is_file()  # a device is not replaced


@pytest.mark.parametrize("arguments", [("--samples", 1), ("--json", "-"), ("--help",)])
def test_a_full_stdout_is_an_error(photos: Path, arguments: tuple) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full")
    with open("/dev/full", "wb") as full:
        call = [str(COMMAND), "profile", str(photos), *map(str, arguments)]
        run = subprocess.run(call, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert run.returncode == 1
    assert run.stderr == "penstock: cannot write: No space left on device\n"


@pytest.mark.parametrize(("option", "name"), [("--json", "told.json"), ("--plot", "told.svg")])
def test_a_file_is_written_whole_or_not_at_all(
    photos: Path, tmp_path: Path, option: str, name: str
) -> None:
    """On a disk that is full after some bytes, which RLIMIT_FSIZE stands for."""
    place, link = tmp_path / name, tmp_path / f"link-{name}"
    short = ["prlimit", "--fsize=1000", str(COMMAND)]
    call = [*short, "profile", str(photos), "--samples", "3", option, str(place)]

    def run_short_of_room() -> None:
        run = subprocess.run(call, capture_output=True, text=True, timeout=120)
        assert run.returncode == 1
        assert run.stderr == f"penstock: cannot write {call[-1]}: File too large\n"

    run_short_of_room()
    assert list(tmp_path.iterdir()) == []
    place.write_text("from before")
    place.chmod(0o640)
    link.symlink_to(name)
    call[-1] = str(link)
    run_short_of_room()
    assert place.read_text() == "from before"
    penstock("profile", photos, "--samples", 3, option, link)
    assert link.is_symlink() and place.stat().st_mode & 0o777 == 0o640
    assert len(place.read_text()) > 1000
    assert {file.name for file in tmp_path.iterdir()} == {name, link.name}


def test_a_link_to_nothing_yet_and_a_pipe_are_written_to(photos: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to("told.json")
    penstock("profile", photos, "--samples", 1, "--json", link)
    assert link.is_symlink() and json.loads((tmp_path / "told.json").read_text())["measured"] == 1
    run = penstock("profile", photos, "--samples", 1, "--json", "/dev/stdout")
    json_text, end, _ = run.stdout.partition("]}\n")
    assert json.loads(json_text + end)["measured"] == 1  # and the table


def test_help_names_every_option() -> None:
    run = penstock("profile", "--help")
    for option in ("--ops", "--samples", "--seed", "--step-ms", "--json", "--plot"):
        assert option in run.stdout
    assert "profile" in penstock("--help").stdout
