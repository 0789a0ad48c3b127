"""`penstock doctor`: what it sees of a script, what it concludes, what it proposes."""

import gc
import inspect
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.utils.data as torch_data

from penstock.doctor import diagnosis, patch, trial
from penstock.doctor import watch as watch_module
from penstock.doctor.machine import Load, Usage, usage_now
from penstock.doctor.trial import Rate
from penstock.doctor.watch import N_STARTING, Enough, Epoch, Watch, Watched
from penstock.torch import DataLoader as Ours


class Numbers(torch_data.Dataset):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index)])


# --- watching ---


def test_a_watched_loader_gives_the_same_batches_and_is_timed() -> None:
    plain = [batch.tolist() for batch in torch_data.DataLoader(Numbers(), 8)]
    with Watch(1000) as watch:
        loader = torch_data.DataLoader(Numbers(), 8)
        seen = [[batch.tolist() for batch in loader] for _ in range(2)]
    assert seen == [plain, plain]
    (watched,) = watch.seen
    assert watched.loader is loader
    assert watched.n_batches == 2 * len(plain)
    assert len(watched.firsts) == 2
    assert len(watched.waits) == 2 * (len(plain) - N_STARTING)
    assert len(watched.steps) == 2 * (len(plain) - N_STARTING + 1)
    assert Path(watched.file).name == Path(__file__).name
    assert 0 <= watched.wait_share <= 1


def test_torch_is_as_it_was_afterwards() -> None:
    theirs = torch_data.DataLoader
    before = theirs.__init__, theirs.__iter__, Ours.__iter__
    with Watch(1000):
        assert theirs.__iter__ is not before[1]
    assert (theirs.__init__, theirs.__iter__, Ours.__iter__) == before


def test_the_script_is_ended_out_of_a_loader_when_time_is_up() -> None:
    with Watch(0) as watch:
        loader = torch_data.DataLoader(Numbers(), 8)
        with pytest.raises(Enough):
            for _ in loader:
                pass
    assert watch.seen[0].n_batches >= 1
    assert not issubclass(Enough, Exception)


def test_a_watched_iterator_reads_as_the_real_one() -> None:
    with Watch(1000):
        iterator = iter(torch_data.DataLoader(Numbers(), 8))
        assert len(iterator) == 5
        assert iterator._num_workers == 0
        assert iter(iterator) is iterator


def test_usage_grows() -> None:
    before = usage_now()
    sum(i * i for i in range(200_000))
    after = usage_now()
    assert after.at > before.at
    assert after.main >= before.main
    load = Load.between(before, after, 1)
    assert load.main_cores >= 0


def test_usage_counts_workers_that_have_ended() -> None:
    before = usage_now()
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    after = usage_now()
    if before.workers is None or after.workers is None:
        pytest.skip("the kernel does not list children")
    assert after.workers - before.workers > 0.1


def test_usage_is_read_once_a_second_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    at = [float("inf")]  # never a second ago
    read = []

    def counted() -> Usage:
        read.append(Usage(at[0], 0, 0, None, None))
        return read[-1]

    monkeypatch.setattr(watch_module, "usage_now", counted)
    with Watch(1000) as watch:
        list(torch_data.DataLoader(Numbers(), 1))
    assert len(read) == 3  # after the start, the first one behind it, and the end
    assert watch.seen[0].before is read[0]
    assert watch.seen[0].after is read[-1]
    at[0] = float("-inf")  # always
    read.clear()
    with Watch(1000):
        list(torch_data.DataLoader(Numbers(), 1))
    assert len(read) == 40 - N_STARTING + 2


def test_a_watched_class_has_its_signature() -> None:
    plain = inspect.signature(torch_data.DataLoader.__init__)
    with Watch(1000):
        assert inspect.signature(torch_data.DataLoader.__init__) == plain


def test_the_line_is_that_of_the_newest_loader_at_an_address() -> None:
    with Watch(1000) as watch:
        loader = torch_data.DataLoader(Numbers(), 8)
        vars(loader).clear()
        line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
        loader.__init__(Numbers(), 8)  # type: ignore[misc]
        list(loader)
    assert watch.seen[0].line == line


