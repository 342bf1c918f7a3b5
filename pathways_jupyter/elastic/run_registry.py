"""The elastic runs of this process: which one is shown, the ended ones in a list, and their listeners."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pathways_jupyter.elastic import export
from pathways_jupyter.elastic.publish import Publisher
from pathways_jupyter.elastic.record import ElasticEvent, Kind, Record

if TYPE_CHECKING:
    from pathways_jupyter.session.kernel.session import Session

_LISTED = 20
"""Ended runs that are listed."""
_SHORT = 10
"""With so many times fewer steps than the run in the panel, a run was a short call, which does not replace it."""

Observer = Callable[[Record, bool], None]
"""Called after each change of a run with its record, and whether more than a step's completion has changed."""

logger = logging.getLogger("pathways_jupyter.elastic")


class RunRegistry:
    """The runs of a process.

    Attributes:
      latest: The run that began last; None if there was none.
    """

    def __init__(self) -> None:
        self.latest: Record | None = None
        # The one that has ended and stays in the panel.
        self._stays: Record | None = None
        # Rows of the ended runs by id, without their records, which grow with their steps.
        self._ended: dict[str, dict[str, Any]] = {}
        self._publishers: dict[str, Publisher] = {}
        self._observer: Observer | None = None

    def begin(self, record: Record, *, name: str = "", steps: int | None = None) -> None:
        """Make `record` that of the process's latest run, which begins now.

        Args:
          name: The name of the training function.
          steps: The steps that it is to do.
        """
        record.begin(name=name, steps=steps)
        record.listener = self._changed
        self.latest = record
        # The first step may have to be compiled for minutes: until then a panel would say that no run has begun.
        self._changed(record, None, True)

    def has_devices(self, record: Record, slices: int, session: Session | None) -> None:
        """Set the slices that a run may use, and the session where its events are recorded too.

        They are not known before JAX has its devices.
        """
        record.total_slices = slices
        if session is not None and record.id not in self._publishers:
            # At the end of a short call, that is the state of the training before it.
            self._publishers[record.id] = Publisher(
                session, lambda: export.to_log(self.shown() or record, self._rows())
            )

    def end(self, record: Record, *, done: bool | None = None) -> None:
        """End a run; its last state is sent to the session before this returns, if that takes no second.

        Args:
          done: Whether it has come to its end; default: if it has done all steps.
        """
        record.end(done=done)
        self._ended.pop(record.id, None)
        self._ended[record.id] = record.summary()
        for old in list(self._ended)[:-_LISTED]:
            del self._ended[old]
        if self._stays is None or record.length * _SHORT >= self._stays.length:
            self._stays = record
        self._changed(record, None, True)
        # After the last change, which it still sends.
        if (publisher := self._publishers.pop(record.id, None)) is not None:
            publisher.close()

    def shown(self) -> Record | None:
        """Return the run to show: the latest while it goes on, afterwards the latest that was not a short call."""
        latest = self.latest
        return latest if latest is not None and (latest.ended is None or self._stays is None) else self._stays

    def observe(self, observer: Observer) -> None:
        """Call `observer` after each change of any run, from now on and instead of the one before."""
        self._observer = observer

    def _rows(self) -> list[dict[str, Any]]:
        """Return the list of runs, oldest first."""
        rows, latest = dict(self._ended), self.latest
        if latest is not None and latest.ended is None:
            rows.pop(latest.id, None)
            rows[latest.id] = latest.summary()
        return list(rows.values())

    def _changed(self, record: Record, event: ElasticEvent | None, important: bool) -> None:
        if (publisher := self._publishers.get(record.id)) is not None:
            # The supervisor itself reports that a slice is down.
            if event is None or event.kind is Kind.SLICE_DOWN:
                publisher.changed()
            else:
                publisher.changed(export.event_to_log(record, event))
        if self._observer is None:
            return
        try:
            self._observer(record, important)
        except Exception:
            # The observer draws; its error must not stop the training.
            logger.exception("the observer of elastic runs")


RUNS = RunRegistry()
"""Those of this process."""
