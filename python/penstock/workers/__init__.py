"""Any Python dataset, run in worker processes.

    job = Job(dataset, collate_fn, seeding=ItemSeeding(seed=0))
    workers = Workers(job, num_workers="auto")            # starts nothing
    for batch in workers.epoch(map(Batch, batch_sampler), epoch=0):
        ...
    workers.close()

`Workers` is what a loader needs: it lives as long as the loader does and makes one `Stream` an
epoch.  Behind it stands a `Pool` of processes that were forked from a single-threaded zygote,
or nothing at all where the items are so cheap that handing them over costs more than making
them.

Nothing here needs torch.  Where torch is loaded its tensors travel as arrays do, its
`get_worker_info()` answers in workers, and its `default_collate` stacks into shared memory.
"""

from penstock.workers.account import Account
from penstock.workers.decisions import DecisionLog
from penstock.workers.facade import Workers
from penstock.workers.job import Batch, Job
from penstock.workers.meter import Meter
from penstock.workers.pool import Pool
from penstock.workers.seeding import ItemSeeding, NoSeeding, Seeding, TorchSeeding
from penstock.workers.settings import Settings
from penstock.workers.shown import Shown
from penstock.workers.streams import Stream

__all__ = [
    "Account",
    "Batch",
    "DecisionLog",
    "ItemSeeding",
    "Job",
    "Meter",
    "NoSeeding",
    "Pool",
    "Seeding",
    "Settings",
    "Shown",
    "Stream",
    "TorchSeeding",
    "Workers",
]
