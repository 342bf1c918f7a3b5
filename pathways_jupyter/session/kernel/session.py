"""The session as user code in the kernel sees it.

:func:`start` returns an attempt that reports its progress; :func:`connect` is the blocking call. :func:`restart` and
:meth:`Session.reconnect` are the same pair for a new proxy. The supervisor owns everything outside the kernel; this
module only changes the kernel's own process: it starts the supervisor, switches JAX, and undoes both. A process has one
session at a time, because it has one JAX.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pathways_jupyter import interrupts
from pathways_jupyter.config import ConnectConfig
from pathways_jupyter.errors import ConfigError, PathwaysError, SessionError
from pathways_jupyter.events import Event, EventKind, SessionState, Stage
from pathways_jupyter.session import client, protocol, registry
from pathways_jupyter.session.kernel import process, spawn
from pathways_jupyter.session.kernel.jax_switch import JaxSwitch, Switched
from pathways_jupyter.session.kernel.link import Link
from pathways_jupyter.session.kernel.user_arrays import NamedArray
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.wording import count

if TYPE_CHECKING:
    import jax

CLEANUP_SECONDS = 20.0
"""Longest wait for a session to end; afterwards the supervisor continues on its own."""

Variables = Mapping[str, Any]

Revive = Callable[[ConnectConfig, SessionState], None]
"""Sees that the cluster of a session in this state runs; what starts the embedded one is above this module."""

_OVER = {SessionState.CLOSING, SessionState.CLOSED}


@dataclass(frozen=True)
class Ended:
    """The result of ending a session.

    Attributes:
      unusable: Arrays whose devices are gone.
      left: What could not be removed from the cluster, and why; empty when nothing is left.
    """

    unusable: tuple[NamedArray, ...] = ()
    left: str = ""

    def __str__(self) -> str:
        lines = ["The session is over."]
        if self.unusable:
            lines.append(f"Unusable from now on: {', '.join(map(str, self.unusable))}.")
        if self.left:
            lines.append(f"Not everything could be removed: {self.left}")
        return "\n".join(lines)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What IPython shows of it."""
        printer.text(str(self))


