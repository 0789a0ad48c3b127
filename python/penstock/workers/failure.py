"""A worker's exception, on its way to the parent: the same class, its text with the worker's
traceback in it, as torch's DataLoader raises it."""

import traceback


class _Verbatim(str):
    """KeyError shows the repr of its argument, which would put a traceback on one line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Failure:
    """What is known of an exception that happened elsewhere."""

    def __init__(self, error: BaseException, worker: int) -> None:
        self.kind: type[BaseException] = type(error)
        trace = "".join(traceback.format_exception(error))
        self.text = (
            f"Caught {self.kind.__name__} in DataLoader worker process {worker}.\nOriginal {trace}"
        )

    def exception(self) -> BaseException:
        """One to raise here."""
        if self.kind is KeyError:
            return KeyError(_Verbatim(self.text))
        try:
            if getattr(self.kind, "message", None):
                return self.kind(message=self.text)  # type: ignore[call-arg]
            return self.kind(self.text)
        except Exception:  # its constructor wants something else
            return RuntimeError(self.text)

    @classmethod
    def of(cls, error: BaseException, worker: int) -> "Failure":
        """Of anything that was raised.  What would end a process (SystemExit, KeyboardInterrupt)
        is a RuntimeError in the loop, as with torch, but one that says what it was."""
        failure = cls(error, worker)
        return failure if isinstance(error, Exception) else failure.as_runtime_error()

    def as_runtime_error(self) -> "Failure":
        """For a class that cannot be pickled."""
        self.kind = RuntimeError
        return self
