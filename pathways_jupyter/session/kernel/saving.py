"""Variables of a session that outlive its proxy: saves in its bucket, and all of its arrays while it is suspended.

:meth:`.Session.resume` is not here, because it makes a new proxy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, MutableMapping
from dataclasses import replace
from typing import Any

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import PathwaysError, SessionError
from pathways_jupyter.base.events import Event, EventKind, SavedArrays, SessionState
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.saved.arrays import Report
from pathways_jupyter.saved.saves import Save, Saves
from pathways_jupyter.saved.suspension import Suspension
from pathways_jupyter.service.names import current_user
from pathways_jupyter.session.kernel import process
from pathways_jupyter.session.kernel.attachment import AttachedSession, Attachment
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.session.verdicts import SessionCommand


class SavingSession(AttachedSession):
    """Saves, loads and suspends what a session has on its TPUs."""

    def __init__(self, config: ConnectConfig, attachment: Attachment) -> None:
        super().__init__(config, attachment)
        self._suspension: Suspension | None = None

    @property
    def saves(self) -> Saves:
        """This user's saves in the session's bucket: ``list()`` and ``delete(name)``.

        Raises:
          ConfigError: The session has no bucket.
        """
        return Saves(self.bucket, current_user())

    def save(self, name: str, variables: Mapping[str, Any] | None = None, *, report: Report | None = None) -> Save:
        """Save variables with their arrays on TPUs, which the hosts write to the bucket.

        A save is whole or not there; an older one of that name stays until then.

        Args:
          name: Letters, digits, dots, dashes and underscores.
          variables: All of them must be kept. When left out, the notebook's or the script's own; what cannot be kept is
            left out, and is in the result's ``unkept``.
          report: Called with what is done at the moment and how far it is, on another thread; for example ``print``.

        Raises:
          SessionError: The session has no devices here.
          PathwaysError: A variable cannot be kept, or the bucket or the hosts failed.
        """
        devices = self._require_devices(SessionCommand.SAVE)
        kept = process.variables() if variables is None else variables
        whole = variables is not None
        return self.saves.save(name, kept, devices, all_of=whole, notebook=self.record.notebook, report=report)

    def load(
        self, name: str, *, report: Report | None = None, classes: MutableMapping[int, str] | None = None
    ) -> dict[str, Any]:
        """Return the variables of a save, by name: with the same values, types and places on this session's devices.

        Lists, tuples, dictionaries, sets, numbers, strings and arrays come back as what they were, other pytrees as
        dictionaries of their leaves by their paths.

        Args:
          name: Of the save.
          report: As for :meth:`save`.
          classes: Gets the classes that other pytrees had, by the id of the dictionary with their leaves.

        Raises:
          SessionError: The session has no devices here.
          PathwaysError: There is no such save, it is damaged, or it needs more devices.
        """
        devices = self._require_devices(SessionCommand.LOAD)
        return self.saves.load(name, devices, report, classes=classes)

    @property
    def is_suspended(self) -> bool:
        """Return whether its arrays are saved and wait for :meth:`resume`."""
        return self._suspension is not None

    @property
    def suspended_as(self) -> str:
        """Name of the save with the arrays that wait for :meth:`resume`; empty if there are none."""
        return self._suspension.name if self._suspension is not None and self._suspension.count else ""

    def suspend_by_itself(self, idle: Callable[[], float], suspend: Callable[..., Any]) -> None:
        """Let the supervisor suspend this session, as the setting ``suspend_after`` says.

        Args:
          idle: Returns for how many seconds no cell has run; 0 while one does. Called on another thread.
          suspend: Has :meth:`suspend` called soon on the thread that runs the user's code, because of ``why``, and with
            ``after_cell`` also where a cell runs; returns whether it is after a cell, or None if it is not going to be.
            Called on another thread.
        """
        self._attachment.handlers |= {Method.IDLE: idle, Method.SUSPEND: suspend}

    def report_not_suspended(self, why: str) -> None:
        """Add to the session's events that it could not be suspended."""
        event = Event(EventKind.NOT_SUSPENDED, f"Not suspended. {why}")
        self._attachment.link.notify(Method.RECORD, events=[event.to_json()])

    def on_transfer(self, changed: Callable[[], object]) -> None:
        """Have `changed` called on any thread when more of the arrays is written or read, to suspend or to resume."""
        self._attachment.on_transfer = changed

    def keep(self) -> None:
        """Count as used now, so that it is not suspended soon because nothing is computed; does not wait."""
        self._attachment.link.notify(Method.KEEP)

    def suspension(self, variables: Mapping[str, Any] | None = None) -> Suspension:
        """Return what :meth:`suspend` would save, and what it could not; changes nothing.

        Args:
          variables: By their names, which the save and its messages have; the notebook's or the script's own when left
            out. Arrays are found wherever something holds them.

        Raises:
          SessionError: The session has no devices here, or its arrays wait for :meth:`resume`.
        """
        self._require_devices(SessionCommand.SUSPEND)

        def named() -> dict[str, Any]:
            return dict(process.variables() if variables is None else variables)

        slices, live = list(self.slices().values()), self._attachment.switch.live_arrays
        return Suspension(self.saves, f"suspended-{self.id}", slices, named, live)

    def suspend(
        self,
        variables: Mapping[str, Any] | None = None,
        *,
        yes: bool | Collection[str] = False,
        report: Report | None = None,
    ) -> Suspension:
        """Save all arrays on the TPUs, then remove the proxy, so that its slices are free.

        The session stays, and :meth:`resume` puts the arrays back. An Interrupt while they are written leaves it as it
        was.

        Args:
          variables: As for :meth:`suspension`.
          yes: Suspend also if something cannot be kept; or those of :attr:`.Suspension.unkept` that were agreed to.
          report: As for :meth:`save`.

        Raises:
          UnsavableError: Some cannot be kept.
          PathwaysError: The bucket or the hosts failed; the session is as it was.
        """
        suspension = self.suspension(variables)
        with self._attachment.transferring(report) as report:
            suspension.save(yes=yes, notebook=self.record.notebook, report=report)
            report("remove the proxy", "")
            # Before the proxy is removed: an Interrupt from here on may leave either, and resume works after both.
            self._suspension = suspension
            count, nbytes, place = suspension.count, suspension.nbytes, suspension.place
            answer = self._attachment.link.request(Method.SUSPEND, count=count, bytes=nbytes, place=place)
        self._attachment.remember(answer)
        self._attachment.empty({})
        return suspension

    def misfits(self, config: ConnectConfig) -> list[str]:
        """Return the arrays of a suspended session whose sharding does not fit the slices of `config`."""
        return self._suspended().misfits(sum(config.instances.values()))

    def restore(self, *, yes: bool = False, report: Report | None = None) -> Suspension:
        """Put the arrays of a suspended session, which has a new proxy, where they were; as :meth:`resume`."""
        suspension, slices = self._suspended(), list(self.slices().values())
        if not yes:
            # Again: there may be fewer slices than were asked for.
            suspension.require(len(slices))
        with self._attachment.transferring(report) as report:
            suspension.restore(slices, report)
        self._suspension = None
        # A supervisor that has just died is reported by what needs it; the arrays are back.
        with contextlib.suppress(PathwaysError):
            self._attachment.remember(self._attachment.link.request(Method.RESTORED))
        suspension.forget()
        return suspension

    def interrupted(self) -> SessionError:
        """Return what there is after reconnecting or resuming was interrupted, as an error."""
        if not self.is_suspended:
            return super().interrupted()
        return SessionError(f"Resuming was interrupted; {self._description()}.", hint=advice("{resume} tries again."))

    @property
    def _judged(self) -> SessionRecord:
        record, suspension = super()._judged, self._suspension
        if suspension is None or record.saved is not None or record.state is SessionState.CLOSED:
            return record
        # Saved, and the supervisor has died or does not know it yet, because this was interrupted.
        saved = SavedArrays(suspension.count, suspension.nbytes, suspension.place, record.state_since)
        state = SessionState.RESUMING if record.state.is_connected else SessionState.SUSPENDED
        return replace(record, saved=saved, state=state)

    def _suspended(self) -> Suspension:
        if self._suspension is None:
            raise self.verdict(SessionCommand.RESUME).error()
        return self._suspension
