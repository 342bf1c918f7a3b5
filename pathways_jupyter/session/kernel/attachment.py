"""Attachment of this process to a session's proxy: the link to the supervisor, and the switch of JAX; what both know.

An attachment is made for a first connect, gets a new proxy with every reconnect, and is undone once, by
:meth:`Attachment.disconnect` or when the session was ended from outside.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import PathwaysError, SessionError
from pathways_jupyter.base.events import Event, EventKind, SessionState, Transfer
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import count, size
from pathways_jupyter.saved import on_devices
from pathways_jupyter.saved.arrays import Report
from pathways_jupyter.session import client, clusters, registry
from pathways_jupyter.session.kernel import process
from pathways_jupyter.session.kernel.jax_switch import JaxSwitch, Switched
from pathways_jupyter.session.kernel.storage import AdoptedStorage
from pathways_jupyter.session.kernel.supervisor_link import SupervisorLink
from pathways_jupyter.session.kernel.trace import DEFAULT_HOST_LEVEL, Options, Trace, scratch
from pathways_jupyter.session.kernel.user_arrays import NamedArray, described
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.session.variables import ChildEnvironment
from pathways_jupyter.session.variables import variables as client_variables
from pathways_jupyter.session.verdicts import Does, SessionCommand, SessionVerdict, verdict

if TYPE_CHECKING:
    import jax

CLEANUP_SECONDS = 20.0
"""Longest wait for a session to end; afterwards the supervisor continues on its own."""

Variables = Mapping[str, Any]


@dataclass(frozen=True)
class Ended:
    """The result of ending a session.

    Attributes:
      unusable: All arrays whose devices are gone, each once.
      left: What could not be removed from the cluster, and why; empty when nothing is left.
    """

    unusable: tuple[NamedArray, ...] = ()
    left: str = ""

    def __str__(self) -> str:
        lines = ["The session is over."]
        if self.unusable:
            lines.append(f"{count(len(self.unusable), 'array')} became unusable: {described(self.unusable)}.")
        if self.left:
            lines.append(f"Not everything could be removed: {self.left}")
        return "\n".join(lines)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Return what IPython shows of it."""
        printer.text(str(self))


