"""Real ranks under torchrun, over gloo on the loopback: equal counts, nothing lost, restarts."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("penstock.torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch is built without gloo", allow_module_level=True)

COUNT = 47  # no number of ranks divides it
BATCH = 12  # of all ranks together

SCRIPT = """
import json, os, sys
import torch
from torch import distributed
from torch.utils.data import DistributedSampler
from penstock.torch import DataLoader

COUNT, BATCH = 47, 12
folder, case = sys.argv[1], sys.argv[2]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.manual_seed(100 + rank)  # ranks draw differently, as scripts often have it
early = DataLoader(range(COUNT), BATCH // world, shuffle=True, num_workers=0)
distributed.init_process_group("gloo")
data = range(COUNT)

def indices(loader, n_epochs=2):
    return [[batch.tolist() for batch in loader] for _ in range(n_epochs)]

def write(name, value):
    with open(f"{folder}/{name}-{rank}.json", "w") as file:
        json.dump(value, file)

def shares():
    sampler = DistributedSampler(data, seed=7)
    given = DataLoader(data, BATCH // world, sampler=sampler, num_workers=0)
    theirs = torch.utils.data.DataLoader(data, BATCH // world, sampler=sampler)
    out = {
        "ours": indices(DataLoader(data, BATCH // world, shuffle=True, num_workers=0)),
        "made early": indices(early),
        "workers": indices(DataLoader(data, BATCH // world, shuffle=True, num_workers=1)),
        "dropped": indices(DataLoader(data, BATCH // world, True, drop_last=True, num_workers=0)),
        "torch": indices(DataLoader(data, BATCH // world, True, order="torch", seed=7)),
        "given": [], "theirs": [],
    }
    for epoch in range(2):
        given.set_epoch(epoch)
        out["given"] += indices(given, 1)
        out["theirs"] += indices(theirs, 1)
    write("shares", out)

def dies():
    # Every rank saves after every batch; one dies after five, the first time.
    is_first = not os.path.exists(f"{folder}/checkpoint-{rank}.pt")
    loader = DataLoader(data, BATCH // world, shuffle=True, seed=5, num_workers=1)
    place, seen, epoch = f"{folder}/checkpoint-{rank}.pt", [], 0
    if os.path.exists(place):
        saved = torch.load(place, weights_only=False)
        loader.load_state_dict(saved["loader"])
        seen, epoch = saved["seen"], saved["epoch"]
    for epoch in range(epoch, 2):
        for batch in loader:
            if is_first and rank == world - 1 and len(seen) == 5:
                os._exit(13)
            distributed.all_reduce(torch.ones(1))  # all ranks take equal steps
            seen.append(batch.tolist())
            torch.save({"loader": loader.state_dict(), "seen": seen, "epoch": epoch}, place + "~")
            os.replace(place + "~", place)
            distributed.barrier()
    write("dies", {"seen": seen, "is_first": is_first})

{"shares": shares, "dies": dies}[case]()
distributed.destroy_process_group()
"""


def torchrun(folder, n_ranks, case):
    """Run the script on so many ranks; whether all went well, and the errors."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--local-addr=127.0.0.1", f"--nproc-per-node={n_ranks}"]
    command += ["--monitor-interval=0.1"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [*command, str(script), str(folder), case],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        check=False,
    )
    return done.returncode == 0, done.stderr[-4000:]


def written(folder, n_ranks, case):
    return [json.loads((folder / f"{case}-{rank}.json").read_text()) for rank in range(n_ranks)]


def flat(batches):
    return [index for batch in batches for index in batch]


@pytest.mark.parametrize("n_ranks", [2, 4])
def test_ranks_share_a_dataset_that_does_not_divide(tmp_path, n_ranks):
    is_good, errors = torchrun(tmp_path, n_ranks, "shares")
    assert is_good, errors
    ranks = written(tmp_path, n_ranks, "shares")
    for name in ("ours", "made early", "workers", "dropped", "torch"):
        for epoch in range(2):
            parts = [rank[name][epoch] for rank in ranks]
            assert len({tuple(map(len, part)) for part in parts}) == 1, name  # equal counts
            times = Counter(flat(map(flat, parts)))
            if name == "dropped":
                assert set(times.values()) == {1}
                assert len(times) == COUNT - COUNT % BATCH
            else:
                assert set(times) == set(range(COUNT)), name
                assert max(times.values()) <= 2
    for rank in ranks:
        assert rank["ours"] == rank["made early"] == rank["workers"]
        assert rank["ours"][0] != rank["ours"][1]
        assert rank["torch"] == rank["given"] == rank["theirs"]
    if n_ranks == 4:
        return
    steps = [
        sorted(flat(parts)) for parts in zip(*(rank["ours"][0] for rank in ranks), strict=True)
    ]
    from penstock.torch import DataLoader

    alone = DataLoader(range(COUNT), BATCH, shuffle=True, seed=0, tail="wrap", num_workers=0)
    assert steps == [sorted(batch.tolist()) for batch in alone]


def test_a_rank_that_dies_goes_on_from_its_checkpoint(tmp_path):
    is_good, _ = torchrun(tmp_path, 2, "dies")
    assert not is_good
    is_good, errors = torchrun(tmp_path, 2, "dies")
    assert is_good, errors
    ranks = written(tmp_path, 2, "dies")
    from penstock.torch import DataLoader

    for number, rank in enumerate(ranks):
        assert not rank["is_first"]
        loader = DataLoader(
            range(COUNT), BATCH // 2, True, seed=5, num_workers=0, rank=number, world_size=2
        )
        assert rank["seen"] == [batch.tolist() for _ in range(2) for batch in loader]
