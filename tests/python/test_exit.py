"""Endings: Ctrl-C, fork, interpreters that exit with loaders alive.

Each runs in an interpreter of its own; a hang is a time-out of the test, never of the machine.
"""

import os
import signal

import pytest
from interrupting import interrupt
from PIL import Image

HEAD = """
import os, signal, sys, threading
import penstock
from penstock import transforms as T
ops = [T.Resize((24, 20))]
def make(**options):
    return penstock.Loader(sys.argv[1], ops, 2, **options)
"""


def test_importing_starts_no_thread_and_no_framework(run_python):
    program = "import os, sys, penstock; print(len(os.listdir('/proc/self/task')))"
    done = run_python(program + "; print('torch' in sys.modules)")
    assert done.stdout.split() == ["1", "False"], done.stderr


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "sys.exit(0)",
        "held = [batch for batch in loader]",
        "held = next(iterator)['image']; del loader, iterator",
        "loop = [loader]; loop.append(loop); del loader",
        "import builtins; builtins.kept = loader",
    ],
)
def test_an_interpreter_with_a_live_loader_exits(folder, run_python, ending):
    program = HEAD + "loader = make(num_workers=3)\niterator = iter(loader)\nnext(iterator)\n"
    done = run_python(program + ending, folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_an_exception_in_the_loop_ends_the_program(folder, run_python):
    program = HEAD + "for batch in make(num_workers=2):\n    raise ValueError('stop here')\n"
    done = run_python(program, folder)
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("ValueError: stop here")


@pytest.fixture
def slow(tmp_path):
    """One big picture under 400 names: a batch of them takes many seconds."""
    picture = tmp_path / "000.jpg"
    Image.effect_noise((2500, 2500), 90).convert("RGB").save(picture, quality=95)
    for number in range(1, 400):
        os.link(picture, tmp_path / f"{number:03}.jpg")
    return tmp_path


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_ctrl_c_ends_the_wait_for_a_batch(slow, workers):
    """The signal comes long before the batch is ready."""
    program = (
        HEAD
        + f"loader = penstock.Loader(sys.argv[1], ops, 400, num_workers={workers})\n"
        + "print('waiting', flush=True)\n"
        + "try:\n    next(iter(loader))\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
        + "loader.close()\nprint('closed')\n"
    )
    assert interrupt(program, str(slow)) == ("interrupted\nclosed\n", 0)


def test_a_signal_handler_may_close_the_loader(slow):
    program = (
        HEAD
        + "loader = penstock.Loader(sys.argv[1], ops, 400, num_workers=1)\n"
        + "signal.signal(signal.SIGUSR1, lambda *_: loader.close())\n"
        + "print('waiting', flush=True)\n"
        + "try:\n    next(iter(loader))\nexcept penstock.Error as error:\n    print(error)\n"
    )
    output, _ = interrupt(program, str(slow), by=signal.SIGUSR1)
    assert output == "the loader is closed\n"


def test_a_second_thread_in_a_loader_is_told_so(slow, run_python):
    program = (
        HEAD
        + "loader = penstock.Loader(sys.argv[1], ops, 400, num_workers=1)\n"
        + "waiter = threading.Thread(target=lambda: next(iter(loader)), daemon=True)\n"
        + "waiter.start()\n"
        + "import time; time.sleep(0.3)\n"
        + "for use in (loader.close, loader.state_dict, lambda: loader.replay(0, 0)):\n"
        + "    try:\n        use()\n    except RuntimeError as error:\n        print(error)\n"
        + "print(loader.stats()['batches'], flush=True)\n"
        + "os._exit(0)\n"
    )
    done = run_python(program, slow)
    assert done.stdout == "the loader is in use by another thread\n" * 3 + "0\n", done.stderr


FORK = """
loader = make(num_workers=2)
iterator = iter(loader)
next(iterator)
child = os.fork()
if child == 0:
    try:
        next(iterator)
    except penstock.Error as error:
        print(error.code, flush=True)
    {ending}
    os._exit(0)
status = os.waitpid(child, 0)[1]
print(status, len(list(loader)))
"""


@pytest.mark.parametrize(
    "use",
    [
        "next(iter(loader))",
        "loader.set_epoch(0)",
        "loader.replay(0, 0)",
        "loader.load_state_dict(loader.state_dict() | {'epoch': 3})",
    ],
)
def test_every_use_of_an_inherited_loader_is_an_error(folder, run_python, use):
    """None may wait for threads that stayed in the parent."""
    ending = f"""
    try:
        {use}
    except penstock.ForkError as error:
        print(error.code, flush=True)
    """
    done = run_python(HEAD + FORK.format(ending=ending), folder)
    assert done.stdout.splitlines() == ["PEN_EFORK", "PEN_EFORK", "0 12"], done.stderr


@pytest.mark.parametrize("ending", ["pass", "del iterator, loader", "loader.close()"])
def test_a_forked_child_is_told_and_the_parent_goes_on(folder, run_python, ending):
    done = run_python(HEAD + FORK.format(ending=ending), folder)
    assert done.stdout.splitlines() == ["PEN_EFORK", "0 12"], done.stderr


def test_a_forked_child_may_exit_as_usual(folder, run_python):
    """Interpreter shutdown in the child deletes the inherited loader."""
    done = run_python(HEAD + FORK.format(ending="sys.exit(0)"), folder)
    assert done.stdout.splitlines() == ["PEN_EFORK", "0 12"], done.stderr


def test_a_forked_child_may_make_a_loader_of_its_own(folder, run_python):
    done = run_python(
        HEAD + FORK.format(ending="print(len(list(make(num_workers=2))), flush=True)"), folder
    )
    assert done.stdout.splitlines() == ["PEN_EFORK", "12", "0 12"], done.stderr


def test_multiprocessing_by_fork_works_beside_a_loader(folder, run_python):
    program = (
        HEAD
        + "import multiprocessing\n"
        + "def count(_):\n    return len(list(make(num_workers=1)))\n"
        + "loader = make(num_workers=2)\nnext(iter(loader))\n"
        + "with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        + "    print(pool.map(count, range(2)))\n"
    )
    assert run_python(program, folder).stdout == "[12, 12]\n"


def test_the_process_has_no_children_and_no_named_memory(folder, run_python):
    program = (
        HEAD
        + "before = set(os.listdir('/dev/shm'))\n"
        + "loader = make(num_workers=3)\nnext(iter(loader))\n"
        + "me = os.getpid()\n"
        + "print(open(f'/proc/self/task/{me}/children').read().strip() or 'none')\n"
        + "print(sum('penstock' in name for name in set(os.listdir('/dev/shm')) - before))\n"
    )
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        pytest.skip("this kernel does not list children")
    assert run_python(program, folder).stdout.split() == ["none", "0"]
