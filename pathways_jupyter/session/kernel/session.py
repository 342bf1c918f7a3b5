"""The session as user code in the kernel sees it.

:func:`start` returns an attempt that reports its progress; :func:`connect` is the blocking call. :func:`restart` and
:meth:`Session.reconnect` are the same pair for a new proxy. The supervisor owns everything outside the kernel; this
package only changes the kernel's own process: it starts the supervisor, switches JAX, and undoes both. A process has
one session at a time, because it has one JAX.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ConfigError, SessionError
from pathways_jupyter.base.events import Event, SessionState
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.session import client, clusters
from pathways_jupyter.session.kernel.attachment import Attachment, Ended, Variables
from pathways_jupyter.session.kernel.attempt import ConnectionAttempt, Revive
from pathways_jupyter.session.kernel.jax_switch import Switched
from pathways_jupyter.session.kernel.trace import DEFAULT_HOST_LEVEL, Options, Trace, scratch
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.session.variables import variables as client_variables

if TYPE_CHECKING:
    import jax


class Session:
    """A connection of this process to its own proxy; returned by :func:`pathways_jupyter.connect`.

    Call its methods on the thread that runs the user's code. As a context manager it disconnects at the end.
    """

    def __init__(self, config: ConnectConfig, attachment: Attachment, revive: Revive | None = None) -> None:
        self.config = config
        self._attachment = attachment
        self._revive = revive

    def __repr__(self) -> str:
        record = self.record
        where = record.service or (f"job {record.pathways_job}" if record.pathways_job else "no service")
        return f"<Session {self.id}: {self.state}, {where}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.disconnect()

    @property
    def _is_over(self) -> bool:
        # Also in a fork, which has its parent's session only in name.
        return self._attachment.undone or self._attachment.is_inherited

    @property
    def id(self) -> str:
        """The session's id, as ``pathways-jupyter sessions`` lists it."""
        return self._attachment.record.id

    @property
    def state(self) -> SessionState:
        """The session's state, as last reported by its supervisor."""
        return self._attachment.link.state

    @property
    def record(self) -> SessionRecord:
        """The session's record as of the last event of its supervisor; :meth:`status` asks."""
        return self._attachment.record

    @property
    def is_embedded(self) -> bool:
        """Whether its cluster is the embedded one."""
        return clusters.Embedded.of(self.config) is not None

    @property
    def bucket(self) -> str:
        """Its scratch location, ``gs://...``; the embedded cluster has a bucket of its own. Empty if there is none."""
        return clusters.bucket(self.config)

    def slices(self) -> dict[int, tuple[jax.Device, ...]]:
        """JAX's devices by their ``slice_index``; empty once disconnected."""
        return self._attachment.switch.slices()

    def devices(self) -> tuple[jax.Device, ...]:
        """All of JAX's devices on the TPUs, slice by slice; empty once disconnected."""
        return tuple(device for devices in self.slices().values() for device in devices)

    def events(self, since: int = 0) -> list[Event]:
        """Return the events so far, from event number `since` on; also after the session's end."""
        return self._attachment.link.events(since)

    @property
    def event_count(self) -> int:
        """The number of events so far; the `since` for the next call of :meth:`events`."""
        return self._attachment.link.count

    def follow(self, since: int = 0) -> Iterator[Event]:
        """Yield events as they arrive, until the session ends."""
        return self._attachment.link.watch(since)

    def status(self) -> SessionRecord:
        """Query the supervisor for the session's record; return the last known one if the supervisor has ended.

        Raises:
          SessionError: The supervisor does not answer.
        """
        link = self._attachment.link
        if link.ended:
            return self.record
        number = link.ask(Method.STATUS)
        try:
            return SessionRecord.from_json(link.answer(number, patience=client.ANSWER_SECONDS))
        except SessionError:
            link.forget(number)
            if link.ended:
                return self.record
            raise client.silent(self.record, Method.STATUS, client.ANSWER_SECONDS) from None

    def environment(self, *, share: bool = False) -> dict[str, str]:
        """Return the environment variables by which the JAX of another process uses this session's proxy.

        That process is a second client of the proxy, with all of its devices and arrays of its own.

        Args:
          share: Set them in this process's environment too, for every process that it starts from now on, until the
            session is disconnected.

        Raises:
          SessionError: The session has no proxy.
        """
        if self._is_over or not self.state.is_connected:
            raise SessionError(
                f"Session {self.id} has no proxy that another process could use.",
                hint=advice("{reconnect} gets a new one."),
            )
        record = self.record
        return self._attachment.children.share(record) if share else client_variables(record)

    def profile(self, to: str = "", *, device: str = "", host: int = DEFAULT_HOST_LEVEL) -> Trace:
        """Return a trace of the chips, to be taken of what runs in a block::

            with session.profile() as trace:
                step(state)
            print(trace.summary())

        Its ``start()`` and ``stop()`` do the same. What was dispatched and not waited for may be missing.

        Args:
          to: Where the hosts write it, a directory in a bucket; default: below the session's own bucket.
          device: What is recorded on the chips: ``off``, ``xla``, ``compute`` or ``sync``; default: the proxy's.
          host: What is recorded on the hosts, from 0, nothing, to 3, everything.

        Raises:
          SessionError: The session has no devices here.
        """
        if not self.has_devices:
            raise SessionError(f"Session {self.id} has no devices here.", hint=advice("{reconnect} gets new ones."))
        return Trace(self.devices()[0].client, Options(to or scratch(self.bucket), device, host))

    def reconnect(self, variables: Mapping[str, Any] | None = None) -> Switched:
        """Replace the proxy by a new one and point JAX at it; arrays on the previous one are lost.

        Blocks until JAX has the new devices. If the sidebar has already replaced the proxy, that one is used. A dead
        supervisor is replaced as well, and an embedded cluster that has ended is started again. On failure the session
        stays as it was, and reconnecting can be tried again; after a KeyboardInterrupt too.

        Args:
          variables: Where to look for arrays that become unusable; the notebook's or the script's own when left out.

        Returns:
          What happened to the arrays in `variables`.

        Raises:
          CapacityError: The slices are taken, and the connection's ``wait`` is over.
          SessionError: The session was disconnected, or the new proxy did not come up.
        """
        attempt = restart(self, variables)
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

    @property
    def has_devices(self) -> bool:
        """Whether its proxy can be used, and is the one whose devices JAX has."""
        attachment = self._attachment
        is_newest = attachment.generation == attachment.link.generation
        return self.state.is_connected and attachment.switch.active and is_newest

    def interrupted(self) -> SessionError:
        """Return what there is after :meth:`reconnect` was interrupted, as an error."""
        if self.has_devices:
            return SessionError(f"Reconnecting was interrupted; session {self.id} is connected.")
        has = "a new proxy, which JAX does not use yet" if self.state.is_connected else "no proxy"
        return SessionError(
            f"Reconnecting was interrupted; session {self.id} has {has}.", hint=advice("{reconnect} tries again.")
        )

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
        if self.state is SessionState.LOST:
            return attachment.empty(variables)
        # Also where JAX has no devices of the session, because a switch was interrupted.
        if self.state.is_connected and attachment.link.generation > attachment.generation:
            return attachment.adopt(attachment.link, self.status(), variables)
        return None

    def disconnect(self, variables: Mapping[str, Any] | None = None) -> Ended:
        """Restore JAX and remove the proxy; no-op if the session is over.

        Args:
          variables: Where to look for arrays that become unusable; the notebook's or the script's own when left out.

        Returns:
          The arrays in `variables` that became unusable, and what could not be removed from the cluster.
        """
        return self._attachment.disconnect(variables)

    def _restart(self, variables: Variables | None) -> ConnectionAttempt[Session]:
        attachment = self._attachment
        if attachment.is_inherited:
            raise SessionError(f"Session {self.id} belongs to the process that this one was forked from.")
        if self.state in {SessionState.CLOSING, SessionState.CLOSED} or current() is not self:
            raise SessionError(
                f"Session {self.id} was disconnected and cannot be reconnected.",
                hint=advice("{connect} makes a new one."),
            )
        return ConnectionAttempt(
            self.config, variables, connected=lambda _: self, attachment=attachment, revive=self._revive
        )


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


def restart(session: Session, variables: Variables | None = None) -> ConnectionAttempt[Session]:
    """Return an attempt to replace the proxy of `session`; see :meth:`Session.reconnect`.

    It does nothing before its ``with`` block.

    Raises:
      SessionError: The session was disconnected.
    """
    return session._restart(variables)


def connect(config: ConnectConfig, variables: Variables | None = None, *, revive: Revive | None = None) -> Session:
    """Connect, and return when JAX has its devices.

    Raises:
      CapacityError: The slices are taken, and `config.wait` is over.
      PathwaysError: Any other failure; nothing was changed.
    """
    return start(config, variables, revive=revive).session
