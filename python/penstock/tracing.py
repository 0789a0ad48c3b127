"""A trace of a loader's threads, taken beside whatever is going on."""

import atexit
import os
import threading

from penstock import _core

_DAY = 86400  # nobody looks at a longer trace, and a loader lives as long as its trace


class Tracing:
    """Begins at once; a timer, the loader's end or the program's writes the file."""

    def __init__(self, core: _core.Loader, path: str | os.PathLike[str], seconds: float) -> None:
        if not isinstance(seconds, int | float) or not 0 < seconds <= _DAY:
            raise ValueError(f"seconds must be above 0 and at most {_DAY}, not {seconds!r}")
        self._core, self._path = core, os.path.abspath(path)
        self._lock = threading.Lock()
        self._is_over = False
        self._owner = os.getpid()
        core.trace_start()
        try:  # that it cannot be written is told now, and not when it is over
            open(self._path, "ab").close()
        except OSError:
            core.trace_stop(os.devnull)
            raise
        atexit.register(self.finish)
        self._timer = threading.Timer(seconds, self.finish)
        self._timer.daemon = True
        self._timer.start()

    def finish(self) -> None:
        """Write what there is, once; not in a child that was forked meanwhile."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            if self._is_over:
                return
            self._timer.cancel()
            atexit.unregister(self.finish)
            try:
                self._core.trace_stop(self._path)
            finally:
                self._is_over = True
