"""An experiment of bench.offload whose runs are noted and not run."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.offload import __main__ as command
from bench.offload import experiment
from bench.offload.expected import Forecast
from bench.offload.grid import AMPLE, Cell

CELL = Cell("headline", "photos", 60.0, AMPLE, 0.0, 0.0, 64, ("none", "auto"))


def options_for(tmp_path, *more):
    return command.parse(["--json", str(tmp_path / "out.json"), "--seeds", "2", *more])


class Rehearsal(experiment.Experiment):
    """An experiment whose runs are noted and not run."""

    def __init__(self, options, monkeypatch, cells, figures=None):
        super().__init__(options, command.fresh(options))
        view = {"directory": Path("/x"), "images": 640, "file_bytes": 1e6}
        self.views["photos"] = type("V", (), view)()
        self.forecasts["photos"] = Forecast("photos", 640, 1e4, (1, 1))
        self.report["data"]["photos"] = {"images": 640, "distinct": 64, "bytes": 1e6}
        self.cells = list(cells)
        self.ran, self.first, self.at_once = [], [], []
        monkeypatch.setenv("XDG_CACHE_HOME", str(options.json.parent / "cache"))

        def perform(run):
            (self.first if run.is_kept else self.ran).append(run)
            digests = [[run.seed] * run.length.warm, [run.seed] * run.length.counted]
            size = {"bytes": 1000, "samples": 1}
            quiet = {"other_cores": 0.1, "cold_s": 3.0}
            default = {"seconds": 2.0, "storage_cpu_s": 1.0, "digests": digests, **size, **quiet}
            return {**default, **(figures(run) if figures else {})}

        def perform_all(runs):
            self.at_once.append([run.policy for run in runs])
            return [perform(run) for run in runs]

        monkeypatch.setattr(experiment, "perform", perform)
        monkeypatch.setattr(experiment, "perform_all", perform_all)
        self.run()

    def policies(self):
        return [(run.policy, run.seed) for run in self.ran if run.policy]
