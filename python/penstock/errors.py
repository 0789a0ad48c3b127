"""What penstock raises.

Every fault the C library reports becomes an `Error` with its code and, where one is
known, the byte at which the data went wrong.  Running out of memory is Python's own
MemoryError.
"""


class Error(Exception):
    """A fault that penstock reports; the message names the sample where there is one."""

    code: str = "PEN_UNKNOWN"
    """The name in the C library's list, such as 'PEN_ECORRUPT'."""
    offset: int | None = None
    """The byte in the sample or file, if it is known."""
    sample: int | None = None
    """The id of the sample at fault; `loader.dataset.key(error.sample)` is its key."""


class DataError(Error):
    """The data is at fault: corrupt, unsupported, or over a limit."""


class InvalidError(Error, ValueError):
    """An argument makes no sense."""


class StateError(Error, ValueError):
    """A saved state belongs to another stream; the message says what differs."""


class InputOutputError(Error, OSError):
    """A file could not be read, or changed under us."""


class NotFoundError(Error, FileNotFoundError):
    """There is nothing of that name."""


class ForkError(Error, RuntimeError):
    """A loader or a remote dataset was inherited through fork(): make it in the process that uses it."""


# The extension looks here for the class of a code; a code without an entry is an `Error`.
BY_CODE: dict[str, type[Error]] = {
    "PEN_ECORRUPT": DataError,
    "PEN_EUNSUPPORTED": DataError,
    "PEN_ELIMIT": DataError,
    "PEN_EBAD": DataError,
    "PEN_EINVAL": InvalidError,
    "PEN_ESTATE": StateError,
    "PEN_EIO": InputOutputError,
    "PEN_ENOTFOUND": NotFoundError,
    "PEN_EFORK": ForkError,
}