class Session:
    """A connection of this process to its own proxy; returned by :func:`pathways_jupyter.connect`.

    Call its methods on the thread that runs the user's code. As a context manager it disconnects at the end.
    """

    def __init__(self, config: ConnectConfig, link: Link, record: SessionRecord, revive: Revive | None = None) -> None:
        self.config = config
        self._revive = revive
        self._link = link
        self._record = record
        self._process = os.getpid()
        self._switch = JaxSwitch()
        self._generation = 0

    def __repr__(self) -> str:
        return f"<Session {self.id}: {self.state}, {self._record.service or 'no service'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.disconnect()

    @property
    def id(self) -> str:
        """The session's id, as ``pathways-jupyter sessions`` lists it."""
        return self._record.id

    @property
    def state(self) -> SessionState:
        """The session's state, as last reported by its supervisor."""
        return self._link.state

    @property
    def record(self) -> SessionRecord:
        """The session's record as of the last connect, with the current state and slices."""
        link = self._link
        return replace(self._record, state=link.state, state_since=link.state_since, slices=link.slices)

    def slices(self) -> dict[int, tuple[jax.Device, ...]]:
        """JAX's devices by their ``slice_index``; empty once disconnected."""
        return self._switch.slices()

    def devices(self) -> tuple[jax.Device, ...]:
        """All of JAX's devices on the TPUs, slice by slice; empty once disconnected."""
        return tuple(device for devices in self.slices().values() for device in devices)

    def events(self, since: int = 0) -> list[Event]:
        """Return the events so far, from event number `since` on; also after the session's end."""
        return self._link.events(since)

    @property
    def event_count(self) -> int:
        """The number of events so far; the `since` for the next call of :meth:`events`."""
        return self._link.count

    def follow(self, since: int = 0) -> Iterator[Event]:
        """Yield events as they arrive, until the session ends."""
        return self._link.watch(since)

    def status(self) -> SessionRecord:
        """Query the supervisor for the session's record; return the last known one if the supervisor has ended.

        Raises:
          SessionError: The supervisor does not answer.
        """
        if self._link.ended:
            return self.record
        answer = self._link.answer(self._link.ask(Method.STATUS), patience=client.ANSWER_SECONDS)
        return SessionRecord.from_json(answer)

    def reconnect(self, variables: Mapping[str, Any] | None = None) -> Switched:
        """Replace the proxy by a new one and point JAX at it; arrays on the previous one are lost.

        Blocks until JAX has the new devices. If the sidebar has already replaced the proxy, that one is used. A dead
        supervisor is replaced as well, and an embedded cluster that has ended is started again. On failure the session
        stays as it was, and reconnecting can be tried again; a KeyboardInterrupt ends the session.

        Args:
          variables: Where to look for arrays that become unusable; the notebook's or the script's own when left out.

        Returns:
          What happened to the arrays in `variables`.

        Raises:
          CapacityError: The slices are taken, and the connection's ``wait`` is over.
          SessionError: The session was disconnected, or the new proxy did not come up.
        """
        with interrupts.after_imports():
            attempt = restart(self, variables)
            try:
                for _ in attempt:
                    pass
            except KeyboardInterrupt:
                attempt.cancel()
                # Without the stack of what was waited for, which says nothing to the user.
                raise KeyboardInterrupt(f"Reconnecting was interrupted; session {self.id} is over.") from None
            return attempt.switched

    def settle(self, variables: Mapping[str, Any] | None = None) -> Switched | None:
        """Apply to JAX what happened to the session from outside; to be called between cells.

        If the sidebar or the command line disconnected it, JAX is restored; if they reconnected it, JAX is pointed at
        the new proxy; if its proxy was lost, the arrays on it are deleted.

        Returns:
          What happened to the user's arrays; None when nothing had to be done.
        """
        if not self._switch.active:
            return None
        if self.state is SessionState.CLOSED:
            return Switched(unusable=self._forget(variables))
        if self.state is SessionState.LOST:
            return self._switch.empty(self._variables(variables))
        if self.state.is_connected and self._link.generation > self._generation:
            return self._adopt(self._link, self.status(), variables)
        return None

    def disconnect(self, variables: Mapping[str, Any] | None = None) -> Ended:
        """Restore JAX and remove the proxy; no-op if the session is over.

        Args:
          variables: Where to look for arrays that become unusable; the notebook's or the script's own when left out.

        Returns:
          The arrays in `variables` that became unusable, and what could not be removed from the cluster.
        """
        if os.getpid() != self._process:
            # A forked child must not end its parent's session.
            return Ended()
        try:
            with self._switch.quiet_while_ending():
                unusable = self._switch.deactivate(self._variables(variables)).unusable
                return Ended(unusable, _finish(self._link))
        except KeyboardInterrupt:
            # Without the stack of what was waited for, which says nothing to the user.
            raise KeyboardInterrupt(
                f"Interrupted. JAX is as it was before; the proxy of session {self.id} goes on being removed."
            ) from None
        finally:
            self._forget({})

    def _forget(self, variables: Variables | None) -> tuple[NamedArray, ...]:
        global _current
        unusable = self._switch.deactivate(self._variables(variables)).unusable
        if _current is self:
            _current = None
        return unusable

    def _variables(self, given: Variables | None) -> Variables:
        """Return the variables to search for arrays; none while JAX is not switched, since the search takes time."""
        if given is None and self._switch.active:
            return process.variables()
        return given or {}

    def _adopt(self, link: Link, record: SessionRecord, variables: Variables | None) -> Switched:
        """Point JAX at the proxy of `record`."""
        self._link, self._record = link, record
        link.on_lost = self._switch.lost
        if not link.state.is_connected:
            raise SessionError("The proxy was lost before JAX had connected to it.", hint="Try again.")
        switched = self._switch.activate(
            record.target,
            secure=record.credentials == registry.ALTS,
            namespace=process.variables() if variables is None else variables,
        )
        self._generation = record.generation
        return switched


