"""The session as user code in the kernel sees it.

:func:`start` returns an attempt that reports its progress; :func:`connect` is the blocking call. :func:`restart` and
:meth:`Session.reconnect` are the same pair for a new proxy. The supervisor owns everything outside the kernel; this
package only changes the kernel's own process: it starts the supervisor, switches JAX, and undoes both. A process has
one session at a time, because it has one JAX.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import replace
from typing import Any, Self

from pathways_jupyter.base.config import SETTINGS, ConnectConfig
from pathways_jupyter.base.errors import ConfigError, PathwaysError, SessionError
from pathways_jupyter.base.events import SessionState
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.saved.pace import Report
from pathways_jupyter.saved.saves import Save, Saves
from pathways_jupyter.saved.suspension import Suspension
from pathways_jupyter.service.names import current_user
from pathways_jupyter.session.kernel import process
from pathways_jupyter.session.kernel.attachment import AttachedSession, Attachment, Ended, Variables
from pathways_jupyter.session.kernel.attempt import ConnectionAttempt, Revive
from pathways_jupyter.session.kernel.jax_switch import Switched
from pathways_jupyter.session.protocol import Method


class Session(AttachedSession):
    """A connection of this process to its own proxy; returned by :func:`pathways_jupyter.connect`.

    Call its methods on the thread that runs the user's code. As a context manager it disconnects at the end.
    """

    def __init__(self, config: ConnectConfig, attachment: Attachment, revive: Revive | None = None) -> None:
        super().__init__(config, attachment)
        self._revive = revive
        self._suspension: Suspension | None = None

    def __repr__(self) -> str:
        record = self.record
        where = record.service or (f"job {record.pathways_job}" if record.pathways_job else "no service")
        return f"<Session {self.id}: {self.state}, {where}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.disconnect()

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
        devices = self._require_devices()
        kept = process.variables() if variables is None else variables
        whole = variables is not None
        return self.saves.save(name, kept, devices, all_of=whole, notebook=self.record.notebook, report=report)

    def load(self, name: str, *, report: Report | None = None) -> dict[str, Any]:
        """Return the variables of a save, by name: with the same values, types and places on this session's devices.

        Lists, tuples, dictionaries, sets, numbers, strings and arrays come back as what they were, other pytrees as
        dictionaries of their leaves by their paths.

        Args:
          name: Of the save.
          report: As for :meth:`save`.

        Raises:
          SessionError: The session has no devices here.
          PathwaysError: There is no such save, it is damaged, or it needs more devices.
        """
        devices = self._require_devices()
        return self.saves.load(name, devices, report)

    @property
    def is_suspended(self) -> bool:
        """Return whether its arrays are saved and wait for :meth:`resume`."""
        return self._suspension is not None

    def suspend_by_itself(self, idle: Callable[[], float], suspend: Callable[[str], bool]) -> None:
        """Let the supervisor suspend this session, as the setting ``suspend_after`` says.

        Args:
          idle: Returns for how many seconds no cell has run; 0 while one does. Called on another thread.
          suspend: Has :meth:`suspend` called soon on the thread that runs the user's code, because of ``why``; returns
            whether it will be. Called on another thread.
        """
        self._attachment.asked |= {Method.IDLE: idle, Method.SUSPEND: suspend}

    def keep(self) -> None:
        """Count as used now, so that it is not suspended soon because nothing is computed; does not wait."""
        link = self._attachment.link
        link.forget(link.ask(Method.KEEP))

    def suspension(self, variables: MutableMapping[str, Any] | None = None) -> Suspension:
        """Return what :meth:`suspend` would save, and what it could not; changes nothing.

        Args:
          variables: Where to look for arrays, and put them back; the notebook's or the script's own when left out.

        Raises:
          SessionError: The session has no devices here, or its arrays wait for :meth:`resume`.
        """
        self._require_devices()
        if self._suspension is not None:
            raise SessionError(
                "The arrays of the last suspend are not back yet.", hint=advice("{resume} restores them.")
            )
        searched = process.namespace() if variables is None else variables
        slices, live = list(self.slices().values()), self._attachment.switch.live_arrays
        return Suspension(self.saves, f"suspended-{self.id}", slices, searched, live)

    def suspend(
        self, variables: MutableMapping[str, Any] | None = None, *, yes: bool = False, report: Report | None = None
    ) -> Suspension:
        """Save all arrays on the TPUs, then remove the proxy, so that its slices are free.

        The session stays, and :meth:`resume` puts the arrays back. An Interrupt while they are written leaves it as it
        was.

        Args:
          variables: As for :meth:`suspension`.
          yes: Suspend also if arrays cannot be kept.
          report: As for :meth:`save`.

        Raises:
          UnsavableError: Some cannot be kept.
          PathwaysError: The bucket or the hosts failed; the session is as it was.
        """
        suspension = self.suspension(variables)
        suspension.save(yes=yes, notebook=self.record.notebook, report=report)
        if report is not None:
            report("remove the proxy", "")
        # Before the proxy is removed: an Interrupt from here on may leave either, and resume works after both.
        self._suspension = suspension
        link = self._attachment.link
        saved = link.ask(Method.SUSPEND, count=suspension.count, bytes=suspension.nbytes, place=suspension.place)
        link.answer(saved)
        self._attachment.empty({})
        return suspension

    def resume(
        self,
        *,
        tpu: str | Mapping[str, int] | None = None,
        wait: float | bool | None = None,
        yes: bool = False,
        report: Report | None = None,
    ) -> Suspension:
        """Get a new proxy, and put the arrays of :meth:`suspend` where they were.

        What holds other values by now keeps them. Meshes, shardings and devices in variables become those of the new
        proxy. On failure it can be tried again.

        Args:
          tpu: Another number of slices of the same type. Meshes over all slices become meshes over these, and arrays
            keep their partitions.
          wait: Seconds to wait for taken slices; True waits for ever. As the session was connected when left out.
          yes: Resume also if arrays do not fit the number of slices; they stay saved.
          report: As for :meth:`save`.

        Raises:
          CapacityError: The slices are taken, and the wait is over.
          UnsavableError: Arrays do not fit the number of slices.
          SessionError: The session is not suspended, or the new proxy did not come up.
          PathwaysError: The bucket or the hosts failed; the arrays are still saved.
        """
        config = to_resume(self, tpu=tpu, wait=wait)
        if not yes:
            self._suspended().require(sum(config.instances.values()))
        if not self.has_slices_of(config):
            self._renew(self._restart({}, config))
        return self.restore(yes=yes, report=report)

    def misfits(self, config: ConnectConfig) -> list[str]:
        """Return the arrays of a suspended session whose sharding does not fit the slices of `config`."""
        return self._suspended().misfits(sum(config.instances.values()))

    def has_slices_of(self, config: ConnectConfig) -> bool:
        """Return whether its proxy can be used, and has the number of slices that `config` asks for."""
        return self.has_devices and config.instances == self.config.instances

    def restore(self, *, yes: bool = False, report: Report | None = None) -> Suspension:
        """Put the arrays of a suspended session, which has a new proxy, where they were; as :meth:`resume`."""
        suspension, slices = self._suspended(), list(self.slices().values())
        if not yes:
            # Again: there may be fewer slices than were asked for.
            suspension.require(len(slices))
        suspension.restore(slices, report)
        self._suspension = None
        link = self._attachment.link
        # A supervisor that has just died is reported by what needs it; the arrays are back.
        with contextlib.suppress(PathwaysError):
            link.answer(link.ask(Method.RESTORED))
        suspension.forget()
        return suspension

    def _lacks(self, lacking: str) -> SessionError:
        # To reconnect without its arrays is refused.
        return suspended(self) if self.is_suspended else super()._lacks(lacking)

    def _suspended(self) -> Suspension:
        if self._suspension is None:
            raise SessionError(f"Session {self.id} is not suspended.", hint=advice("{status} shows it."))
        return self._suspension

    def reconnect(self, variables: Mapping[str, Any] | None = None) -> Switched:
        """Replace the proxy by a new one and point JAX at it; arrays on the previous one are lost.

        Blocks until JAX has the new devices. If the sidebar has already replaced the proxy, that one is used. A dead
        supervisor is replaced as well, and an embedded cluster that has ended is started again. On failure the session
        stays as it was, and reconnecting can be tried again; after a KeyboardInterrupt too.

        Args:
          variables: Where to look for the names of arrays; the notebook's or the script's own when left out.

        Returns:
          What happened to the arrays: to all on the previous proxy, with the variables' names.

        Raises:
          CapacityError: The slices are taken, and the connection's ``wait`` is over.
          SessionError: The session is suspended or was disconnected, or the new proxy did not come up.
        """
        return self._renew(restart(self, variables))

    def _renew(self, attempt: ConnectionAttempt[Session]) -> Switched:
        try:
            _ = attempt.session
        except KeyboardInterrupt:
            left = self.interrupted()
            stopped = KeyboardInterrupt(str(left))
            for note in getattr(left, "__notes__", ()):
                stopped.add_note(note)
            # Without the stack of what was waited for, which says nothing to the user.
            raise stopped from None
        return attempt.switched

    def interrupted(self) -> SessionError:
        """Return what there is after :meth:`reconnect` or :meth:`resume` was interrupted, as an error."""
        left = super().interrupted()
        # To reconnect without its arrays is refused.
        return SessionError(str(left), hint=advice("{resume} tries again.")) if self.is_suspended else left

    def settle(self, variables: Mapping[str, Any] | None = None) -> Switched | None:
        """Apply to JAX what happened to the session from outside; to be called between cells.

        If the sidebar or the command line disconnected it, JAX is restored; if they reconnected it, JAX is pointed at
        the new proxy; if its proxy was lost, the arrays on it are deleted.

        Returns:
          What happened to the user's arrays; None when nothing had to be done.
        """
        attachment = self._attachment
        if self._is_over:
            return None
        if self.state is SessionState.CLOSED:
            return Switched(unusable=attachment.forget(variables))
        if self.state in {SessionState.LOST, SessionState.SUSPENDED}:
            return attachment.empty(variables)
        # Also where JAX has no devices of the session, because a switch was interrupted.
        if self.state.is_connected and attachment.link.generation > attachment.generation:
            return attachment.adopt(attachment.link, self.status(), variables)
        return None

    def disconnect(self, variables: Mapping[str, Any] | None = None) -> Ended:
        """Restore JAX and remove the proxy; no-op if the session is over.

        Args:
          variables: Where to look for the names of arrays; the notebook's or the script's own when left out.

        Returns:
          All arrays on the TPUs, which became unusable, and what could not be removed from the cluster.
        """
        return self._attachment.disconnect(variables)

    def _restart(self, variables: Variables | None, config: ConnectConfig) -> ConnectionAttempt[Session]:
        attachment = self._attachment
        if attachment.is_inherited:
            raise SessionError(f"Session {self.id} belongs to the process that this one was forked from.")
        if self.state in {SessionState.CLOSING, SessionState.CLOSED} or current() is not self:
            raise SessionError(
                f"Session {self.id} was disconnected and cannot be reconnected.",
                hint=advice("{connect} makes a new one."),
            )

        def connected(_: Attachment) -> Session:
            self.config = config
            return self

        return ConnectionAttempt(config, variables, connected=connected, attachment=attachment, revive=self._revive)


_current: Session | None = None


def current() -> Session | None:
    """Return this process's session, also when its proxy is lost; None when there is none."""
    global _current
    if _current is not None and _current._is_over:
        _current = None
    return _current


