"""Raise SIGINT at a chosen line, so that a test can go through all of them."""

import dis
import functools
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, ModuleType
from typing import Any


class SigintTracer:
    """A trace function that raises SIGINT before the `line`-th line that runs in `modules`, and `times` in all.

    Attributes:
      raised: How often it has raised it.
    """

    def __init__(self, line: int, *modules: ModuleType, times: int = 1) -> None:
        self._lines = range(line, line + times)
        self._files = {module.__file__ for module in modules}
        self._passed = 0
        self.raised = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        if event == "line" and frame.f_lasti not in _ends_of_with(frame.f_code):
            self._passed += 1
            if self._passed in self._lines:
                self.raised += 1
                signal.raise_signal(signal.SIGINT)
        return self


@functools.cache
def _ends_of_with(code: CodeType) -> frozenset[int]:
    """Return where ``with`` blocks end normally, which is traced as their first line once more.

    Python handles no signal between a block's last call and that of ``__exit__``, which the block no longer protects.
    Only a trace function can raise an exception there, which would leave a lock taken.
    """
    steps = [each for each in dis.get_instructions(code) if each.opname not in {"NOP", "CACHE"}]
    return frozenset(
        first.offset
        for first, *others in zip(steps, steps[1:], steps[2:], strict=False)
        if all(each.opname == "LOAD_CONST" and each.argval is None for each in (first, *others))
    )


@contextmanager
def sigint_at(line: int, *modules: ModuleType, times: int = 1) -> Iterator[SigintTracer]:
    """Raise SIGINT inside the block; see :class:`SigintTracer`."""
    before, tracer = sys.gettrace(), SigintTracer(line, *modules, times=times)
    sys.settrace(tracer)
    try:
        yield tracer
    finally:
        sys.settrace(before)
