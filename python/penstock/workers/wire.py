"""Messages between the parent and its workers, and how values become them.

Sockets keep message borders (SOCK_SEQPACKET), so many workers may read tasks from one socket
and write results to another: each message goes to whoever is idle, and none is ever torn.

A value is pickled with its buffers out of band (pickle protocol 5).  Arrays of NumPy bring
that along; tensors of torch get a reducer here.  Small buffers follow in the message, others
stand in arenas (penstock.workers.arena).  What is unusual, such as sparse tensors, tensors on
devices, subclasses, is pickled as its class says.
"""

import array
import contextlib
import errno
import io
import mmap
import os
import pickle
import socket
import struct
import sys
from typing import Any, NamedTuple

import numpy as np

from penstock.workers.arena import Bytes, Reader, Seen, Writer

MESSAGE_MAX = 96 << 10  # fits the default socket buffers of Linux
_ROOM = 128 << 10
_FDS_MAX = 32
_REFS_MAX = 1000
_STREAM_MAX = 8 << 10  # all workers share one socket's room: messages are kept small
_HEAD = struct.Struct("<III")  # lengths: head, stream, inline buffers


def pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a connection that keeps message borders."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    return ends


def send(end: socket.socket, parts: list[Any], fds: list[int], flags: int = 0) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    end.sendmsg(parts, rights, flags)


# Plain numbers: those of the module are enumerations, which take longer to join than to receive.
DONT_WAIT = int(socket.MSG_DONTWAIT)
_CLOSE_ON_EXEC = int(socket.MSG_CMSG_CLOEXEC)
_CUT = int(socket.MSG_CTRUNC)
_RIGHTS_SPACE = socket.CMSG_SPACE(_FDS_MAX * 4)