def start(
    config: ConnectConfig, variables: Variables | None = None, *, revive: Revive | None = None
) -> ConnectionAttempt[Session]:
    """Return an attempt to connect; it does nothing before its ``with`` block.

    Args:
      config: What to connect to. An embedded cluster must run already, and be named by its kubeconfig.
      variables: The user's variables, to report the arrays that the switch of devices affects.
      revive: Called before the session is reconnected.

    Raises:
      ConfigError: No slices are requested.
      SessionError: This process already has a session.
    """
    if not config.instances and not config.job:
        raise ConfigError("No TPU slices were requested.", hint=advice("For example: {tpu:tpuv6e:2x2=2}."))
    session = current()
    if session is not None:
        raise SessionError(
            f"This process already has session {session.id} ({session.state}).",
            hint=advice("{reconnect} gives it a new proxy, {disconnect} ends it."),
        )

    def connected(attachment: Attachment) -> Session:
        global _current
        _current = Session(config, attachment, revive)
        return _current

    return ConnectionAttempt(config, variables, connected=connected)


def restart(
    session: Session, variables: Variables | None = None, config: ConnectConfig | None = None
) -> ConnectionAttempt[Session]:
    """Return an attempt to replace the proxy of `session`; see :meth:`Session.reconnect`.

    It does nothing before its ``with`` block.

    Args:
      config: That of :func:`to_resume`, for a session that is suspended.

    Raises:
      SessionError: The session was disconnected, or is suspended.
    """
    if session.is_suspended and config is None:
        # A new proxy alone would be a session without its arrays.
        raise suspended(session)
    return session._restart(variables, config or session.config)


