"""Starts a contestant's process, watches its memory and returns its JSON line."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.common import ROOT, Spec
from bench.process_tree import memory_kib

# Looking at a large process's page tables takes milliseconds of a core that the contestant also wants:
# spend at most a fiftieth of one core on it.
_SAMPLE_S = 0.2
_SAMPLE_SHARE = 50


def interpreter(env: str) -> Path | None:
    """The Python that runs contestants of an environment, if it is installed."""
    base = ROOT / ".venv" if env == "penstock" else ROOT / ".venv-bench" / env
    python = base / "bin" / "python"
    return python if python.exists() else None


def _watch(process: subprocess.Popen[bytes], deadline: float) -> tuple[int, int]:
    """Wait for the process; returns its tree's peak memory (total, own) in KiB."""
    total_peak = own_peak = 0
    while process.poll() is None:
        started = time.monotonic()
        if started > deadline:
            os.killpg(process.pid, signal.SIGKILL)
            raise TimeoutError
        total, own = memory_kib(process.pid)
        total_peak, own_peak = max(total_peak, total), max(own_peak, own)
        time.sleep(max(_SAMPLE_S, _SAMPLE_SHARE * (time.monotonic() - started)))
    return total_peak, own_peak


def environment() -> dict[str, str]:
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore"}
    return {**os.environ, **quiet}


def run_worker(
    name: str, spec: Spec, view: Path, options: argparse.Namespace, *, prepare: bool = False
) -> dict[str, Any]:
    """One run of a contestant: its JSON with memory added, or {"missing"|"failed": reason}."""
    python = interpreter(spec.env)
    if python is None:
        return {"missing": "no Python environment for it"}
    command = [str(python), "-m", "bench.worker", name, "--view", str(view)]
    command += ["--batch-size", str(options.batch_size), "--threads", str(options.threads)]
    command += ["--seed", str(options.seed), "--min-seconds", str(options.min_seconds)]
    if prepare:
        command.append("--prepare")
    # Files rather than pipes: nobody reads while the contestant runs, and a full pipe would stop it.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=out, stderr=errors, env=environment(), start_new_session=True
        )
        try:
            total, own = _watch(process, time.monotonic() + options.timeout)
        except TimeoutError:
            process.wait()
            return {"failed": f"no result after {options.timeout:.0f} s"}
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        out.seek(0)
        errors.seek(0)
        line = out.read().decode(errors="replace").strip()
        if not line:
            last = errors.read().decode(errors="replace").strip().splitlines()[-1:] or [
                "no message"
            ]
            return {"failed": f"exit code {process.returncode}: {last[0]}"}
    return {**json.loads(line), "peak_pss_kib": total, "peak_own_kib": own}
