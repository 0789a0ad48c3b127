"""Does it adapt? Scenarios that change while loaders run: `python -m bench.adapt` (bench/README.md)."""