class ConnectionAttempt:
    """A connection that is being made: iterate over its events, then read :attr:`session`.

    Leaving the iteration early, by an Interrupt or otherwise, cancels the attempt: the proxy is removed, and JAX stays
    as it was.

    Attributes:
      switched: What happened to the user's arrays; set at the end.
    """

    def __init__(
        self,
        config: ConnectConfig,
        link: Link,
        request: int,
        variables: Variables | None,
        *,
        session: Session | None = None,
        since: int = 0,
        revive: Revive | None = None,
    ) -> None:
        self.config = config
        self.switched = Switched()
        self._link = link
        self._request = request
        self._variables = variables
        self._session = session
        # The session whose switch of JAX must be undone on failure. For a first connect it is set before _session is,
        # so that an Interrupt in the middle of the switch is undone too.
        self._switched = session
        self._since = since
        self._revive = revive
        self._done = False
        self._began = time.monotonic()
        self._events = self._run()

    def __del__(self) -> None:
        if not self._done and self._session is None:
            self._link.close()

    def __iter__(self) -> Iterator[Event]:
        """Return the iterator over the events until the session is connected.

        Raises:
          CapacityError: The slices are taken, and `config.wait` is over.
          PathwaysError: Any other failure.
        """
        return self._events

    @property
    def session(self) -> Session:
        """The session; blocks until it is connected.

        Raises:
          PathwaysError: See :meth:`__iter__`.
        """
        for _ in self._events:
            pass
        if self._session is None or not self._done:
            raise SessionError("Connecting was cancelled.", hint="Connect again.")
        return self._session

    def cancel(self) -> None:
        """Cancel connecting, and wait until the objects in the cluster are removed."""
        self._events.close()
        if not self._done:
            self._undo()

    def _run(self) -> Generator[Event, None, None]:
        global _current
        try:
            yield from self._link.watch(self._since, until=self._request)
            record = SessionRecord.from_json(self._link.answer(self._request))
            yield self._stage("Switching JAX to the proxy.")
            _import_jax().join()
            session = self._switched = self._session or Session(self.config, self._link, record, self._revive)
            self.switched = session._adopt(self._link, record, self._variables)
            self._session = _current = session
            yield self._stage(_what_jax_has(session), done=True)
            self._done = True
        except PathwaysError as error:
            self._done = True
            died = self._link.ended and self._link.state is SessionState.LOST
            # A failed reconnect keeps the session, without a proxy, so that it can be tried again.
            if died or self._session is None or self._session._link is not self._link:
                self._undo()
            if died:
                raise SessionError(
                    f"The session's supervisor died. {self._link.events()[-1].message}",
                    hint="Try again; pathways-jupyter doctor checks this machine for the cause.",
                ) from error
            raise
        except BaseException:
            self._undo()
            raise

    def _undo(self) -> None:
        self._done = True
        try:
            if self._switched is not None:
                self._switched.disconnect()
        finally:
            # Also when JAX cannot be restored: otherwise the proxy would hold slices that nothing uses.
            _finish(self._link)

    def _stage(self, message: str, **data: Any) -> Event:
        elapsed = round(time.monotonic() - self._began, 4)
        return Event(EventKind.STAGE, message, time.time(), {"stage": Stage.JAX, "elapsed": elapsed, **data})


_current: Session | None = None


def current() -> Session | None:
    """Return this process's session, also when its proxy is lost; None when there is none."""
    if _current is not None and _current._process == os.getpid():
        return _current
    return None


def start(
    config: ConnectConfig, variables: Variables | None = None, *, revive: Revive | None = None
) -> ConnectionAttempt:
    """Start to connect; the work is done by the supervisor, a separate process.

    Args:
      config: What to connect to. A local cluster must run already, and be named by its kubeconfig.
      variables: The user's variables, to report the arrays that the switch of devices affects.
      revive: Called before the session is reconnected.

    Raises:
      ConfigError: No slices are requested.
      SessionError: This process already has a session, or the supervisor could not be started.
    """
    if not config.instances:
        raise ConfigError("No TPU slices were requested.", hint="For example: --tpu tpuv6e:2x2=2.")
    session = current()
    if session is not None:
        raise SessionError(
            f"This process already has session {session.id} ({session.state}).",
            hint="%pathways reconnect gives it a new proxy, %pathways disconnect ends it.",
        )
    return _taken_over(config, variables, revive) or _start(config, variables, revive=revive)


