"""Storage and compute as two machines: network namespaces joined by a link of a given rate.

A namespace is held by a process that ends when this one does, however that happens; the link goes with them, so
nothing stays behind. Nothing of it is seen from outside, and runs beside each other do not meet. What crosses
is counted by the kernel, in the queue by which it leaves the storage. What this machine does not allow raises
Unavailable, with a reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from bench.common import Unavailable

STORAGE_IP, COMPUTE_IP = "10.77.0.1", "10.77.0.2"
_STORAGE_END, _COMPUTE_END = "store0", "comp0"
_TOOLS = ("ip", "tc", "unshare", "nsenter", "setpriv", "taskset")
_START_S = 5.0
_LATENCY_MS = 50  # how long what was sent may wait for its turn before some of it is dropped
_BURST_S = 0.002
_BURST_MIN = 16 * 1024
MTU = 9000  # jumbo frames, as storage networks have
_NO_LIMIT = ("pfifo", "limit", "10000")  # counts what passes


@dataclass(frozen=True)
class Counted:
    """What has left an interface, headers of Ethernet, IP and TCP included."""

    bytes: int
    packets: int

    def __sub__(self, earlier: Counted) -> Counted:
        return Counted(self.bytes - earlier.bytes, self.packets - earlier.packets)


def need_tools() -> None:
    """All that is started here has to be there."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise Unavailable(f"no {', '.join(missing)} (iproute2, util-linux)")
    if os.geteuid() != 0:
        raise Unavailable("network namespaces and limits of links need root")


def _done(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise Unavailable(f"{' '.join(command[-6:])}: {said[-1]}")
    return done.stdout


class Namespace:
    """A network of its own, with a loopback interface."""

    def __init__(self, cpus: frozenset[int] = frozenset()) -> None:
        self._cpus = cpus
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        # It waits for a pipe whose other end only this process has.
        self._holder = subprocess.Popen(
            ["unshare", "--net", "cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
        )
        try:
            self._wait()
            self.run("ip", "link", "set", "lo", "up")
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Of the process that holds it."""
        return self._holder.pid

    def _wait(self) -> None:
        ours = os.readlink("/proc/self/ns/net")
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            with suppress(OSError):
                if os.readlink(f"/proc/{self.pid}/ns/net") != ours:
                    return
            if self._holder.poll() is not None:
                self._errors.seek(0)
                said = self._errors.read().decode(errors="replace").strip()
                raise Unavailable(f"no network namespace: {said or 'unshare ended'}")
            time.sleep(0.01)
        raise Unavailable("no network namespace: unshare does not answer")

    def command(self, *words: str) -> list[str]:
        """What starts a program here, on its cores; it dies with whoever started it."""
        pinned = ["taskset", "--cpu-list", ",".join(map(str, sorted(self._cpus)))]
        return [
            *("setpriv", "--pdeathsig", "KILL"),
            *(pinned if self._cpus else []),
            *("nsenter", f"--net=/proc/{self.pid}/ns/net", "--", *words),
        ]

    def run(self, *words: str) -> None:
        """A program here, to its end."""
        _done(self.command(*words))

    def receive_on_own_cores(self, interface: str) -> None:
        """What comes in is worked on where it would be on a machine of its own. Else the sender's processor does it on
        its way, and as part of the sender's quota."""
        mask = f"{sum(1 << cpu for cpu in self._cpus):x}"
        queue = f"/sys/class/net/{interface}/queues/rx-0/rps_cpus"
        steer = 'mount -t sysfs sysfs /sys && echo "$0" > "$1"'  # this network's, not the machine's
        self.run("unshare", "--mount", "sh", "-c", steer, mask, queue)

    def sent(self, interface: str) -> Counted:
        """What has left an interface since its queue was set. The queue counts frames as they are on the wire, each
        with its headers; the interface itself counts what the kernel hands over, which is many at a time."""
        told = _done(self.command("tc", "-s", "-j", "qdisc", "show", "dev", interface))
        queue = json.loads(told)[0]
        return Counted(queue["bytes"], queue["packets"])

    def close(self) -> None:
        if self._holder.stdin:
            self._holder.stdin.close()
        self._holder.kill()
        self._holder.wait()
        self._errors.close()


@dataclass(frozen=True)
class Sites:
    """Storage and compute, and the link between them."""

    storage: Namespace
    compute: Namespace

    def limit(self, mbit_per_s: float) -> None:
        """How fast storage may send; 0: as fast as it can."""
        interface = ["dev", _STORAGE_END, "root"]
        if not mbit_per_s:
            self.storage.run("tc", "qdisc", "replace", *interface, *_NO_LIMIT)
            return
        burst = max(_BURST_MIN, int(mbit_per_s * 1e6 / 8 * _BURST_S))
        rate = ["rate", f"{round(mbit_per_s * 1e6)}bit", "burst", str(burst)]
        latency = ["latency", f"{_LATENCY_MS}ms"]
        self.storage.run("tc", "qdisc", "replace", *interface, "tbf", *rate, *latency)

    def to_compute(self) -> Counted:
        """What storage has sent."""
        return self.storage.sent(_STORAGE_END)

    def to_storage(self) -> Counted:
        """What compute has sent: requests and acknowledgements."""
        return self.compute.sent(_COMPUTE_END)

    def _join(self) -> None:
        ends = (
            (self.storage, _STORAGE_END, STORAGE_IP),
            (self.compute, _COMPUTE_END, COMPUTE_IP),
        )
        peers = [["name", end, "netns", str(site.pid)] for site, end, _ in ends]
        _done(["ip", "link", "add", *peers[0], "type", "veth", "peer", *peers[1]])
        for site, end, address in ends:
            site.run("ip", "address", "add", f"{address}/30", "dev", end)
            # Frames are cut from larger pieces at the very end, as every network card does it; the limit and the
            # counters are those of the queue, which knows of their headers.
            site.run("ip", "link", "set", "dev", end, "mtu", str(MTU), "up")
            site.run("tc", "qdisc", "add", "dev", end, "root", *_NO_LIMIT)
            site.receive_on_own_cores(end)


def shared_cores() -> tuple[frozenset[int], frozenset[int]]:
    """(storage's, compute's): apart, so that neither's work slows the other's; the last one is the storage's."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        return frozenset(cpus), frozenset(cpus)
    n_storage = len(cpus) // 2
    return frozenset(cpus[-n_storage:]), frozenset(cpus[:-n_storage])


@contextmanager
def two_sites() -> Iterator[Sites]:
    """Storage and compute with an unlimited link."""
    need_tools()
    with ExitStack() as exits:
        storage_cpus, compute_cpus = shared_cores()
        storage = Namespace(storage_cpus)
        exits.callback(storage.close)
        compute = Namespace(compute_cpus)
        exits.callback(compute.close)
        sites = Sites(storage, compute)
        sites._join()
        yield sites
