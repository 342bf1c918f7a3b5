"""What happens to a loop of one's own on the Manager, recorded as it is for `train_loop`.

Such a loop says less about itself. A run begins with the first call of the Manager that takes part in one, and its
steps are known only if the loop notes them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from pathways_jupyter.elastic.goodput import Spent
from pathways_jupyter.elastic.kinds import Kind, listed, lost_words, paused_words
from pathways_jupyter.elastic.record import Record

if TYPE_CHECKING:
    from pathways_jupyter.session.kernel.session import Session


class OwnRun:
    """One such run, from its begin to :meth:`end`; used by one thread.

    Args:
      record: Where its events go.
      slices: How many slices there are.
    """

    def __init__(self, record: Record, session: Session | None, *, slices: int) -> None:
        self.record = record
        self._has_news = False
        record.begin(slices=slices, session=session)
        record.goodput.begin_steps()

    @contextlib.contextmanager
    def waiting(self, up: int, wanted: int) -> Iterator[None]:
        """Context manager: the block waits for slices, of which `up` can be used and `wanted` are needed."""
        self._has_news = True
        self.record.add(Kind.WAITING, paused_words(up, wanted), step=self._next)
        with self.record.goodput.during(Spent.SLICE_DOWN):
            yield

    def lost(self, before: Collection[int], remaining: Collection[int], error: Exception | None) -> None:
        """Add that slices were lost, of those in use `before`."""
        self._has_news = True
        if self.record.latest is not None:
            # Otherwise it is not known what of the time so far was in vain.
            self.record.goodput.waste()
        said = lost_words(set(before) - set(remaining), error)
        self.record.add(Kind.DETECTED, said, step=self._next, slices=tuple(sorted(remaining)))

    def restored(self, step: int, active: Collection[int]) -> None:
        """Add that a snapshot is on the slices `active`."""
        slices = tuple(sorted(active))
        self.record.add(
            Kind.RESTORED, f"The state before step {step} is on {listed(slices)}.", step=step, slices=slices
        )

    def goes_on(self, active: Collection[int], before: Collection[int], *, attempt: int = 0) -> None:
        """Add that the run goes on with the slices `active`, if that is news.

        Args:
          before: The slices that it used before.
          attempt: Which call of the user's function begins, counted from 1; 0 if it is not called again.
        """
        slices, grown = tuple(sorted(active)), not set(active) <= set(before) and bool(before)
        if not self._has_news and not grown and attempt < 2:
            self.record.uses(len(slices))
            return
        self._has_news = False
        how = f"Attempt {attempt} begins" if attempt else "Training continues"
        kind = Kind.GROWN if grown else Kind.RESUMED
        self.record.add(kind, f"{how} on {listed(slices)}.", step=self._next, slices=slices)

    def end(self, *, done: bool) -> None:
        """End the run; `done` says whether it has come to its own end."""
        self.record.end(done=done)

    @property
    def _next(self) -> int | None:
        """The step that is next, if steps are noted."""
        return self.record.done or None
