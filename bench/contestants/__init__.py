"""The contestants, one module a peer.

A module has `VARIANTS` (name to Spec, known without importing the peer), `load(job)`, which imports the
peer and returns a Loader, and where the peer has a file format of its own `prepare(job)`, which writes it
outside of the timed part.
"""

from __future__ import annotations

from types import ModuleType

from bench.common import Spec
from bench.contestants import (
    dali_cpu,
    ffcv_beton,
    grain_threads,
    penstock_loader,
    pytorch_pil,
    pytorch_turbo,
    tf_data,
    turboloader_tar,
    web_dataset,
)

_MODULES = (
    penstock_loader,
    turboloader_tar,
    tf_data,
    dali_cpu,
    ffcv_beton,
    grain_threads,
    pytorch_turbo,
    pytorch_pil,
    web_dataset,
)

SPECS: dict[str, Spec] = {
    name: spec for module in _MODULES for name, spec in module.VARIANTS.items()
}
_HOME: dict[str, ModuleType] = {name: module for module in _MODULES for name in module.VARIANTS}


def module_of(name: str) -> ModuleType:
    """The module that implements a contestant."""
    return _HOME[name]


def needs_prepare(name: str) -> bool:
    """Whether a contestant reads a format of its own; one whose input a view always has does not."""
    return SPECS[name].reads not in ("folder", "all.tar", "shards")
