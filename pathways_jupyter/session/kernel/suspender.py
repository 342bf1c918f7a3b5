"""Suspends and resumes a session: saves its arrays, removes its proxy, and restores them on the devices of a new one.

The new proxy is made by :meth:`.Session.resume`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from pathways_jupyter.base import interrupts
from pathways_jupyter.base.config import ConnectConfig, for_next_proxy
from pathways_jupyter.base.errors import LocalClusterError, PathwaysError, SessionError
from pathways_jupyter.base.events import Event, EventKind, SessionState, SuspendedArrays, Transfer
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.saved.arrays import Report
from pathways_jupyter.saved.suspension import Suspension
from pathways_jupyter.session import client, clusters
from pathways_jupyter.session.kernel.kernel_side import KernelSide
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.session.verdicts import Does, SessionCommand, verdict

_RECORD_SECONDS = 5.0
"""Longest wait for the supervisor, which is on this machine, to add an event."""


class Suspender:
    """Hands a session over to its bucket and back, with its supervisor.

    Attributes:
      present: The arrays that wait for :meth:`.Session.resume`; None while the session is not suspended.
      kept: Names of the saves that stay, as some of their arrays had no place on the slices of a resume.
      on_transfer: Called on any thread when more of the arrays is written or read.
    """

    def __init__(self, side: KernelSide) -> None:
        self._side = side
        self.present: Suspension | None = None
        self.on_transfer: Callable[[], object] = lambda: None
        self.kept: list[str] = []

    @property
    def next_name(self) -> str:
        """Name of the save that the next suspend makes, another one for each proxy: an earlier one may have to stay."""
        record = self._side.record
        return f"suspended-{record.id}{f'-{record.generation}' if record.generation > 1 else ''}"

    @property
    def save_name(self) -> str:
        """Name of the save with the arrays that wait; empty if there are none."""
        return self.present.name if self.present is not None and self.present.count else ""

    @property
    def judged(self) -> SessionRecord:
        """The record by which it is judged what a command does."""
        record, suspension = self._side.record, self.present
        if self._side.is_over:
            return replace(record, state=SessionState.CLOSED)
        if self._side.transfer is None and record.transfer is not None:
            # Its supervisor does not know yet that it has ended.
            record = replace(record, transfer=None)
        if suspension is None or record.state is SessionState.CLOSED:
            return record
        if record.saved is not None and record.state is not SessionState.LOST:
            return record
        # Saved, and the supervisor has died, also while they were read, or does not know it yet.
        amount = suspension.count, suspension.nbytes
        saved = record.saved or SuspendedArrays(*amount, suspension.place, suspension.saved_at)
        if record.state.is_connected:
            return replace(record, saved=saved, state=SessionState.RESUMING)
        return replace(record, saved=saved, state=SessionState.SUSPENDED, state_since=saved.at)

    def suspend(self, suspension: Suspension, *, yes: bool | Collection[str], report: Report | None) -> None:
        """Save the arrays, then remove the proxy; the arguments are those of :meth:`.Session.suspend`."""
        side = self._side
        with self._transferring(report) as report:
            suspension.save(yes=yes, notebook=side.record.notebook, report=report)
            report("remove the proxy", "")
            # Before the proxy is removed: an Interrupt from here on may leave either, and resume works after both.
            self.present = suspension
            count, nbytes, place = suspension.count, suspension.nbytes, suspension.place
            answer = side.link.request(Method.SUSPENDED, count=count, bytes=nbytes, place=place)
        side.remember(answer)
        side.switch.empty()

    def misfits(self, config: ConnectConfig) -> list[str]:
        """Return the arrays of a suspended session whose sharding does not fit the slices of `config`."""
        suspension = self.required()
        return suspension.misfits(self._slices_of(config, suspension))

    def require_fit(self, config: ConnectConfig) -> None:
        """Check that all arrays fit the slices of `config`; raises as :meth:`.Suspension.require`."""
        suspension = self.required()
        suspension.require(self._slices_of(config, suspension))

    @staticmethod
    def _slices_of(config: ConnectConfig, suspension: Suspension) -> int:
        # A job has the slices that it had.
        return suspension.slices if config.job else sum(config.instances.values())

    def restore(self, *, yes: bool = False, report: Report | None = None) -> Suspension:
        """Put the arrays of a suspended session, which has a new proxy, where they were; as :meth:`.Session.resume`."""
        suspension, side = self.required(), self._side
        slices = list(side.switch.slices().values())
        if not yes:
            # Again: there may be fewer slices than were asked for.
            suspension.require(len(slices))
        with self._transferring(report) as report:
            arrays = suspension.restore(slices, report)
        try:
            answer = side.link.request(Method.RESUMED, outcome=suspension.outcome)
            side.remember(answer)
            is_back = SessionRecord.from_json(answer).saved is None
        except PathwaysError:
            # The proxy ends with its supervisor.
            is_back = False
        if not is_back:
            suspension.follow(slices, arrays)
            raise SessionError(
                f"The proxy was lost at the moment when {suspension} were back. They are still saved.",
                hint=advice("{resume} brings them back."),
            )
        self.present = None
        self.kept += [suspension.name] if suspension.left else []
        suspension.forget()
        return suspension

    def settings(
        self, config: ConnectConfig, *, tpu: str | Mapping[str, int] | None, wait: float | str | None
    ) -> ConnectConfig:
        """Return the settings with which :meth:`.Session.resume` reconnects; the arguments are as there.

        Args:
          config: Those that the session has.

        Raises:
          SessionError: The session is not suspended.
          ConfigError: As for :func:`.for_next_proxy`.
        """
        self.required()
        answer = verdict(self.judged, SessionCommand.RESUME)
        # One that gets a new proxy in another way is waited for, and not one that another thread resumes.
        if answer.does is Does.REFUSES or self._side.transfer is not None:
            raise answer.error()
        # Before slices are taken for them; an embedded cluster that has ended is started first, with its bucket.
        with contextlib.suppress(LocalClusterError):
            self.require_saved()
        return for_next_proxy(config, tpu=tpu, wait=wait)

    def required(self) -> Suspension:
        """Return the arrays that wait.

        Raises:
          SessionError: The session is not suspended.
        """
        if self.present is None:
            raise verdict(self.judged, SessionCommand.RESUME).error()
        return self.present

    def require_saved(self) -> None:
        """Check that the save is there.

        Raises:
          LocalClusterError: It was in the bucket of an embedded cluster that has ended.
          SessionError: It is not.
        """
        suspension = self.required()
        clusters.require_running(self._side.record)
        self._side.adopt_storage()
        suspension.require_saved()

    def on_request(self, idle: Callable[[], float], suspend: Callable[..., Any]) -> None:
        """Let the supervisor suspend this session, as the setting ``suspend_after`` says.

        Args:
          idle: Returns for how many seconds no cell has run; 0 while one does. Called on another thread.
          suspend: Has :meth:`.Session.suspend` called soon on the thread that runs the user's code, because of ``why``,
            and with ``after_cell`` also where a cell runs; returns whether it is after a cell, or None if it is not
            going to be. Called on another thread.
        """
        self._side.handlers |= {Method.IDLE: idle, Method.SUSPEND: suspend}

    def report_failure(self, why: str) -> None:
        """Add to the session's events that it could not be suspended, before anything else says so."""
        event = Event(EventKind.NOT_SUSPENDED, f"Not suspended. {why}")
        with contextlib.suppress(PathwaysError):
            self._side.link.request(Method.RECORD, patience=_RECORD_SECONDS, events=[event.to_json()])

    @contextlib.contextmanager
    def _transferring(self, report: Report | None) -> Iterator[Report]:
        """Context manager over what reports how far arrays are, also to the supervisor, which counts until its end.

        A supervisor that knows by then that the session is suspended, or its arrays back, takes no notice of the end.

        Args:
          report: Called with the same.
        """
        side, counting, is_over = self._side, threading.Lock(), False

        def reported(what: str, how_far: Transfer | str) -> None:
            if isinstance(how_far, Transfer):
                with counting:
                    # A thread that reads may say so after an Interrupt has ended all.
                    if is_over:
                        return
                    side.transfer = how_far
                    side.link.notify(Method.TRANSFER, **asdict(how_far))
                self.on_transfer()
            if report is not None:
                report(what, how_far)

        try:
            yield reported
        finally:
            with interrupts.count_sigint(cleanup=True) as counter:
                with counting:
                    is_over, side.transfer = True, None
                # Answered before the caller goes on, and finds the state that it is in then.
                with contextlib.suppress(PathwaysError):
                    side.link.request(Method.TRANSFER, patience=client.ANSWER_SECONDS)
            if counter.take():
                raise KeyboardInterrupt