def test_a_loader_that_is_made_anew_for_each_epoch_is_one() -> None:
    made = []

    def loader() -> torch_data.DataLoader:
        made.append(weakref.ref(new := torch_data.DataLoader(Numbers(), 8)))
        return new

    with Watch(1000) as watch:
        for _ in range(3):
            for _ in loader():
                pass
    (watched,) = watch.seen
    assert watched.n_batches == 15 and len(watched.firsts) == 3
    gc.collect()
    assert [ref() is None for ref in made] == [True, True, False], "only the newest is kept"


def test_loaders_that_one_line_makes_together_are_told_apart() -> None:
    with Watch(1000) as watch:
        for _ in range(2):
            loaders = [torch_data.DataLoader(Numbers(), size) for size in (8, 4)]
            for loader in loaders:
                list(loader)
    assert [one.n_batches for one in watch.seen] == [2 * 5, 2 * 10]
    assert [one.loader.batch_size for one in watch.seen] == [8, 4]


def test_a_loader_from_before_is_watched_by_itself() -> None:
    old = [torch_data.DataLoader(Numbers(), 8) for _ in range(2)]
    with Watch(1000) as watch:
        for loader in [*old, *old]:
            list(loader)
    assert [(one.n_batches, one.file) for one in watch.seen] == [(10, ""), (10, "")]


def test_a_loader_of_ours_is_watched_and_its_verdict_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ours, "verdict", lambda loader: f"{type(loader).__name__} is quick")
    with Watch(1000) as watch:
        line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
        with Ours(Numbers(), 8, num_workers=0) as loader:
            assert len(list(loader)) == 5
    (watched,) = watch.seen
    assert watched.is_ours and (watched.n_batches, watched.line) == (5, line)
    words = diagnosis.in_words(diagnosis.diagnose(watched, None), "-a\n+b\n")
    assert "bottleneck   DataLoader is quick" in words
    assert "Penstock's already" in words
    assert "the change" not in words and "operations" not in words


def test_loaders_that_iterate_by_themselves_are_named() -> None:
    class Own(torch_data.DataLoader):
        def __iter__(self) -> Iterator[int]:  # type: ignore[override]
            return iter([1, 2, 3])

    class Further(torch_data.DataLoader):
        def __iter__(self) -> Iterator[int]:  # type: ignore[override]
            yield from super().__iter__()

    with Watch(1000) as watch:
        list(Further(Numbers(), 8))
        line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
        list(Own(Numbers(), 8))
        torch_data.DataLoader(Numbers(), 8)
    (watched,) = watch.seen
    assert isinstance(watched.loader, Further)
    assert watch.unseen == [
        f"test_doctor.py:{line}  Own, which has an __iter__ of its own",
        f"test_doctor.py:{line + 1}  DataLoader",
    ]


def test_a_process_that_was_forked_is_not_watched() -> None:
    with Watch(0) as watch:
        watch._pid = -1
        assert len(list(torch_data.DataLoader(Numbers(), 8))) == 5
    assert watch.seen == []


# --- concluding ---


def seen_with(wait: float, step: float, n_workers: int, load: Load | None) -> Watched:
    loader = torch_data.DataLoader(Numbers(), 8, num_workers=n_workers)
    watched = Watched(loader, "train.py", 7, 12, [1.0], [wait] * 10, [step] * 10)
    if load:
        ours = load.main_cores + (load.worker_cores or 0.0)
        watched.before = Usage(0, 0, 0, dict.fromkeys(range(4), 0.0), 0)
        busy = None if load.other_cores is None else {0: ours + load.other_cores, 1: 0, 2: 0, 3: 0}
        watched.after = Usage(1, load.main_cores, load.worker_cores, busy, load.io_share)
    return watched


