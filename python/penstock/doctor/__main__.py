"""`penstock doctor [OPTIONS] SCRIPT [ARGS]`"""

import argparse
import builtins
import contextlib
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.doctor.alarm import AGAIN_SECONDS, Alarm

if TYPE_CHECKING:  # torch is imported late: it may not be there
    from penstock.doctor.trial import Rate
    from penstock.doctor.watch import Watch

GRACE_SECONDS = 20  # for a script that takes no batches any more, and for what it leaves behind
N_PATIENCE = 10  # times as long as it is watched is its first batch waited for
SEEN = (
    "seen are the DataLoaders of torch and of Penstock, and classes made from them whose __iter__ "
    "calls super().__iter__(), in the process that runs the script; not in processes that it "
    "starts (torch.multiprocessing.spawn, launchers), nor loaders of other libraries"
)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="penstock doctor",
        description="Run a PyTorch script for a while, unchanged, and tell why it waits for data.",
        epilog="The script is ended once it has been watched long enough; what it saves meanwhile is saved.",
    )
    parser.add_argument("--seconds", type=_positive, default=30.0, metavar="S", help="watch so long after the first batch (default 30)")  # fmt: skip
    parser.add_argument("--patience", type=_positive, metavar="S", help=f"end a script that takes no batch so long after its start (default {N_PATIENCE} times --seconds)")  # fmt: skip
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


def run_script(
    module: ModuleType, watch: "Watch", patience: float, held_up: Callable[[], object]
) -> None:
    """As Python would, until it has been watched for long enough."""
    from penstock.doctor.watch import Enough

    alarm = Alarm(Enough, patience, GRACE_SECONDS, AGAIN_SECONDS, held_up)
    watch.on_first_batch = lambda: alarm.set(watch.seconds + GRACE_SECONDS)
    on_ctrl_c = signal.getsignal(signal.SIGINT)
    try:
        with watch, alarm:
            path = str(module.__file__)
            exec(compile(Path(path).read_bytes(), path, "exec", dont_inherit=True), vars(module))
        say("the script has ended")
    except Enough:
        if watch.deadline is None:
            say(f"no batch was seen in {patience:g} s (--patience), the script was ended")
        else:
            say(f"watched for {watch.seconds:g} s, the script was ended")
    except SystemExit as leave:
        say(f"the script has ended ({leave.code if leave.code is not None else 0})")
    except KeyboardInterrupt:
        say("interrupted: this is what was seen so far")
    except BaseException:
        traceback.print_exc()
        say("the script failed; this is what was seen before")
    finally:
        signal.signal(signal.SIGINT, on_ctrl_c)  # Lightning ignores it from the first one on


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
    if options.json:
        options.json = os.path.abspath(options.json)  # the script may go elsewhere
        if not write(options.json):
            return 2
    sys.argv = [options.script, *options.args]
    sys.path[0] = str(Path(options.script).resolve().parent)
    with main_module(os.path.abspath(options.script)) as module:
        return examine(module, options)


def examine(module: ModuleType, options: argparse.Namespace) -> int:
    """Watch the script, try the loaders, tell."""
    from penstock.doctor.watch import Watch

    watch = Watch(options.seconds)

    def held_up() -> None:
        """In the alarm's thread: the main one can only be ended with the process."""
        say("native code does not come back: this is what was seen")
        code = 1
        try:
            code = tell(watch, None, module, options)
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)

    run_script(module, watch, options.patience or N_PATIENCE * options.seconds, held_up)
    return tell(watch, held_up, module, options)


def tell(
    watch: "Watch",
    held_up: Callable[[], object] | None,
    module: ModuleType,
    options: argparse.Namespace,
) -> int:
    """What was seen.  `held_up` is for the trial, as Alarm says; without it there is none."""
    from penstock.doctor import diagnosis, patch
    from penstock.doctor.watch import N_STARTING

    counted = [w for w in watch.seen if w.n_batches > N_STARTING]
    counted.sort(key=lambda w: w.lost, reverse=True)
    if not counted:
        tell_nothing(watch)
    tried = next((w for w in counted if not w.is_ours), None)  # the one that is waited for most
    rates = None
    if tried and held_up and not options.no_trial:
        rates = try_loaders(tried.loader, options.trial, held_up)
    found = []
    folder = os.path.dirname(os.path.realpath(str(module.__file__)))
    for watched in counted:
        found.append(diagnosis.diagnose(watched, rates if watched is tried else None))
        is_foreign = os.path.isfile(watched.file) and not patch.is_own(watched.file, folder)
        diff = None if is_foreign else patch.propose(watched.file)
        foreign = watched.file if is_foreign else None
        print(diagnosis.in_words(found[-1], diff, foreign), flush=True)
    if options.json and not write(options.json, [f.as_json() for f in found]):
        return 2
    return 0 if found else 1


def tell_nothing(watch: "Watch") -> None:
    say("no DataLoader gave more than two batches: nothing to tell")
    for loader in watch.unseen:
        say(f"no batch was seen of {loader}")
    say(SEEN)


def try_loaders(
    loader: Any, seconds: float, held_up: Callable[[], object]
) -> "tuple[Rate, Rate] | None":
    from penstock.doctor import trial

    say("trying either loader alone")
    try:
        return trial.compare(loader, seconds, held_up)
    except KeyboardInterrupt:
        say("interrupted: this is told without it")
        return None


def write(path: str, found: list[dict[str, Any]] | None = None) -> bool:
    """Without anything: only find out whether it can be written."""
    try:
        with open(path, "a" if found is None else "w", encoding="utf-8") as file:
            if found is not None:
                file.write(json.dumps(found, indent=1) + "\n")
    except OSError as error:
        say(f"cannot write {path}: {error.strerror}")
        return False
    return True


def leave(code: int) -> NoReturn:
    """As Python does; but what the script left running is not waited for without end."""

    def cut_off() -> None:
        time.sleep(GRACE_SECONDS)
        for child in multiprocessing.active_children():
            child.terminate()
        os._exit(code)

    sys.stdout.flush()
    threading.Thread(target=cut_off, daemon=True).start()
    sys.exit(code)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
