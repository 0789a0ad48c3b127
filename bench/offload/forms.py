"""A profile: of each sample, how many bytes each form has, and what it costs at the storage and at the host.

It is JSON lines, one for each crop of a sample; a form that it does not have is null or missing. Pixels are those of the whole
line, "fewest" are those at the place of the line where they are fewest: a small crop has fewer before it is resized.

    {"sample": 7, "raw": 110000, "cut": 48000, "coded": 60000, "fewest": 90000, "pixels": 150528,
     "storage_ms": {"raw": 0.02, "cut": 0.3, "coded": 1.1, "fewest": 0.8, "pixels": 0.9},
     "host_ms": {"raw": 0.7, "cut": 0.5, "coded": 0.6, "fewest": 0.3, "pixels": 0.2}}
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

RAW, CUT, CODED, FEWEST, PIXELS = NAMES = "raw", "cut", "coded", "fewest", "pixels"
# What a sample's frame and parcel heads add, and frames of the link (Ethernet, IP, TCP) of 9,000 bytes.
HEAD_BYTES = 84
WIRE = 9014 / 8948


@dataclass(frozen=True)
class Form:
    """Bytes on the wire, and processor seconds at both ends."""

    size: float
    storage_s: float
    host_s: float


Sample = dict[str, Form]  # by the form's name; raw is always there


class Unreadable(Exception):
    """A profile that is none; the message says why."""


def sample_of(line: dict[str, Any]) -> Sample:
    """One line of a profile."""
    storage, host = line["storage_ms"], line["host_ms"]
    found = {
        name: Form(line[name] * WIRE + HEAD_BYTES, storage[name] / 1e3, host[name] / 1e3)
        for name in NAMES
        if line.get(name) is not None
    }
    if RAW not in found:
        raise Unreadable("a sample without its raw form")
    return found


def read(path: Path) -> list[Sample]:
    samples = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            samples.append(sample_of(json.loads(line)))
        except (KeyError, TypeError, ValueError, Unreadable) as error:
            raise Unreadable(f"{path.name}, line {number}: {error}") from error
    if not samples:
        raise Unreadable(f"{path.name} is empty")
    return samples


def repeated(samples: list[Sample], count: int) -> list[Sample]:
    """As many as asked for, in turn."""
    return [samples[i % len(samples)] for i in range(count)]


def with_host(samples: Iterable[Sample], host_s: dict[str, float]) -> list[Sample]:
    """The same samples with a host's mean costs: another machine, or costs that were measured as a whole."""
    return [
        {name: replace(form, host_s=host_s.get(name, form.host_s)) for name, form in sample.items()}
        for sample in samples
    ]