@pytest.mark.parametrize(
    ("wait", "n_workers", "load", "said"),
    [
        (0.0, 2, Load(0.5, 0.5, 0.0, 0.0), "data comes in time"),
        (1.0, 2, Load(0.1, 0.1, 0.0, 0.9), "storage"),
        (1.0, 2, Load(0.1, 0.1, 3.0, 0.0), "other programs"),
        (1.0, 0, Load(1.0, 0.0, 0.0, 0.0), "num_workers=0"),
        (1.0, 2, Load(0.5, 3.4, 0.1, 0.0), "processor time: 4.0 of 4 cores"),
        (1.0, 1, Load(0.2, 1.0, 0.1, 0.0), "too few workers: all 1"),
        (1.0, 2, Load(0.1, 0.1, 0.1, 0.0), "else than a processor: network or a lock"),
        (1.0, 2, Load(0.1, 0.1, None, None), "else than a processor: storage, network or a lock"),
        (1.0, 2, Load(0.1, None, None, 0.0), "whether the workers are busy cannot be told"),
        (1.0, 2, Load(0.1, None, None, 0.9), "some task waits for storage 90%"),
        (1.0, 0, Load(1.0, None, None, 0.0), "num_workers=0"),
        (1.0, 2, None, "the loader"),
    ],
)
def test_bottlenecks_are_told_apart(
    wait: float, n_workers: int, load: Load | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "usable_cores", lambda: 4)
    found = diagnosis.diagnose(seen_with(wait, 1.0, n_workers, load), None)
    assert said in found.bottleneck


def test_workers_are_busy_while_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "usable_cores", lambda: 4)
    load = Load(0.2, 0.75, 0.1, 0.0)
    assert "something else" in diagnosis._busiest(load, 1, 0.0)
    assert "too few workers" in diagnosis._busiest(load, 1, 0.1)  # as epochs began there were none


def test_what_a_loader_beside_training_would_bring() -> None:
    watched = seen_with(wait=0.06, step=0.04, n_workers=2, load=None)
    quick = diagnosis.diagnose(watched, (Rate(10, 60), Rate(50, 300)))  # 20 ms: hidden
    assert quick.expected_wait_share == 0
    assert quick.expected_gain == pytest.approx(2.5)
    slow = diagnosis.diagnose(watched, (Rate(10, 60), Rate(12.5, 75)))  # 80 ms, of which 40 show
    assert slow.expected_wait_share == pytest.approx(0.5)
    assert slow.expected_gain == pytest.approx(1.25)
    failed = diagnosis.diagnose(watched, (Rate(10, 60), Rate(problem="no disk")))
    assert failed.expected_gain is None
    assert "not tried (no disk)" in diagnosis.in_words(failed, None)


def test_words_name_the_line_the_share_and_the_change() -> None:
    watched = seen_with(wait=0.06, step=0.04, n_workers=2, load=None)
    words = diagnosis.in_words(diagnosis.diagnose(watched, None), "-a\n+b\n")
    assert "train.py:7" in words
    assert "60% of the time" in words
    assert "    +b" in words
    unchanged = diagnosis.in_words(diagnosis.diagnose(watched, None), None)
    assert "no import of torch's DataLoader was found" in unchanged
    idle = diagnosis.in_words(diagnosis.diagnose(seen_with(0.0, 1.0, 2, None), None), "-a\n+b\n")
    assert "nothing to gain" in idle
    assert "+b" not in idle


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        told = types.SimpleNamespace(perf_counter=lambda: self.now, monotonic=lambda: self.now)
        monkeypatch.setattr(watch_module, "time", told)


def watch_epochs(clock: Clock, n_epochs: int, n_batches: int, starting: float) -> Watched:
    """Batches come in a millisecond, the script takes 100 for each."""

    class Starting(torch_data.IterableDataset):
        def __iter__(self) -> Iterator[int]:
            clock.now += starting
            for number in range(n_batches):
                clock.now += 0.001
                yield number

    with Watch(1000) as watch:
        for _ in range(n_epochs):
            for _ in torch_data.DataLoader(Starting(), 1):
                clock.now += 0.1
    (watched,) = watch.seen
    return watched


