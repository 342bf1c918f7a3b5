"""Waiting for something that another process does, and that cannot be waited for otherwise; and making one wait."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator

import psutil


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Look until a condition holds.

    Raises:
      AssertionError: It does not hold after so many seconds.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"It does not hold after {seconds:.0f} s."
        time.sleep(0.02)


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Stop a process meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def has_ended(pid: int) -> bool:
    """Return whether a process runs no more; init may take long to reap one whose parent has ended."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def have_ended(processes: Iterable[psutil.Process]) -> bool:
    """Return the same for several processes; ``psutil.wait_procs`` waits until all of them are reaped."""
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if each.is_running() and each.status() != psutil.STATUS_ZOMBIE:
                return False
    return True