def suspended(session: Session) -> SessionError:
    """Return the error of what a session cannot do before :meth:`Session.resume`."""
    return SessionError(
        f"Session {session.id} is suspended; its arrays are saved.", hint=advice("{resume} brings them back.")
    )


def to_resume(
    session: Session, *, tpu: str | Mapping[str, int] | None = None, wait: float | str | None = None
) -> ConnectConfig:
    """Return the settings with which :meth:`Session.resume` reconnects; the arguments are as there.

    Raises:
      SessionError: The session is not suspended.
      ConfigError: The slices are of another type.
    """
    session._suspended()
    changes: dict[str, Any] = {} if wait is None else {"wait": SETTINGS["wait"].check(wait, "wait")}
    if tpu is not None:
        changes["instances"] = SETTINGS["tpu"].check(tpu, "tpu")
        if changes["instances"].keys() != session.config.instances.keys():
            raise ConfigError(
                f"The arrays were on slices of {' and '.join(session.config.instances)}.",
                hint="Resume on the same type, and save variables that are to move to another one.",
            )
        changes["at_least"] = min(session.config.at_least, sum(changes["instances"].values()))
    return replace(session.config, **changes)


def connect(config: ConnectConfig, variables: Variables | None = None, *, revive: Revive | None = None) -> Session:
    """Connect, and return when JAX has its devices.

    Raises:
      CapacityError: The slices are taken, and `config.wait` is over.
      PathwaysError: Any other failure; nothing was changed.
    """
    return start(config, variables, revive=revive).session