def test_time_lost_at_the_start_of_short_epochs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch_epochs(Clock(monkeypatch), n_epochs=3, n_batches=4, starting=1.0)
    assert watched.wait_share < diagnosis.LITTLE, "after start-up, all is well"
    assert watched.start == pytest.approx(1.002)
    assert watched.start_share == pytest.approx(0.25 / 0.351)
    assert watched.lost_share == pytest.approx(0.251 / 0.351)
    found = diagnosis.diagnose(watched, (Rate(10, 60), Rate(20, 120)))
    assert found.expected_gain == pytest.approx(3.51)
    words = diagnosis.in_words(found, "-a\n+b\n")
    assert "starting     71% of the time: 1002 ms at the start of 3 epochs of 4 batches" in words
    assert "the start of every epoch" in found.bottleneck
    assert "+b" in words and "nothing to gain" not in words
    assert found.as_json()["start_share"] == watched.start_share


def test_epochs_of_two_batches_are_all_start(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch_epochs(Clock(monkeypatch), n_epochs=5, n_batches=2, starting=1.0)
    assert not watched.waits
    assert watched.start_share == pytest.approx(0.501 / 0.601)
    assert watched.lost_share == watched.start_share


def test_starts_of_long_epochs_are_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch_epochs(Clock(monkeypatch), n_epochs=2, n_batches=1000, starting=0.5)
    found = diagnosis.diagnose(watched, None)
    assert found.start_share < diagnosis.TINY
    words = diagnosis.in_words(found, None)
    assert "nothing to gain" in words and "starting" not in words


def test_an_epoch_that_was_cut_off_would_have_gone_on() -> None:
    watched = seen_with(0.0, 1.0, 0, None)  # of 5 batches
    watched.epochs = [Epoch(1.0, 3)]
    assert watched.epoch_batches == 5
    watched.epochs = [Epoch(1.0, 3, has_ended=True)]
    assert watched.epoch_batches == 3
    watched.epochs = [Epoch(1.0, 4), Epoch(1.0, 3)]
    assert watched.epoch_batches == 4, "it was left, and another begun"


# --- trying ---


def test_either_loader_is_tried_with_the_same_batches() -> None:
    theirs = torch_data.DataLoader(Numbers(), 8, drop_last=True)
    with trial.like(theirs) as ours:
        assert [b.tolist() for b in ours] == [b.tolist() for b in theirs]
    rates = trial.compare(theirs, 0.2)
    assert all(rate.batches_per_s > 0 and rate.problem is None for rate in rates)


def test_a_dataset_that_fails_is_reported_not_raised() -> None:
    class Broken(Numbers):
        def __getitem__(self, index: int) -> torch.Tensor:
            raise ValueError("no such number")

    rate = trial.rate_of(torch_data.DataLoader(Broken(), 8), 0.1)
    assert rate.problem == "ValueError: no such number"


def test_a_dataset_that_leaves_is_reported_too() -> None:
    class Leaving(Numbers):
        def __getitem__(self, index: int) -> torch.Tensor:
            sys.exit(3)

    assert trial.rate_of(torch_data.DataLoader(Leaving(), 8), 0.1).problem == "SystemExit: 3"


def test_a_loader_without_batches_is_reported() -> None:
    empty = torch_data.DataLoader(torch_data.Subset(Numbers(), []), 8)
    assert trial.rate_of(empty, 0.1).problem == "it has no batches"


@pytest.mark.parametrize(
    ("n_batches", "problem"),
    [
        (2, "it has few batches, and none the second time"),
        (3, "it has few batches, and none the second time"),
        (9, None),
    ],
)
def test_an_iterable_that_can_be_read_once_is_tried_once(
    n_batches: int, problem: str | None
) -> None:
    class Once(torch_data.IterableDataset):
        def __init__(self) -> None:
            self.left = iter(range(n_batches))

        def __iter__(self) -> Iterator[int]:
            return self.left

    rate = trial.rate_of(torch_data.DataLoader(Once(), 1), 1000)
    assert rate.problem == problem
    assert rate.n_batches == (0 if problem else n_batches - trial.N_WARM - 1)


def test_a_loader_that_never_gives_a_batch_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stuck(Numbers):
        def __getitem__(self, index: int) -> torch.Tensor:
            threading.Event().wait()
            raise AssertionError

    monkeypatch.setattr(trial, "PATIENCE_SECONDS", 0.1)
    rate = trial.rate_of(torch_data.DataLoader(Stuck(), 8), 0.01)
    assert (rate.problem or "").startswith("TimeoutError: no end after")


@pytest.mark.parametrize("swallowed", [Exception, BaseException])
def test_a_dataset_that_catches_what_is_to_end_it_is_not_waited_for(
    swallowed: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`except Exception` does not catch it at all, `except BaseException` not for ever."""

    class Stubborn(Numbers):
        n_caught = 0

        def __getitem__(self, index: int) -> torch.Tensor:
            while self.n_caught < 3:
                try:
                    threading.Event().wait()
                except swallowed:
                    self.n_caught += 1
            threading.Event().wait()
            raise AssertionError

    monkeypatch.setattr(trial, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(trial, "AGAIN_SECONDS", 0.02)
    dataset = Stubborn()
    rate = trial.rate_of(torch_data.DataLoader(dataset, 8), 0.01)
    assert (rate.problem or "").startswith("TimeoutError: no end after")
    assert dataset.n_caught == (3 if swallowed is BaseException else 0)


# --- proposing ---


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from torch.utils.data import DataLoader\n", "+from penstock.torch import DataLoader\n"),
        (
            "from torch.utils.data import Dataset, DataLoader as DL\n",
            "+from penstock.torch import DataLoader as DL\n+from torch.utils.data import Dataset\n",
        ),
        (
            "from torch.utils.data import (\n    DataLoader,\n    Dataset,\n)\n",
            "+from penstock.torch import DataLoader\n+from torch.utils.data import Dataset\n",
        ),
        (
            "import torch\nx = torch.utils.data.DataLoader(d)\n",
            "+import penstock.torch\n+x = penstock.torch.DataLoader(d)\n",
        ),
        (
            "import torch.utils.data as data\n\n\nx = data.DataLoader(d)\n",
            "+x = penstock.torch.DataLoader(d)\n",
        ),
        (
            "from torch.utils.data.dataloader import DataLoader, default_collate\n",
            "+from penstock.torch import DataLoader\n+from torch.utils.data.dataloader import default_collate\n",
        ),
        (
            "import torch.utils.data.dataloader as dl\nx = dl.DataLoader(d)\n",
            "+x = penstock.torch.DataLoader(d)\n",
        ),
        (
            "from torch.utils.data import dataloader\nx = dataloader.DataLoader(d)\n",
            "+x = penstock.torch.DataLoader(d)\n",
        ),
        (
            "if 1:\n    from torch.utils.data import DataLoader, DataLoader as DL\n",
            "+    from penstock.torch import DataLoader\n+    from penstock.torch import DataLoader as DL\n",
        ),
        (
            "from torch.utils import data\nü = 'ä', data.DataLoader(d)\n",
            "+ü = 'ä', penstock.torch.DataLoader(d)\n",
        ),
        (
            "from torch.utils import data\n\f\n# a\u2028b\nx = data.DataLoader(d)\n",
            "-x = data.DataLoader(d)\n+x = penstock.torch.DataLoader(d)\n",
        ),
    ],
)
def test_the_change_is_a_diff(source: str, expected: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(source, encoding="utf-8")
    diff = patch.propose(str(script))
    assert diff is not None
    assert expected in diff


@pytest.mark.parametrize("source", ["import torch\n", "def broken(:\n", "from .data import DataLoader\n"])  # fmt: skip
def test_no_change_is_proposed_where_none_is_found(source: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(source)
    assert patch.propose(str(script)) is None
    assert patch.propose(str(tmp_path / "missing.py")) is None


def test_only_the_projects_own_files_are_changed(tmp_path: Path) -> None:
    own = str(tmp_path / "project")
    assert patch.is_own(f"{own}/train.py", own)
    assert patch.is_own(f"{own}/data/loaders.py", own)
    assert not patch.is_own(str(tmp_path / "project2" / "loaders.py"), own)
    assert not patch.is_own(f"{own}/.venv/lib/python3/site-packages/trainer/data.py", own)
    found = diagnosis.diagnose(seen_with(0.06, 0.04, 2, None), None)
    assert "made in /lib/x.py, outside" in diagnosis.in_words(found, None, "/lib/x.py")