def restart(session: Session, variables: Variables | None = None) -> ConnectionAttempt:
    """Start to replace the proxy of `session`; see :meth:`Session.reconnect`.

    Raises:
      SessionError: The session was disconnected.
    """
    link = session._link
    if os.getpid() != session._process:
        raise SessionError(f"Session {session.id} belongs to the process that this one was forked from.")
    if session.state in _OVER or current() is not session:
        raise SessionError(
            f"Session {session.id} was disconnected and cannot be reconnected.",
            hint="%pathways connect makes a new one.",
        )
    if session._revive is not None:
        session._revive(session.config, session.state)
    if link.ended:
        # Wait for the sweep after the dead supervisor: its proxy holds the slices that the new one needs.
        link.close(patience=CLEANUP_SECONDS)
        return _start(session.config, variables, session)
    since = link.count
    replaced = session.state.is_connected and link.generation > session._generation
    number = link.ask(Method.STATUS if replaced else Method.RECONNECT)
    return ConnectionAttempt(session.config, link, number, variables, session=session, since=since)


def connect(config: ConnectConfig, variables: Variables | None = None, *, revive: Revive | None = None) -> Session:
    """Connect, and return when JAX has its devices.

    Raises:
      CapacityError: The slices are taken, and `config.wait` is over.
      PathwaysError: Any other failure; nothing was changed.
    """
    with interrupts.after_imports():
        return start(config, variables, revive=revive).session


def _start(
    config: ConnectConfig,
    variables: Variables | None,
    session: Session | None = None,
    revive: Revive | None = None,
) -> ConnectionAttempt:
    link = spawn.supervisor()
    request = link.ask(
        Method.START,
        config=protocol.config_to_json(_located(config)),
        kernel_pid=os.getpid(),
        kernel_id=process.kernel_id(),
        notebook=process.notebook(),
    )
    _import_jax()
    return ConnectionAttempt(config, link, request, variables, session=session, revive=revive)


def _taken_over(config: ConnectConfig, variables: Variables | None, revive: Revive | None) -> ConnectionAttempt | None:
    """Take over the session that the previous kernel left lingering, if it was connected with the same `config`."""
    record = registry.find(kernel_id=process.kernel_id(), notebook=process.notebook()) if config.linger else None
    if record is None or protocol.config_from_json(record.config) != _located(config):
        return None
    link = spawn.attach(record)
    if link is None:
        return None
    _import_jax()
    return ConnectionAttempt(config, link, link.ask(Method.STATUS), variables, revive=revive)


def _located(config: ConnectConfig) -> ConnectConfig:
    """Return `config` with an absolute kubeconfig path, valid in other processes: the supervisor, a later sweep."""
    if not config.kubeconfig:
        return config
    return replace(config, kubeconfig=os.path.abspath(os.path.expanduser(config.kubeconfig)))


def _import_jax() -> threading.Thread:
    """Import JAX on its own thread, while the proxy starts: both take about as long.

    An Interrupt reaches the main thread only, so it cannot leave a module half imported for good.
    """
    thread = threading.Thread(target=_quietly_import, name="pathways-import-jax", daemon=True)
    thread.start()
    return thread


def _quietly_import() -> None:
    # An import error is raised again where JAX is used.
    with contextlib.suppress(Exception):
        from jax.extend.backend import ifrt_proxy  # noqa: F401


def _what_jax_has(session: Session) -> str:
    return f"JAX has {count(len(session.devices()), 'device')} on {count(len(session.slices()), 'slice')}."


def _finish(link: Link) -> str:
    """End the session of `link`; return what could not be removed, or an empty string."""
    patience = CLEANUP_SECONDS
    try:
        return str(link.answer(link.ask(Method.DISCONNECT), patience=CLEANUP_SECONDS)["left"])
    except SessionError:
        # The supervisor has ended, or is still working; the check below decides which.
        pass
    except KeyboardInterrupt:
        # The user does not want to wait; the supervisor continues without us.
        patience = 0.0
        raise
    finally:
        over = link.close(patience=patience)
    if over and registry.read(link.session) is None:
        return ""
    return f"Session {link.session} is still being removed; pathways-jupyter sessions lists it until it is gone."