class Incoming:
    """Receives from a socket, into one buffer that is used again and again."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        # Pages come with the first message that needs them, and most are short.
        self._room = memoryview(mmap.mmap(-1, _ROOM, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))

    def receive(self, flags: int = 0) -> tuple[bytearray, list[int], bool] | None:
        """(message, descriptors, whether some were lost); None at the end.

        Raises BlockingIOError with DONT_WAIT and nothing there.
        """
        size, rights, got, _ = self.end.recvmsg_into(
            [self._room], _RIGHTS_SPACE, flags | _CLOSE_ON_EXEC
        )
        fds = array.array("i")
        for _, _, data in rights:
            fds.frombytes(data[: len(data) // fds.itemsize * fds.itemsize])
        if size == 0:
            return None
        return bytearray(self._room[:size]), list(fds), bool(got & _CUT)


# Values to messages


class Packed(NamedTuple):
    """A value, ready to be sent."""

    stream: bytes | None  # the pickle; None: it stands in the last buffer
    refs: list[tuple[int, int, int]]  # of each buffer: segment, offset, length
    inline: Bytes  # segment 0
    arenas: list[tuple[int, int, int]]  # of each other segment: number, size, bytes used
    fds: list[int]  # of arenas that the parent does not know
    plain: list[Bytes]  # segments that are no arenas: they travel in parts


def pack(value: Any, writer: Writer) -> Packed:
    """Pickle a value, its buffers placed by the writer."""
    refs: list[tuple[int, int, int]] = []

    def take(buffer: pickle.PickleBuffer) -> bool:
        if len(refs) >= _REFS_MAX:
            return True  # in band: thousands of arrays are small ones
        refs.append(_place(buffer.raw(), writer))
        return False

    out = io.BytesIO()
    pickler = pickle.Pickler(out, 5, buffer_callback=take)
    torch = sys.modules.get("torch")
    if torch is not None:
        pickler.dispatch_table = _dispatch_table(torch)
    pickler.dump(value)
    stream: bytes | None = out.getvalue()
    assert stream is not None
    if len(stream) > _STREAM_MAX:
        refs.append(_place(memoryview(stream), writer))
        stream = None
    inline, segments, taken = writer.finish()
    arenas, fds, plain = [], [], []
    for segment, arena in zip(segments, taken, strict=True):
        if arena is None:
            arenas.append((-1, 0, segment.used))
            plain.append(segment.array[: segment.used])
            continue
        arenas.append((arena.number, arena.size, segment.used))
        if arena.fd >= 0:
            fds.append(arena.fd)
            arena.fd = -1
        else:
            arenas[-1] = (arena.number, 0, segment.used)
    return Packed(stream, refs, inline, arenas, fds, plain)


def _place(data: memoryview, writer: Writer) -> tuple[int, int, int]:
    if not data.nbytes:
        return 0, 0, 0
    raw = np.frombuffer(data, np.uint8)
    found = writer.locate(raw)
    if found is None:  # else default_collate stacked it there
        room = writer.place(len(raw))
        room[:] = raw
        found = writer.locate(room)
        assert found is not None
    return (*found, len(raw))


def unpack(stream: Any, buffers: list[Any]) -> Any:
    return pickle.loads(stream, buffers=buffers)


# Tensors

_tables: dict[str, Any] = {}


def _dispatch_table(torch: Any) -> Any:
    if "torch" not in _tables:
        import copyreg
        from collections import ChainMap

        _tables["torch"] = ChainMap({torch.Tensor: reduce_tensor}, copyreg.dispatch_table)
    return _tables["torch"]


def reduce_tensor(tensor: Any) -> Any:
    """A plain tensor of the CPU as a buffer, dtype, shape and strides."""
    torch = sys.modules["torch"]
    if not _is_plain(tensor, torch):
        if tensor.requires_grad and not tensor.is_leaf:
            raise RuntimeError(
                "a dataset returned a non-leaf tensor that requires grad: detach() it, "
                "since autograd does not cross processes"
            )
        return tensor.__reduce_ex__(5)
    shape, strides = tuple(tensor.shape), tensor.stride()
    if not tensor.is_contiguous():
        if _is_dense(shape, strides):  # channels_last and the like keep their layout
            flat = tensor.as_strided((tensor.numel(),), (1,))
        else:
            flat, strides = tensor.contiguous().view(-1), None
    else:
        flat, strides = tensor.view(-1), None
    raw = flat.view(torch.uint8).numpy()
    return rebuild_tensor, (pickle.PickleBuffer(raw), tensor.dtype, shape, strides)


def _is_plain(tensor: Any, torch: Any) -> bool:
    return (
        tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not tensor.requires_grad
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor.__dict__
    )


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether a tensor covers its memory once, without gaps, in whatever order."""
    expected = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def rebuild_tensor(
    buffer: Any, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None
) -> Any:
    torch = sys.modules.get("torch") or __import__("torch")
    if not len(memoryview(buffer)):
        return torch.empty(shape, dtype=dtype)
    tensor = torch.frombuffer(buffer, dtype=dtype)
    return (tensor.view(shape) if strides is None else tensor.as_strided(shape, strides)).detach()


# Results as messages


class Result(NamedTuple):
    """What a worker answers.  The value stays packed until its turn comes."""

    kind: str  # "value", "error" or "end"
    task: int
    pid: int
    cost: tuple[int, int, int]  # nanoseconds: all, not asleep, and of these in the queue
    message: bytearray
    start: int  # of the stream in the message
    inline: int  # of the inline buffers in the message
    refs: list[tuple[int, int, int]]
    segments: list[tuple[Seen | bytearray, int]]  # arenas or plain memory, and bytes used
    has_stream: bool

    @property
    def nbytes(self) -> int:
        return len(self.message) + sum(used for _, used in self.segments)

    @property
    def held_bytes(self) -> int:
        """Of the memory that it stands in: an arena may be larger than what it holds."""
        return len(self.message) + sum(
            segment.mapping.size if isinstance(segment, Seen) else used
            for segment, used in self.segments
        )

    def value(self, reader: Reader) -> Any:
        """Unpickle over the arenas, which then live as long as the arrays do."""
        views = [memoryview(self.message)[self.inline :]]
        for segment, used in self.segments:
            array: Any = reader.open(segment, used) if isinstance(segment, Seen) else segment
            views.append(memoryview(array))
        buffers: list[Any] = [views[s][offset : offset + size] for s, offset, size in self.refs]
        stream = memoryview(self.message)[self.start : self.inline]
        return unpack(stream if self.has_stream else buffers.pop(), buffers)

    def give_back(self, reader: Reader) -> None:
        for segment, _ in self.segments:
            if isinstance(segment, Seen):
                reader.give_back(segment)


