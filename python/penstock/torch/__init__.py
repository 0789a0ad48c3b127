"""For PyTorch: change one import line.

    from penstock.torch import DataLoader          # instead of torch.utils.data

The same arguments, the same batches, made faster; what differs from torch's own loader is
listed in docs/pytorch.md.  A path or a penstock.Dataset is a dataset, too:

    loader = DataLoader("train/", batch_size=64, shuffle=True, transform=[...])
    for images, labels in loader:
        ...
"""

from torch.utils.data import default_collate, default_convert, get_worker_info

from penstock.torch.dataloader import DataLoader
from penstock.torch.explain import explain
from penstock.torch.native import tensors
from penstock.torch.transfer import prefetch_to_device

__all__ = [
    "DataLoader",
    "default_collate",
    "default_convert",
    "explain",
    "get_worker_info",
    "prefetch_to_device",
    "tensors",
]