class Attachment:
    """This process's end of a session.

    Attributes:
      link: The connection to the supervisor; another one once a dead supervisor has been replaced.
      switch: What points JAX at the proxy.
      children: What points the processes that this one starts at the proxy.
      handlers: Those of the supervisor's requests; see :attr:`.SupervisorLink.handlers`.
      undone: Whether JAX was restored for good.
      on_transfer: Called on any thread when more of the arrays is written or read, to suspend or to resume.
    """

    def __init__(self, link: SupervisorLink) -> None:
        self.link = link
        self.switch = JaxSwitch()
        self.children = ChildEnvironment()
        self.handlers: dict[Method, Callable[..., Any]] = {Method.ARRAYS: self.switch.count_arrays}
        self.on_transfer: Callable[[], object] = lambda: None
        self._storage = AdoptedStorage()
        self.undone = False
        # Session and generation of the proxy that JAX was pointed at last. A supervisor that has replaced a dead one
        # has another session, and counts from 1 again.
        self._adopted = ("", 0)
        self._process = os.getpid()
        self._record: SessionRecord | None = None
        self._transfer: Transfer | None = None

    @property
    def is_inherited(self) -> bool:
        """Return whether this process is a fork of the one that connected; it must leave its parent's session alone."""
        return os.getpid() != self._process

    @property
    def record(self) -> SessionRecord:
        """The session's record as of the last event."""
        assert self._record is not None, "not connected yet"
        link = self.link
        present: dict[str, Any] = {"state": link.state, "state_since": link.state_since, "slices": link.slices}
        return replace(self._record, **present, **link.unused, transfer=self._transfer, **link.of_proxy)

    @property
    def has_newest(self) -> bool:
        """Return whether the proxy that JAX was pointed at last is the session's newest."""
        return self._adopted == (self.link.session, self.link.generation)

    def adopt(self, link: SupervisorLink, record: SessionRecord, variables: Variables | None) -> Switched:
        """Point JAX at the proxy of `record`.

        Raises:
          SessionError: The proxy is lost already.
        """
        self.link, self._record = link, record
        link.on_lost, link.handlers = self.switch.lost, self.handlers
        if not link.state.is_connected:
            raise SessionError("The proxy was lost before JAX had connected to it.", hint="Try again.")
        before = list(self.switch.slices().values())
        switched = self.switch.activate(
            record.target,
            secure=record.credentials == registry.ALTS,
            namespace=process.variables() if variables is None else variables,
        )
        if before and record.saved is None:
            # Meshes and jitted functions go on to work; of arrays there is nothing to move. Resuming moves all.
            on_devices.move(before, list(self.switch.slices().values()), {})
        self._record_lost(switched.unusable)
        self._storage.adopt(clusters.Storage.of(record))
        self.children.follow(record)
        # Last, so that after an interrupt anywhere above, the same proxy can be adopted once more.
        self._adopted = (record.id, record.generation)
        return switched

    def remember(self, answer: Mapping[str, Any]) -> None:
        """Take the record that the supervisor has answered with as the session's."""
        self._record = SessionRecord.from_json(answer)

    @contextlib.contextmanager
    def transferring(self, report: Report | None) -> Iterator[Report]:
        """Context manager over what reports how far arrays are, also to the supervisor, which counts until its end.

        A supervisor that knows by then that the session is suspended, or its arrays back, takes no notice of the end.

        Args:
          report: Called with the same.
        """

        def reported(what: str, how_far: Transfer | str) -> None:
            if isinstance(how_far, Transfer):
                self._transfer = how_far
                self.link.notify(Method.TRANSFER, **asdict(how_far))
                self.on_transfer()
            if report is not None:
                report(what, how_far)

        try:
            yield reported
        finally:
            self._transfer = None
            # Answered before the caller goes on, and finds the state that it is in then.
            with contextlib.suppress(PathwaysError):
                self.link.request(Method.TRANSFER, patience=client.ANSWER_SECONDS)

    def cleared(self) -> Switched | None:
        """Return which arrays were deleted because the user had cleared JAX's backends, once; None if none was."""
        unusable = self.switch.take_cleared()
        self._record_lost(unusable)
        return Switched(unusable=unusable, cleared=True) if unusable else None

    def empty(self, variables: Variables | None) -> Switched | None:
        """Delete the arrays on a lost proxy; None when that was done before."""
        switched = self.switch.empty(self._searched(variables))
        # Those of a suspended session are saved.
        if switched is not None and self.link.state is not SessionState.SUSPENDED:
            self._record_lost(switched.unusable)
        return switched

    def _record_lost(self, arrays: Sequence[NamedArray]) -> None:
        """Add to the session's events how many arrays were lost, if its supervisor is there to do so."""
        if not arrays:
            return
        lost = {"count": len(arrays), "bytes": sum(each.nbytes for each in arrays)}
        message = f"Lost arrays: {lost['count']}, {size(lost['bytes'])}."
        event = Event(EventKind.ARRAYS_LOST, message, data=lost)
        self.link.notify(Method.RECORD, events=[event.to_json()])

    def forget(self, variables: Variables | None) -> tuple[NamedArray, ...]:
        """Restore JAX, and leave the supervisor alone; return the arrays that became unusable."""
        self.children.restore()
        self._storage.restore()
        unusable = self.switch.deactivate(self._searched(variables)).unusable
        self.undone = True
        return unusable

    def disconnect(self, variables: Variables | None = None) -> Ended:
        """Restore JAX, and end the session; see :meth:`.session.Session.disconnect`."""
        if self.is_inherited:
            return Ended()
        try:
            with self.switch.quiet_while_ending():
                unusable = self.switch.deactivate(self._searched(variables)).unusable
                self._record_lost(unusable)
                return Ended(unusable, finish(self.link))
        except BaseException as error:
            # Also where the supervisor was not asked yet: the proxy would hold slices that nothing uses.
            finish(self.link, patience=0.0)
            if not isinstance(error, KeyboardInterrupt):
                raise
            # Without the stack of what was waited for, which says nothing to the user.
            session = self.link.session
            raise KeyboardInterrupt(
                f"Interrupted. JAX is as it was before; the proxy of session {session} is still being removed."
            ) from None
        finally:
            self.forget({})

    def _searched(self, given: Variables | None) -> Variables:
        """Return the variables to search for arrays; none while JAX is not switched, since the search takes time."""
        if given is None and self.switch.active:
            return process.variables()
        return given or {}


