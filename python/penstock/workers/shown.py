"""A loader of worker processes in `penstock top PID`: says how it is, and takes what is wished of its knobs.

Between two batches: about twice a second it is looked whether anything is wished, and about once a
second said how it is, which takes a thousandth of a second.  The library shows what was said last, and
nobody calls into Python, whose interpreter may be busy or at its end.  Showing is an extra.  Where it cannot be
had nothing is said, and nothing that goes wrong here reaches the loop.
"""

import json
import weakref
from typing import Protocol
from urllib.parse import parse_qsl

from penstock._core import Guest
from penstock.errors import Error
from penstock.workers.account import Account


class Tells(Protocol):
    """Who knows about the loader; None: it is not to be shown now."""

    def shown_account(self) -> Account | None: ...


class Shown:
    """Called after batches (Meter.each_while).  Ends with its loader's engine."""

    def __init__(self, engine: Tells) -> None:
        self._engine = weakref.ref(engine)
        self._guest: Guest | None = None
        self._is_refused = False
        self._n_calls = 0
        self._complaint = ""

    def __call__(self) -> None:
        engine = self._engine()
        account = None if engine is None or self._is_refused else engine.shown_account()
        if account is None:
            return
        try:
            if self._guest is None:
                self._guest = Guest()
            has_news = self._take_wishes(account, self._guest.wishes())
            self._n_calls += 1
            if self._n_calls % 2 == 0 and not has_news:
                return
            status = account.status(with_memory=False)
            if self._complaint:
                status["reason"] = self._complaint
            self._guest.say(json.dumps(status))
        except (Error, OSError, MemoryError):
            self._is_refused, self._guest = True, None

    def _take_wishes(self, account: Account, wishes: str) -> bool:
        """Whether there were any."""
        if not wishes:
            return False
        numbers = {
            name: "auto" if value == "auto" else int(value)
            for name, value in parse_qsl(wishes)  # of one that is named twice, the last counts
        }
        try:
            account.knobs.set(**numbers)
            self._complaint = ""
        except ValueError as reason:  # its range changed since it was shown
            self._complaint = str(reason)
        return True

    def close(self) -> None:
        self._guest = None
