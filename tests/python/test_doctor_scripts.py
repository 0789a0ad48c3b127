"""`penstock doctor` with scripts: all of it, in processes of their own."""

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from interrupting import interrupt

COMMAND = Path(sys.executable).with_name("penstock")
# The same command, with other times where a test is not to take long.
PROGRAM = """
import sys
import penstock.doctor.__main__ as doctor
doctor.GRACE_SECONDS, doctor.AGAIN_SECONDS = map(float, (sys.argv.pop(1), sys.argv.pop(1)))
doctor.leave(doctor.main(sys.argv[1:]))
"""


def run(*command: object, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        check=False,
    )


def doctor(*arguments: object, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return run(COMMAND, "doctor", *arguments, folder=folder)


def hasty_doctor(
    *arguments: object, grace: float = 0.1, again: float = 0.02
) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-c", PROGRAM, grace, again, *arguments)


BATCHES = "for batch in DataLoader(Numbers(), batch_size=4): pass"


def write_script(folder: Path, body: str) -> Path:
    script = folder / "train.py"
    head = """
    import sys
    import time
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Numbers(Dataset):
        def __len__(self):
            return 24

        def __getitem__(self, index):
            return torch.tensor([float(index)])

    class Slow(Numbers):
        def __getitem__(self, index):
            time.sleep(0.01)
            return super().__getitem__(index)

    """
    script.write_text(textwrap.dedent(head) + textwrap.dedent(body))
    return script


def test_a_script_is_run_with_its_arguments_and_explained(tmp_path: Path) -> None:
    script = write_script(
        tmp_path,
        """
        assert sys.argv[1:] == ["--lr", "0.1"] and __name__ == "__main__"
        for batch in DataLoader(Numbers(), batch_size=4):
            print(batch.sum().item())
        """,
    )
    ran = doctor("--trial", 0.2, "--json", tmp_path / "found.json", script, "--lr", "0.1")
    assert ran.returncode == 0, ran.stderr
    assert "train.py:21" in ran.stdout
    (found,) = json.loads((tmp_path / "found.json").read_text())
    assert found["n_batches"] == 6
    assert found["penstock_rate"]["batches_per_s"] > 0


def test_batches_of_the_scripts_own_types_are_tried_too(tmp_path: Path) -> None:
    script = write_script(
        tmp_path,
        """
        import typing

        class Pair(typing.NamedTuple):
            first: torch.Tensor
            second: torch.Tensor

        class Pairs(Numbers):
            def __getitem__(self, index):
                return Pair(torch.tensor(index), torch.tensor(index))

        if __name__ == "__main__":
            for batch in DataLoader(Pairs(), batch_size=4, num_workers=1):
                assert type(batch) is Pair and sys.modules["__main__"].Pair is Pair
        """,
    )
    ran = doctor("--trial", 0.2, "--json", tmp_path / "found.json", script)
    assert ran.returncode == 0, ran.stderr
    (found,) = json.loads((tmp_path / "found.json").read_text())
    for name in ("torch_rate", "penstock_rate"):
        assert found[name]["problem"] is None
        assert found[name]["batches_per_s"] > 0


def test_a_script_with_short_epochs_is_explained(tmp_path: Path) -> None:
    script = write_script(
        tmp_path,
        """
        for epoch in range(4):
            for batch in DataLoader(Slow(), batch_size=12):
                pass
        """,
    )
    ran = doctor("--no-trial", script)
    assert ran.returncode == 0, ran.stderr
    assert "8 batches seen" in ran.stdout and ran.stdout.count("DataLoader(") == 1
    assert "at the start of 4 epochs of 2 batches" in ran.stdout
    assert "+from penstock.torch import DataLoader" in ran.stdout


def test_a_script_that_never_ends_is_ended(tmp_path: Path) -> None:
    script = write_script(
        tmp_path,
        """
        try:
            while True:
                for batch in DataLoader(Numbers(), batch_size=4):
                    pass
        except Exception:
            print("caught")
        """,
    )
    ran = doctor("--seconds", 0.5, "--no-trial", script)
    assert ran.returncode == 0, ran.stderr
    assert "was ended" in ran.stderr
    assert "caught" not in ran.stdout


def test_a_script_that_catches_everything_is_ended(tmp_path: Path) -> None:
    script = write_script(
        tmp_path,
        """
        for i in range(2):
            try:
                time.sleep(1000)
            except BaseException:
                print("caught")
        try:
            time.sleep(1000)
        finally:
            time.sleep(0.1)
            print("cleaned up")
        """,
    )
    ran = hasty_doctor("--patience", 0.1, script, grace=1e5)
    assert ran.stdout == "caught\ncaught\ncleaned up\n"
    assert "was ended" in ran.stderr


def test_a_script_that_takes_no_batches_any_more_is_ended(tmp_path: Path) -> None:
    script = write_script(tmp_path, f"{BATCHES}\ntime.sleep(1000)")
    ran = hasty_doctor("--seconds", 0.1, "--no-trial", script)
    assert ran.returncode == 0, ran.stderr
    assert "watched for 0.1 s, the script was ended" in ran.stderr
    assert "6 batches seen" in ran.stdout


def test_a_script_that_no_signal_reaches_is_told_about_and_left(tmp_path: Path) -> None:
    """As one in native code that does not come back."""
    script = write_script(
        tmp_path,
        f"""
        import signal
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.SIGRTMAX + 1))
        {BATCHES}
        time.sleep(1000)
        """,
    )
    ran = hasty_doctor("--seconds", 0.1, "--json", tmp_path / "found.json", script)
    assert ran.returncode == 0, ran.stderr
    assert "native code does not come back" in ran.stderr and "trying" not in ran.stderr
    assert "6 batches seen" in ran.stdout
    assert len(json.loads((tmp_path / "found.json").read_text())) == 1


def test_the_alarm_clock_is_the_scripts(tmp_path: Path) -> None:
    script = write_script(
        tmp_path,
        f"""
        import signal
        signal.signal(signal.SIGALRM, lambda *about: print("rang"))
        signal.setitimer(signal.ITIMER_REAL, 1e5)
        {BATCHES}
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 1e4
        signal.raise_signal(signal.SIGALRM)
        """,
    )
    ran = doctor("--no-trial", script)
    assert ran.returncode == 0, ran.stderr
    assert "the script has ended\n" in ran.stderr
    assert ran.stdout.startswith("rang\n")


@pytest.mark.parametrize(
    "left",
    [
        "threading.Thread(target=time.sleep, args=(1000,)).start()",
        "multiprocessing.get_context('fork').Process(target=time.sleep, args=(1000,)).start()",
    ],
)
def test_what_a_script_leaves_running_is_not_waited_for(left: str, tmp_path: Path) -> None:
    """A process that went on would have the pipes open."""
    script = write_script(tmp_path, f"import multiprocessing, threading\n{BATCHES}\n{left}")
    ran = hasty_doctor("--no-trial", script)
    assert ran.returncode == 0, ran.stderr
    assert "6 batches seen" in ran.stdout


# --- what is not seen ---


def test_a_script_of_which_no_batch_is_seen_is_ended_and_told_why(tmp_path: Path) -> None:
    script = write_script(
        tmp_path,
        """
        class Own(DataLoader):
            def __iter__(self):
                while True:
                    time.sleep(0.01)
                    yield torch.zeros(1)

        for batch in Own(Numbers()):
            pass
        """,
    )
    ran = hasty_doctor("--patience", 1, "--json", tmp_path / "found.json", script)
    assert ran.returncode == 1
    assert "no batch was seen in 1 s (--patience), the script was ended" in ran.stderr
    assert "train.py:26  Own, which has an __iter__ of its own" in ran.stderr
    assert "whose __iter__ calls super().__iter__()" in ran.stderr
    assert json.loads((tmp_path / "found.json").read_text()) == []


def test_a_script_that_trains_in_other_processes_is_ended(tmp_path: Path) -> None:
    script = write_script(
        tmp_path,
        """
        import multiprocessing

        def train():
            while True:
                for batch in DataLoader(Numbers(), batch_size=4):
                    pass

        rank = multiprocessing.get_context("fork").Process(target=train)
        rank.start()
        rank.join()
        """,
    )
    ran = hasty_doctor("--patience", 1, "--seconds", 0.1, script)
    assert ran.returncode == 1
    assert "nothing to tell" in ran.stderr
    assert "not in processes that it starts" in ran.stderr


def test_a_script_that_uses_penstock_is_told_so(tmp_path: Path) -> None:
    script = write_script(
        tmp_path,
        """
        import penstock.torch
        for batch in penstock.torch.DataLoader(Slow(), batch_size=4, num_workers=0):
            pass
        """,
    )
    ran = doctor("--json", tmp_path / "found.json", script)
    assert ran.returncode == 0, ran.stderr
    assert "train.py:21" in ran.stdout and "Penstock's already" in ran.stdout
    assert "the change" not in ran.stdout and "trying" not in ran.stderr
    (found,) = json.loads((tmp_path / "found.json").read_text())
    assert found["is_ours"] and found["n_batches"] == 6


# --- how scripts end, and what they are made of ---


def test_a_script_that_exits_is_explained(tmp_path: Path) -> None:
    ran = doctor("--no-trial", write_script(tmp_path, f"{BATCHES}\nsys.exit(3)"))
    assert ran.returncode == 0, ran.stderr
    assert "the script has ended (3)" in ran.stderr
    assert "6 batches seen" in ran.stdout


def test_a_script_that_refuses_its_arguments_says_so(tmp_path: Path) -> None:
    script = write_script(
        tmp_path,
        f"""
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", required=True)
        parser.parse_args()
        {BATCHES}
        """,
    )
    ran = doctor(script, "--epochs", "3")
    assert ran.returncode == 1
    assert "required: --lr" in ran.stderr
    assert "the script has ended (2)" in ran.stderr and "nothing to tell" in ran.stderr


def test_spawned_workers_find_the_script(tmp_path: Path) -> None:
    script = write_script(
        tmp_path,
        """
        if __name__ == "__main__":
            for batch in DataLoader(Numbers(), 4, num_workers=1, multiprocessing_context="spawn"):
                pass
        """,
    )
    ran = doctor("--no-trial", script)
    assert ran.returncode == 0, ran.stderr
    assert "the script has ended\n" in ran.stderr
    assert "6 batches seen" in ran.stdout


def test_an_iterable_dataset_is_explained_and_tried(tmp_path: Path) -> None:
    script = write_script(
        tmp_path,
        """
        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter(range(24))

        for batch in DataLoader(Stream(), batch_size=4):
            pass
        """,
    )
    ran = doctor("--trial", 0.2, "--json", tmp_path / "found.json", script)
    assert ran.returncode == 0, ran.stderr
    (found,) = json.loads((tmp_path / "found.json").read_text())
    assert found["n_batches"] == 6
    assert found["torch_rate"]["problem"] is None
    assert found["penstock_rate"]["problem"] is None


def test_ctrl_c_ends_the_script_and_not_the_report(tmp_path: Path) -> None:
    script = write_script(
        tmp_path,
        f"""
        {BATCHES}
        print("waiting", flush=True)
        time.sleep(1000)
        """,
    )
    output, code = interrupt(PROGRAM, "20", "1", "--no-trial", str(script))
    assert code == 0
    assert "6 batches seen" in output


def test_ctrl_c_ends_the_trial_and_not_the_report(tmp_path: Path) -> None:
    script = write_script(
        tmp_path,
        """
        class Stuck(Slow):
            n_made = 0

            def __getitem__(self, index):
                self.n_made += 1
                if self.n_made > len(self):
                    print("waiting", flush=True)
                    time.sleep(1000)
                return super().__getitem__(index)

        for batch in DataLoader(Stuck(), batch_size=4):
            pass
        """,
    )
    output, code = interrupt(PROGRAM, "20", "1", str(script))
    assert code == 0
    assert "6 batches seen" in output and "alone" not in output
    assert "+from penstock.torch import DataLoader" in output


@pytest.mark.skipif(not importlib.util.find_spec("lightning"), reason="Lightning is not there")
def test_a_script_of_lightning_is_ended_and_explained(tmp_path: Path) -> None:
    script = write_script(
        tmp_path,
        f"""
        sys.path.append({str(Path(__file__).parent)!r})
        import conftest  # for torchvision, which Lightning imports
        import lightning

        class Line(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(1, 1)

            def training_step(self, batch, index):
                return self.layer(batch).mean()

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), 0.01)

        trainer = lightning.Trainer(
            max_epochs=-1, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
            enable_model_summary=False, enable_progress_bar=False,
        )
        trainer.fit(Line(), DataLoader(Slow(), batch_size=4))
        """,
    )
    ran = doctor("--seconds", 1, "--no-trial", script)
    assert ran.returncode == 0, ran.stderr
    assert "watched for 1 s, the script was ended" in ran.stderr
    assert "train.py:39" in ran.stdout
    assert "+from penstock.torch import DataLoader" in ran.stdout


@pytest.mark.skipif(not importlib.util.find_spec("accelerate"), reason="Accelerate is not there")
def test_a_loader_that_accelerate_makes_is_seen(tmp_path: Path) -> None:
    script = write_script(
        tmp_path,
        """
        from accelerate import Accelerator
        for batch in Accelerator(cpu=True).prepare(DataLoader(Slow(), batch_size=4)):
            pass
        """,
    )
    ran = doctor("--no-trial", script)
    assert ran.returncode == 0, ran.stderr
    assert "6 batches seen" in ran.stdout
    assert "none proposed: the loader is made in" in ran.stdout


def test_a_script_may_go_to_another_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    write_script(
        tmp_path,
        """
        import os
        os.chdir("elsewhere")
        for batch in DataLoader(Slow(), batch_size=4):
            pass
        """,
    )
    ran = doctor("--no-trial", "--json", "found.json", "train.py", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "found.json").exists()
    assert "+from penstock.torch import DataLoader" in ran.stdout


def test_no_change_of_a_library_is_proposed(tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "library" / "maker.py").write_text(
        "from torch.utils.data import DataLoader\ndef make(data): return DataLoader(data, 4)\n"
    )
    script = write_script(
        tmp_path / "project",
        f"""
        sys.path.append({str(tmp_path / "library")!r})
        import maker
        for batch in maker.make(Slow()):
            pass
        """,
    )
    ran = doctor("--no-trial", script)
    assert ran.returncode == 0, ran.stderr
    assert "maker.py:2" in ran.stdout
    assert "none proposed: the loader is made in" in ran.stdout
    assert "+from penstock" not in ran.stdout


def test_a_script_that_fails_is_told_with_its_traceback(tmp_path: Path) -> None:
    ran = doctor("--no-trial", write_script(tmp_path, "raise RuntimeError('no data today')"))
    assert ran.returncode == 1
    assert "no data today" in ran.stderr
    assert "nothing to tell" in ran.stderr


def test_without_torch_no_report_is_begun(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('none here')")
    call = [sys.executable, "-m", "penstock.doctor", "--json", tmp_path / "found.json", __file__]
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    ran = subprocess.run(call, capture_output=True, text=True, env=env, timeout=60, check=False)
    assert ran.returncode == 1
    assert "PyTorch is not installed" in ran.stderr
    assert not (tmp_path / "found.json").exists()


def test_a_script_that_is_not_there_ends_with_2(tmp_path: Path) -> None:
    ran = doctor(tmp_path / "missing.py")
    assert ran.returncode == 2
    assert "no such script" in ran.stderr


def test_a_report_that_cannot_be_written_is_refused_before_the_script_runs(tmp_path: Path) -> None:
    script = write_script(tmp_path, "print('it ran')")
    for place in (tmp_path / "missing" / "found.json", tmp_path):
        ran = doctor("--json", place, script)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert f"cannot write {place}: " in ran.stderr
        assert "Traceback" not in ran.stderr
