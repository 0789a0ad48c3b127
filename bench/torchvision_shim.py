"""Lets torchvision's Python transforms import next to a CPU build of PyTorch.

torchvision 0.28 has no CPU wheel: its compiled operators do not load, and importing it then fails where it
registers shape functions for them. Declaring the names is enough. Nothing here calls these operators, so
they get the plainest schema and no implementation.
"""

from __future__ import annotations

import torch

_OPERATORS = (
    "nms",
    "qnms",
    "roi_align",
    "_roi_align_backward",
    "qroi_align",
    "roi_pool",
    "_roi_pool_backward",
    "ps_roi_align",
    "_ps_roi_align_backward",
    "ps_roi_pool",
    "_ps_roi_pool_backward",
    "deform_conv2d",
    "_deform_conv2d_backward",
)

# The library object owns the definitions: they vanish when it is collected.
_library = torch.library.Library("torchvision", "DEF")
for _name in _OPERATORS:
    _library.define(f"{_name}(Tensor x) -> Tensor")
