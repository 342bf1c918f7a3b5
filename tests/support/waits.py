"""Waiting for something that another process does, and that cannot be waited for otherwise."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Look until a condition holds.

    Raises:
      AssertionError: It does not hold after so many seconds.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"It does not hold after {seconds:.0f} s."
        time.sleep(0.02)