class AttachedSession:
    """Knowledge of this process about its session, and its supervisor."""

    def __init__(self, config: ConnectConfig, attachment: Attachment) -> None:
        self.config = config
        self._attachment = attachment

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
        """Return whether its cluster is the embedded one."""
        return clusters.Embedded.of(self.config) is not None

    @property
    def bucket(self) -> str:
        """Its scratch location, ``gs://...``; the embedded cluster has a bucket of its own. Empty if there is none."""
        return clusters.bucket(self.config)

    @property
    def elsewhere(self) -> str:
        """The platform on which JAX computes by default instead of the TPUs; empty if on them, or once disconnected."""
        return "" if self._is_over else self._attachment.switch.elsewhere

    def slices(self) -> dict[int, tuple[jax.Device, ...]]:
        """JAX's devices by their ``slice_index``; empty once disconnected."""
        return self._attachment.switch.slices()

    def devices(self) -> tuple[jax.Device, ...]:
        """All of JAX's devices on the TPUs, slice by slice; empty once disconnected."""
        return tuple(device for devices in self.slices().values() for device in devices)

    def count_arrays(self) -> Mapping[str, int]:
        """Return the ``count`` of JAX's arrays on the TPUs, and their ``bytes``; both are 0 once disconnected.

        A new proxy costs them all. Each counts once, however many variables hold it. Arrays that only the notebook's
        history or a library keeps are counted too, those of other processes that share the session are not.
        """
        return self._attachment.switch.count_arrays()

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
        try:
            return SessionRecord.from_json(link.request(Method.STATUS, patience=client.ANSWER_SECONDS))
        except SessionError:
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
        self._require(SessionCommand.RUN)
        record = self.record
        return self._attachment.children.share(record) if share else client_variables(record)

    @property
    def has_devices(self) -> bool:
        """Return whether its proxy can be used, and is the one whose devices JAX has."""
        attachment = self._attachment
        return self.state.is_connected and attachment.switch.active and attachment.has_newest

    def verdict(self, command: SessionCommand, *, arrays: str = "") -> SessionVerdict:
        """Return the answer to `command` on this session as it is now; `arrays` as for :func:`.verdicts.verdict`."""
        return verdict(self._judged, command, arrays=arrays)

    @property
    def _judged(self) -> SessionRecord:
        """The record by which it is judged what a command does."""
        return replace(self.record, state=SessionState.CLOSED) if self._is_over else self.record

    def _require(self, command: SessionCommand) -> None:
        """Check that `command` can act, though JAX may have to wait for an interrupted connection.

        Raises:
          SessionError: It cannot.
        """
        found = self.verdict(command)
        if not found.acts and not (found.does is Does.WAITS and self.state is SessionState.INTERRUPTED):
            raise found.error()

    def _require_devices(self, command: SessionCommand) -> tuple[jax.Device, ...]:
        """Return the devices, with which `command` can act.

        Raises:
          SessionError: It cannot act.
        """
        self._require(command)
        if not self.has_devices:
            # A switch of devices was interrupted.
            raise SessionError(
                f"{self._description()[:1].upper()}{self._description()[1:]}.",
                hint=advice("{reconnect} makes JAX use it."),
            )
        return self.devices()

    def interrupted(self) -> SessionError:
        """Return what there is after :meth:`reconnect` was interrupted, as an error."""
        return SessionError(
            f"Reconnecting was interrupted; {self._description()}.",
            hint="" if self.has_devices else advice("{reconnect} tries again."),
        )

    def _description(self) -> str:
        if self.has_devices:
            return f"session {self.id} is connected"
        has = "a new proxy, which JAX does not use yet" if self.state.is_connected else "no proxy"
        return f"session {self.id} has {has}"

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
        return Trace(
            self._require_devices(SessionCommand.RUN)[0].client, Options(to or scratch(self.bucket), device, host)
        )


def finish(link: SupervisorLink, *, patience: float = CLEANUP_SECONDS) -> str:
    """End the session of `link`; return what could not be removed, or an empty string.

    Args:
      patience: Longest wait in seconds; the supervisor continues on its own.
    """
    try:
        try:
            return str(link.request(Method.DISCONNECT, patience=patience)["left"])
        except SessionError:
            # The supervisor has ended, or is still working; the check below decides which.
            pass
        except KeyboardInterrupt:
            # The user does not want to wait; the supervisor continues without us.
            patience = 0.0
            raise
        finally:
            over = link.close(patience=patience)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_unfinished(link)) from None
    return "" if over and registry.read(link.session) is None else _unfinished(link)


def _unfinished(link: SupervisorLink) -> str:
    return f"Session {link.session} is still being removed; pathways-jupyter sessions lists it until it is gone."
