"""What ends a script, or a trial, that does not end."""

import contextlib
import signal
import threading
from collections.abc import Callable

import pytest

from penstock.doctor.alarm import SIGNAL, Alarm


class Bell(BaseException):
    pass


def wait() -> None:
    """For nothing, in a system call."""
    threading.Event().wait()


def ring(alarm: Alarm, action: Callable[[], object] = wait) -> None:
    with pytest.raises(Bell):
        do(alarm, action)


def do(alarm: Alarm, action: Callable[[], object]) -> None:
    with alarm:
        action()


def test_a_wait_ends_with_the_exception() -> None:
    ring(Alarm(Bell, 0, 0, 1))


def test_the_time_may_be_set_anew() -> None:
    alarm = Alarm(Bell, 1000, 0, 1)

    def soon() -> None:
        alarm.set(0)
        wait()

    ring(alarm, soon)


def test_it_is_raised_again_if_it_is_caught() -> None:
    caught = []

    def stubborn() -> None:
        while len(caught) < 3:
            try:
                wait()
            except Bell as bell:
                caught.append(bell)
        wait()

    ring(Alarm(Bell, 0, 0, 0.05), stubborn)
    assert len(caught) == 3


def test_what_cleans_up_is_spared_for_a_while() -> None:
    n_rung = 0

    class Counting(Alarm):
        def _answer(self, *signal: object) -> None:
            nonlocal n_rung
            n_rung += 1
            super()._answer(*signal)  # type: ignore[arg-type]

    def clean() -> None:
        try:
            wait()
        finally:
            wait()

    ring(Counting(Bell, 0, 3, 0.01), clean)
    assert n_rung >= 1 + 3 + 1


def test_nothing_comes_after_the_end() -> None:
    for _ in range(100):
        with contextlib.suppress(Bell), Alarm(Bell, 0, 0, 0):
            pass  # it rings all the time, also while it is being ended
    assert not [thread for thread in threading.enumerate() if thread.name == "alarm"]


def test_the_alarm_clock_is_left_to_the_script() -> None:
    handler = signal.getsignal(signal.SIGALRM)
    signal.setitimer(signal.ITIMER_REAL, 1000)
    try:
        ring(Alarm(Bell, 0, 0, 1))
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
        assert signal.getsignal(signal.SIGALRM) is handler
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def test_somebody_is_told_of_signals_that_are_not_answered() -> None:
    """Native code that does not come back, for one; here they are blocked."""
    told = threading.Event()
    signal.pthread_sigmask(signal.SIG_BLOCK, {SIGNAL})
    try:
        with Alarm(Bell, 0, 2, 0.01, told.set):
            assert told.wait(60)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {SIGNAL})
