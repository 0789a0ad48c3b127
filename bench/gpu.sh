#!/usr/bin/env bash
# gpu.sh - train a real model on the device at hand, and tell how long it waited for data.
#
#   bench/gpu.sh FOLDER [OPTIONS]     pictures, a folder a class; --help has the options
#
# Penstock and torch's DataLoader feed the same loop in turn.  Needs `make build` and PyTorch; a CUDA
# device if there is one, else the CPU is the device, and the report says so.  PYTHON: another
# interpreter than the project's, one whose PyTorch knows the GPU, with penstock installed.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-$here/.venv/bin/python}
finds='import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, ("torch", "penstock"))))'
if ! "$python" -c "$finds" 2>/dev/null; then
    echo "bench/gpu.sh: $python has no torch or no penstock: make build, install PyTorch, or set PYTHON" >&2
    exit 1
fi
PYTHONPATH=$here${PYTHONPATH:+:$PYTHONPATH} exec "$python" -m bench.gpu "$@"
