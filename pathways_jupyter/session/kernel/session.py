"""The session as user code in the kernel sees it.

:func:`attempt_connect` returns an attempt that reports its progress; :func:`connect` is the blocking call.
:func:`attempt_reconnect` and :meth:`Session.reconnect` are the same pair for a new proxy. The supervisor owns
everything outside the kernel; this package only changes the kernel's own process: it starts the supervisor, switches
JAX, and undoes both. A process has one session at a time, because it has one JAX.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from pathways_jupyter.base.config import SETTINGS, ConnectConfig
from pathways_jupyter.base.errors import ConfigError, SessionError
from pathways_jupyter.base.events import SessionState
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.saved.arrays import Report
from pathways_jupyter.saved.suspension import Suspension
from pathways_jupyter.session.kernel.attachment import Attachment, Ended, Variables
from pathways_jupyter.session.kernel.attempt import ConnectionAttempt, Revive
from pathways_jupyter.session.kernel.jax_switch import Switched
from pathways_jupyter.session.kernel.saving import SavingSession
from pathways_jupyter.session.verdicts import Does, SessionCommand

_OVER = frozenset({SessionState.CLOSING, SessionState.CLOSED})
"""States that do not lead back. A session stays in the first where something of it could not be removed."""


class Session(SavingSession):
    """A connection of this process to its own proxy; returned by :func:`pathways_jupyter.connect`.

    Call its methods on the thread that runs the user's code. As a context manager it disconnects at the end.
    """

    def __init__(self, config: ConnectConfig, attachment: Attachment, revive: Revive | None = None) -> None:
        super().__init__(config, attachment)
        self._revive = revive

    def __repr__(self) -> str:
        record = self.record
        where = record.service or (f"job {record.pathways_job}" if record.pathways_job else "no service")
        return f"<Session {self.id}: {self.state}, {where}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if left := self.disconnect().left:
            warnings.warn(f"Not everything of session {self.id} could be removed: {left}", stacklevel=2)

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
            self._renew(self._attempt({}, config))
        return self.restore(yes=yes, report=report)

    def has_slices_of(self, config: ConnectConfig) -> bool:
        """Return whether its proxy can be used, and has the number of slices that `config` asks for."""
        return self.has_devices and config.instances == self.config.instances

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
        return self._renew(attempt_reconnect(self, variables))

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

    def settle(self, variables: Mapping[str, Any] | None = None) -> Switched | None:
        """Apply to JAX what happened to the session from outside; to be called between cells.

        If the sidebar or the command line disconnected it, JAX is restored; if they reconnected it, JAX is pointed at
        the new proxy; if its proxy was lost, or is being replaced, the arrays on it are deleted. Arrays that were
        deleted because the user had cleared JAX's backends are reported.

        Returns:
          What happened to the user's arrays; None when nothing had to be done.
        """
        attachment = self._attachment
        if self._is_over:
            return None
        if self.state in _OVER:
            return Switched(unusable=attachment.forget(variables))
        if not self.state.is_connected:
            return attachment.empty(variables)
        # Also where JAX has no devices of the session, because a switch was interrupted.
        if not attachment.has_newest:
            return attachment.adopt(attachment.link, self.status(), variables)
        return attachment.cleared()

    def disconnect(self, variables: Mapping[str, Any] | None = None) -> Ended:
        """Restore JAX and remove the proxy; no-op if the session is over.

        Args:
          variables: Where to look for the names of arrays; the notebook's or the script's own when left out.

        Returns:
          All arrays on the TPUs, which became unusable, and what could not be removed from the cluster.
        """
        return self._attachment.disconnect(variables)

    def _attempt(self, variables: Variables | None, config: ConnectConfig) -> ConnectionAttempt[Session]:
        attachment = self._attachment
        if attachment.is_inherited:
            raise SessionError(
                f"Session {self.id} belongs to the process that this one was forked from.",
                hint="Reconnect it there, or start this process anew (spawn) and connect in it.",
            )
        if self.state in _OVER or current() is not self:
            raise self.verdict(SessionCommand.RECONNECT).error()

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


def attempt_connect(
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
        raise session.verdict(SessionCommand.CONNECT_OTHERWISE).error()

    def connected(attachment: Attachment) -> Session:
        global _current
        _current = Session(config, attachment, revive)
        return _current

    return ConnectionAttempt(config, variables, connected=connected)


def attempt_reconnect(
    session: Session, variables: Variables | None = None, config: ConnectConfig | None = None
) -> ConnectionAttempt[Session]:
    """Return an attempt to replace the proxy of `session`; see :meth:`Session.reconnect`.

    It does nothing before its ``with`` block.

    Args:
      config: That of :func:`to_resume`, for a session that is suspended.

    Raises:
      SessionError: The session was disconnected, or is suspended.
    """
    found = session.verdict(SessionCommand.RECONNECT)
    # A suspended one is not: a new proxy alone would be a session without its arrays.
    if found.does is Does.REFUSES and config is None:
        raise found.error()
    return session._attempt(variables, config or session.config)


def to_resume(
    session: Session, *, tpu: str | Mapping[str, int] | None = None, wait: float | str | None = None
) -> ConnectConfig:
    """Return the settings with which :meth:`Session.resume` reconnects; the arguments are as there.

    Raises:
      SessionError: The session is not suspended.
      ConfigError: The slices are of another type.
    """
    session._suspended()
    found = session.verdict(SessionCommand.RESUME)
    # One that gets a new proxy in another way is waited for, and not one that another thread resumes.
    if found.does is Does.REFUSES or session.record.transfer is not None:
        raise found.error()
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
    return attempt_connect(config, variables, revive=revive).session
