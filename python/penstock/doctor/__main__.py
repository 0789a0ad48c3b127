"""`penstock doctor [OPTIONS] SCRIPT [ARGS]`"""

import argparse
import builtins
import contextlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, ModuleType

GRACE_SECONDS = 20  # a script that takes no batches any more is ended then


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="penstock doctor",
        description="Run a PyTorch script for a while, unchanged, and tell why it waits for data.",
        epilog="The script is ended once it has been watched long enough; what it saves meanwhile is saved.",
    )
    parser.add_argument("--seconds", type=_positive, default=30.0, metavar="S", help="watch so long after the first batch (default 30)")  # fmt: skip
    parser.add_argument("--trial", type=_positive, default=6.0, metavar="S", help="then try either loader alone for so long (default 6)")  # fmt: skip
    parser.add_argument("--no-trial", action="store_true", help="do not try, only watch")
    parser.add_argument("--json", metavar="FILE", help="write what was found as JSON, too")
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("args", nargs=argparse.REMAINDER, metavar="ARGS", help="the script's own")
    return parser.parse_args(arguments)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError("must be a number above 0 and below a million")
    return value


def say(text: str) -> None:
    print(f"penstock doctor: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def main_module(path: str) -> Iterator[ModuleType]:
    """A `__main__` of the script's own.  It stays until the trial is over: its workers pickle
    batches of the script's types by that name, and one that cannot leaves torch waiting."""
    module = ModuleType("__main__")
    vars(module).update(__file__=path, __spec__=None, __builtins__=builtins)
    ours = sys.modules["__main__"]
    sys.modules["__main__"] = module
    try:
        yield module
    finally:
        sys.modules["__main__"] = ours


def run_script(module: ModuleType, seconds: float) -> list:  # type: ignore[type-arg]
    """Run it as Python would, and return what was watched."""
    from penstock.doctor.watch import Enough, Watch

    n_spared = 0

    def too_long(signum: int, frame: FrameType | None) -> None:
        """Every second, for a script may catch Enough; but what cleans up after one is given time."""
        nonlocal n_spared
        if isinstance(sys.exc_info()[1], Enough) and n_spared < GRACE_SECONDS:
            n_spared += 1
        else:
            raise Enough

    with Watch(seconds) as watch:
        signal.signal(signal.SIGALRM, too_long)
        watch.on_first_batch = lambda: signal.setitimer(
            signal.ITIMER_REAL, seconds + GRACE_SECONDS, 1
        )
        try:
            path = str(module.__file__)
            exec(compile(Path(path).read_bytes(), path, "exec", dont_inherit=True), vars(module))
            say("the script has ended")
        except Enough:
            say(f"watched for {seconds:.0f} s, the script was ended")
        except SystemExit as leave:
            say(f"the script has ended ({leave.code if leave.code is not None else 0})")
        except KeyboardInterrupt:
            say("interrupted: this is what was seen so far")
        except Exception:
            traceback.print_exc()
            say("the script failed; this is what was seen before")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    return watch.seen


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if not os.path.isfile(options.script):
        say(f"no such script: {options.script}")
        return 2
    try:
        import torch  # noqa: F401
    except ImportError:
        say(f"PyTorch is not installed for {sys.executable}; run `python -m penstock.doctor` of the environment that trains")  # fmt: skip
        return 1
    sys.argv = [options.script, *options.args]
    sys.path[0] = str(Path(options.script).resolve().parent)
    if options.json:
        options.json = os.path.abspath(options.json)  # the script may go elsewhere
    with main_module(os.path.abspath(options.script)) as module:
        return examine(module, options)


def examine(module: ModuleType, options: argparse.Namespace) -> int:
    """Watch the script, try the loaders, tell."""
    seen = run_script(module, options.seconds)
    from penstock.doctor import diagnosis, patch, trial
    from penstock.doctor.watch import N_STARTING

    counted = [w for w in seen if w.n_batches > N_STARTING]
    if not counted:
        say("no DataLoader gave more than two batches: nothing to tell")
        return 1
    found = []
    folder = os.path.dirname(os.path.realpath(str(module.__file__)))
    for watched in sorted(counted, key=lambda w: w.lost, reverse=True):
        rates = None
        if not options.no_trial and not found:  # the one that is waited for most
            say("trying either loader alone")
            rates = trial.compare(watched.loader, options.trial)
        found.append(diagnosis.diagnose(watched, rates))
        is_foreign = os.path.isfile(watched.file) and not patch.is_own(watched.file, folder)
        diff = None if is_foreign else patch.propose(watched.file)
        print(diagnosis.in_words(found[-1], diff, watched.file if is_foreign else None))
    if options.json:
        Path(options.json).write_text(json.dumps([f.as_json() for f in found], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
