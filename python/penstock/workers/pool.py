"""Worker processes, and the tasks under way in them."""


class Pool:
    """Processes forked from a single-threaded zygote."""

    def resize(self, n_workers: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