def send_result(
    end: socket.socket,
    kind: str,
    task: int,
    cost: tuple[int, int, int],
    packed: Packed,
    dropped: list[int],
) -> None:
    """Blocks while the parent does not read; raises OSError when it is gone."""
    pid = os.getpid()
    for segment in packed.plain:
        for start in range(0, len(segment), MESSAGE_MAX):
            part = segment[start : start + MESSAGE_MAX]
            head = pickle.dumps(("part", task, pid, start, len(segment)), 5)
            send(end, [_HEAD.pack(len(head), 0, 0), head, part], [])
    has_stream = packed.stream is not None
    head = pickle.dumps((kind, task, pid, cost, packed.refs, packed.arenas, has_stream, dropped), 5)
    stream = packed.stream or b""
    lengths = _HEAD.pack(len(head), len(stream), len(packed.inline))
    try:
        send(end, [lengths, head, stream, packed.inline], packed.fds)
    finally:
        for fd in packed.fds:
            os.close(fd)


class Results:
    """The parent's end: puts parts together and maps new arenas."""

    def __init__(self, end: socket.socket, reader: Reader) -> None:
        self._incoming = Incoming(end)
        self._reader = reader
        self._parts: dict[tuple[int, int], list[bytearray]] = {}  # by (pid, task)

    def receive(self) -> Result | None:
        """The next result; None: nothing there now.

        Raises UnreachableError where its arena cannot be mapped.
        """
        while True:
            try:
                received = self._incoming.receive(DONT_WAIT)
            except BlockingIOError:
                return None
            if received is None:
                return None
            message, fds, are_lost = received
            n_head, n_stream, _ = _HEAD.unpack_from(message)
            body = _HEAD.size + n_head
            head = pickle.loads(memoryview(message)[_HEAD.size : body])
            if head[0] == "part":
                self._add_part(head, message[body:])
                continue
            kind, task, pid, cost, refs, arenas, has_stream, dropped = head
            for number in dropped:
                self._reader.drop(pid, number)
            plain = iter(self._parts.pop((pid, task), []))
            try:
                self._map(pid, arenas, fds, are_lost)
            except OSError as error:
                raise UnreachableError(task, pid) from error
            segments = [
                (next(plain) if number < 0 else self._reader.hold(pid, number), used)
                for number, _, used in arenas
            ]
            return Result(
                kind, task, pid, cost, message, body, body + n_stream, refs, segments, has_stream
            )

    def _add_part(self, head: Any, part: bytearray) -> None:
        _, task, pid, start, _ = head
        segments = self._parts.setdefault((pid, task), [])
        if start == 0:
            segments.append(part)
        else:
            segments[-1] += part

    def _map(self, pid: int, arenas: Any, fds: list[int], are_lost: bool) -> None:
        """Map the arenas that are new: those whose size is said."""
        left = iter(fds)
        try:
            if are_lost:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            for number, size, _ in arenas:
                if size:
                    self._reader.add(pid, number, next(left), size)
        finally:
            for fd in fds:
                os.close(fd)

    def forget(self, pid: int) -> None:
        """A worker is gone: what it had sent of a result is void."""
        for key in [key for key in self._parts if key[0] == pid]:
            del self._parts[key]
        self._reader.forget(pid)


class UnreachableError(Exception):
    """A result arrived, but its memory could not be mapped."""

    def __init__(self, task: int, pid: int) -> None:
        super().__init__(f"task {task} of worker {pid}")
        self.task = task
        self.pid = pid
