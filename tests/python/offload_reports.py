"""Reports of bench.offload that nobody measured, for tests of what is made of them."""

import importlib

import pytest


def scipy_parts(name):
    pytest.importorskip("scipy")
    return importlib.import_module(f"bench.offload.{name}")


def run_with(seconds, size, storage=0.1, equal=True):
    return {
        "samples": 100,
        "seconds": seconds,
        "elapsed_s": seconds,
        "cold_s": seconds + 1,
        "bytes": size,
        "storage_cpu_s": storage,
        "compute_cpu_s": 0.2,
        "wait_s": 0.5 * seconds,
        "first_batch_s": 1.0,
        "equal": equal,
        "other_cores": 0.1,
        "quota": 0.01,
        "share": 1.0,
        "settled_s": 3.0,
        "warm_s": 10.0,
        "build": "1234567890ab",
    }


def report_with(cell, runs):
    stored = {
        "cell": cell.stored(),
        "problems": {},
        "runs": {p: {str(s): run for s, run in enumerate(of)} for p, of in runs.items()},
    }
    return {
        "machine": {"cpu": "a", "cores": 2, "memory_gib": 1},
        "date": "today",
        "how": {"quick": False},
        "data": {"photos": {"images": 5000, "distinct": 100, "bytes": 5e8}},
        "cells": {cell.key: stored},
    }
