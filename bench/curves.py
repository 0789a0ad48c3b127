"""The same training with torch's DataLoader and with the import changed: `python -m bench.curves`.

Runs examples/train_resnet.py with both loaders and every kind of augmentation, compares the losses, and
draws them over wall time.  Exits with 1 if losses that must be equal to the bit are not.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.common import ROOT

SCRIPT = ROOT / "examples" / "train_resnet.py"
AUGMENTS = {
    "none": "no augmentation",
    "given": "augmentation, parameters from one source",
    "random": "augmentation, each its own",
}
EXACT = ("none", "given")
TAIL = 50  # steps whose mean loss is compared where randomness differs by design

# torchvision has no build for a CPU-only PyTorch: what its transforms need is defined first.
LAUNCH = "import runpy, sys; import bench.torchvision_shim; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"


def run(loader: str, augment: str, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "outcome.json"
        command = [
            sys.executable,
            "-c",
            LAUNCH,
            str(SCRIPT),
            options.data,
            "--loader",
            loader,
            "--augment",
            augment,
        ]
        command += ["--steps", str(options.steps), "--json", str(out)]
        command += ["--batch-size", str(options.batch_size)]
        print(f"{loader}, {AUGMENTS[augment]}", flush=True)
        subprocess.run(
            command, check=True, cwd=ROOT, stdout=None if options.verbose else subprocess.DEVNULL
        )
        outcome: dict[str, Any] = json.loads(out.read_text())
    return outcome


def compare(augment: str, theirs: dict[str, Any], ours: dict[str, Any]) -> tuple[bool, str]:
    """Is it as it must be, and in words."""
    n = len(theirs["losses"])
    n_equal = sum(a == b for a, b in zip(theirs["losses"], ours["losses"], strict=True))
    times = f"{theirs['seconds'][-1]:.0f} s, waiting {theirs['waited'] / theirs['seconds'][-1]:.0%} | {ours['seconds'][-1]:.0f} s, waiting {ours['waited'] / ours['seconds'][-1]:.0%}"
    if augment in EXACT:
        return n_equal == n, f"{n_equal} of {n} losses equal to the bit | {times}"
    means = [sum(side["losses"][-TAIL:]) / TAIL for side in (theirs, ours)]
    return True, f"mean loss of the last {TAIL} steps {means[0]:.3f} and {means[1]:.3f} | {times}"


def draw(results: dict[str, tuple[dict[str, Any], dict[str, Any]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        1, len(results), figsize=(5 * len(results), 4), sharey=True, squeeze=False
    )
    for axis, (augment, sides) in zip(axes[0], results.items(), strict=True):
        for side, style in zip(
            sides,
            ({"color": "tab:orange", "lw": 3, "alpha": 0.6}, {"color": "tab:blue", "lw": 1}),
            strict=True,
        ):
            axis.plot(side["seconds"], side["losses"], label=side["loader"], **style)
        axis.set(title=AUGMENTS[augment], xlabel="wall time (s)")
        axis.legend()
    axes[0][0].set_ylabel("training loss")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.curves",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--data", help="pictures, a folder a class")
    what.add_argument("--from", dest="earlier", type=Path, help="show the JSON of an earlier run")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--only", help="some of none,given,random")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--verbose", action="store_true", help="show the training's own output")
    options = parser.parse_args()
    earlier = json.loads(options.earlier.read_text()) if options.earlier else {}
    results, is_right = {}, True
    for augment in options.only.split(",") if options.only else earlier or AUGMENTS:
        if options.earlier:
            sides = earlier[augment]
        else:
            sides = run("torch", augment, options), run("penstock", augment, options)
        results[augment] = sides
        is_good, words = compare(augment, *sides)
        is_right &= is_good
        print(f"{AUGMENTS[augment]}: {words}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results))
    if options.plot:
        draw(results, options.plot)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
