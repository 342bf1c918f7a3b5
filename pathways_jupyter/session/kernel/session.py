"""The session as user code in the kernel sees it.

:func:`attempt_connect` returns an attempt that reports its progress; :func:`connect` is the blocking call.
:meth:`Session.attempt_reconnect` and :meth:`Session.reconnect` are the same pair for a new proxy. The supervisor owns
everything outside the kernel; this package only changes the kernel's own process: it starts the supervisor, switches
JAX, and undoes both. A process has one session at a time, because it has one JAX.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from pathways_jupyter.base.config import ConnectConfig, for_next_proxy
from pathways_jupyter.base.errors import ConfigError, PathwaysError, SessionError
from pathways_jupyter.base.events import Event, SessionState
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.saved.arrays import Report
from pathways_jupyter.saved.saves import Save, Saves
from pathways_jupyter.saved.suspension import Suspension
from pathways_jupyter.service.names import current_user
from pathways_jupyter.session import client, clusters
from pathways_jupyter.session.kernel import process
from pathways_jupyter.session.kernel.attempt import ConnectionAttempt, Revive
from pathways_jupyter.session.kernel.jax_switch import Switched
from pathways_jupyter.session.kernel.kernel_side import Ended, KernelSide, Variables
from pathways_jupyter.session.kernel.suspender import Suspender
from pathways_jupyter.session.kernel.trace import DEFAULT_HOST_LEVEL, Options, Trace, scratch
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.session.variables import variables as client_variables
from pathways_jupyter.session.verdicts import Does, SessionCommand, SessionVerdict, verdict

if TYPE_CHECKING:
    import jax


class Session:
    """A connection of this process to its own proxy; returned by :func:`pathways_jupyter.connect`.

    Call its methods on the thread that runs the user's code. As a context manager it disconnects at the end.
    """

    def __init__(self, config: ConnectConfig, side: KernelSide, revive: Revive | None = None) -> None:
        self.config = config
        self.suspender = Suspender(side)
        self._side = side
        self._traces = set[Trace]()
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

    @property
    def id(self) -> str:
        """The session's id, as ``pathways-jupyter sessions`` lists it."""
        return self._side.record.id

    @property
    def state(self) -> SessionState:
        """The session's state, as last reported by its supervisor."""
        return self._side.link.state

    @property
    def record(self) -> SessionRecord:
        """The session's record as of the last event of its supervisor; :meth:`status` asks."""
        return self._side.record

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
        return "" if self._side.is_over else self._side.switch.elsewhere

    def slices(self) -> dict[int, tuple[jax.Device, ...]]:
        """JAX's devices by their ``slice_index``; empty once disconnected."""
        return self._side.switch.slices()

    def devices(self) -> tuple[jax.Device, ...]:
        """All of JAX's devices on the TPUs, slice by slice; empty once disconnected."""
        return tuple(device for devices in self.slices().values() for device in devices)

    def count_arrays(self) -> Mapping[str, int]:
        """Return the ``count`` of JAX's arrays on the TPUs, and their ``bytes``; both are 0 once disconnected.

        A new proxy costs them all. Each counts once, however many variables hold it. Arrays that only the notebook's
        history or a library keeps are counted too, those of other processes that share the session are not.
        """
        return self._side.switch.count_arrays()

    def events(self, since: int = 0) -> list[Event]:
        """Return the events so far, from event number `since` on; also after the session's end."""
        return self._side.link.events(since)

    @property
    def event_count(self) -> int:
        """The number of events so far; the `since` for the next call of :meth:`events`."""
        return self._side.link.count

    def follow(self, since: int = 0) -> Iterator[Event]:
        """Yield events as they arrive, until the session ends."""
        return self._side.link.watch(since)

    def status(self) -> SessionRecord:
        """Query the supervisor for the session's record; return the last known one if the supervisor has ended.

        Raises:
          SessionError: The supervisor does not answer.
        """
        link = self._side.link
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
        return self._side.children.share(record) if share else client_variables(record)

    @property
    def has_devices(self) -> bool:
        """Return whether its proxy can be used, and is the one whose devices JAX has."""
        return self._side.has_devices

    def has_slices_of(self, config: ConnectConfig) -> bool:
        """Return whether its proxy can be used, and has the slices that `config` asks for.

        Fewer will do where it accepted fewer, if the arrays that wait fit on them.
        """
        if not self.has_devices or config.instances == self.record.instances:
            return self.has_devices
        is_unchanged = config.instances == self.config.instances
        return is_unchanged and not self.suspender.required().misfits(len(self.slices()))

    def verdict(self, command: SessionCommand, *, arrays: str = "") -> SessionVerdict:
        """Return the answer to `command` on this session as it is now; `arrays` as for :func:`.verdicts.verdict`."""
        return verdict(self.suspender.judged, command, arrays=arrays)

    def profile(self, to: str = "", *, device: str = "", host: int = DEFAULT_HOST_LEVEL) -> Trace:
        """Return a trace of the chips, to be taken of what runs in a block::

            with session.profile() as trace:
                step(state)
            summary = trace.summary()

        Its ``start()`` and ``stop()`` do the same. What was dispatched and not waited for may be missing. It is stopped
        before its proxy is suspended, replaced or removed.

        Args:
          to: Where the hosts write it, a directory in a bucket; default: below the session's own bucket.
          device: What is recorded on the chips: ``off``, ``xla``, ``compute`` or ``sync``; default: the proxy's.
          host: What is recorded on the hosts, from 0, nothing, to 3, everything.

        Raises:
          SessionError: The session has no devices here, or a trace is being taken already.
        """
        client = self._require_devices(SessionCommand.RUN)[0].client
        if self.trace is not None:
            raise SessionError("A trace is being taken already.", hint=advice("{profile_stop} ends it."))
        return Trace(client, Options(to or scratch(self.bucket), device, host), self._traces)

    @property
    def trace(self) -> Trace | None:
        """The trace that is being taken; None if there is none."""
        return next(iter(self._traces), None)

    def end_trace(self) -> str:
        """Stop the trace that is being taken, because its proxy ends; return what became of it, empty without one."""
        trace = self.trace
        if trace is None:
            return ""
        try:
            if not self.has_devices or self.state not in {SessionState.CONNECTED, SessionState.DEGRADED}:
                self._traces.clear()
                raise SessionError("its proxy is gone, or cannot be reached.")
            trace.stop()
        except PathwaysError as error:
            return f"The trace of the chips is lost: {error}"
        return advice("The trace of the chips is stopped; {profile_show:{at}} shows it.", at=trace.location)

    @property
    def saves(self) -> Saves:
        """This user's saves in the session's bucket: ``list()`` and ``delete(name)``.

        Raises:
          ConfigError: The session has no bucket.
          LocalClusterError: It was that of an embedded cluster that has ended.
        """
        clusters.require_running(self._side.record)
        self._side.adopt_storage()
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
        all_of = variables is not None
        return self.saves.save(name, kept, devices, all_of=all_of, notebook=self.record.notebook, report=report)

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
        return self.suspender.present is not None

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

        slices, live = list(self.slices().values()), self._side.switch.live_arrays
        return Suspension(self.saves, self.suspender.next_name, slices, named, live)

    def suspend(
        self,
        variables: Mapping[str, Any] | None = None,
        *,
        suspension: Suspension | None = None,
        yes: bool | Collection[str] = False,
        report: Report | None = None,
    ) -> Suspension:
        """Save all arrays on the TPUs, then remove the proxy, so that its slices are free.

        The session stays, and :meth:`resume` puts the arrays back. An Interrupt while they are written leaves it as it
        was.

        Args:
          variables: As for :meth:`suspension`.
          suspension: The result of :meth:`suspension`, if only this package's code has run on this thread since.
          yes: Suspend also if something cannot be kept; or those of :attr:`.Suspension.unkept` that were agreed to.
          report: As for :meth:`save`.

        Raises:
          UnsavableError: Some cannot be kept.
          PathwaysError: The bucket or the hosts failed; the session is as it was.
        """
        # Also for one from before a question: the sidebar may have acted meanwhile.
        self._require_devices(SessionCommand.SUSPEND)
        suspension = suspension or self.suspension(variables)
        self.end_trace()
        self.suspender.suspend(suspension, yes=yes, report=report)
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
        config = self.suspender.settings(self.config, tpu=tpu, wait=wait)
        if not yes:
            self.suspender.require_fit(config)
        if not self.has_slices_of(config):
            self._renew(self.attempt_reconnect({}, config, resumes=True))
        return self.suspender.restore(yes=yes, report=report)

    def keep(self) -> None:
        """Count as used now, so that it is not suspended soon because nothing is computed; does not wait."""
        self._side.link.notify(Method.KEEP)

    def reconnect(
        self,
        variables: Mapping[str, Any] | None = None,
        *,
        tpu: str | Mapping[str, int] | None = None,
        wait: float | bool | None = None,
    ) -> Switched:
        """Replace the proxy by a new one and point JAX at it; arrays on the previous one are lost.

        Blocks until JAX has the new devices. If the sidebar has already replaced the proxy, that one is used. A dead
        supervisor is replaced as well, and an embedded cluster that has ended is started again. On failure the session
        stays as it was, and reconnecting can be tried again; after a KeyboardInterrupt too.

        Args:
          variables: Where to look for the names of arrays; the notebook's or the script's own when left out.
          tpu: Another number of slices of the same type; as many as before when left out.
          wait: Seconds to wait for taken slices; True waits for ever. As the session was connected when left out.

        Returns:
          What happened to the arrays: to all on the previous proxy, with the variables' names.

        Raises:
          CapacityError: The slices are taken, and the wait is over.
          ConfigError: The slices are of another type.
          SessionError: The session is suspended or was disconnected, or the new proxy did not come up.
        """
        attempt = self.attempt_reconnect(variables, for_next_proxy(self.config, tpu=tpu, wait=wait))
        self.end_trace()
        return self._renew(attempt)

    def attempt_reconnect(
        self,
        variables: Variables | None = None,
        config: ConnectConfig | None = None,
        *,
        resumes: bool = False,
    ) -> ConnectionAttempt[Session]:
        """Return an attempt to replace the proxy; see :meth:`reconnect`. It does nothing before its ``with`` block.

        Args:
          config: From :func:`.for_next_proxy`; as the session was connected when left out.
          resumes: The session is suspended, and its arrays are put back next.

        Raises:
          SessionError: The session was disconnected, or is suspended.
        """
        answer = self.verdict(SessionCommand.RECONNECT)
        # A suspended one is not: a new proxy alone would be a session without its arrays.
        if answer.does is Does.REFUSES and not resumes:
            raise answer.error()
        if self._side.is_inherited:
            raise SessionError(
                f"Session {self.id} belongs to the process that this one was forked from.",
                hint="Reconnect it there, or start this process anew (spawn) and connect in it.",
            )
        if self.state.is_over or current() is not self:
            raise answer.error()
        settings = config or self.config

        def connected(_: KernelSide) -> Session:
            # It waits as it was connected, and not as long as it was asked to this once.
            self.config = replace(settings, wait=self.config.wait)
            return self

        def revive(config: ConnectConfig, state: SessionState) -> None:
            if self._revive is not None:
                self._revive(config, state)
            if resumes:
                # Before slices are taken for them; the bucket of an embedded cluster is there again only now.
                self.suspender.require_saved()

        saved = self.suspender.judged.saved if resumes else None
        return ConnectionAttempt(settings, variables, connected=connected, side=self._side, revive=revive, saved=saved)

    def settle(self, variables: Mapping[str, Any] | None = None) -> Switched | None:
        """Apply to JAX what happened to the session from outside; to be called between cells.

        If the sidebar or the command line disconnected it, JAX is restored; if they reconnected it, JAX is pointed at
        the new proxy; if its proxy was lost, or is being replaced, the arrays on it are deleted. Arrays that were
        deleted because the user had cleared JAX's backends are reported.

        Returns:
          What happened to the user's arrays; None when nothing had to be done.
        """
        side = self._side
        if side.is_over:
            return None
        if self.state.is_over:
            return Switched(unusable=side.forget(variables))
        if not self.state.is_connected:
            return side.empty(variables)
        # Also where JAX has no devices of the session, because a switch was interrupted.
        if not side.has_newest:
            return side.adopt(side.link, self.status(), variables)
        return side.cleared()

    def disconnect(self, variables: Mapping[str, Any] | None = None) -> Ended:
        """Restore JAX and remove the proxy; no-op if the session is over.

        Args:
          variables: Where to look for the names of arrays; the notebook's or the script's own when left out.

        Returns:
          All arrays on the TPUs, which became unusable, and what could not be removed from the cluster.
        """
        try:
            self.end_trace()
        finally:
            ended = self._side.disconnect(variables)
        return ended

    def interrupted(self) -> SessionError:
        """Return what there is after :meth:`reconnect` or :meth:`resume` was interrupted, as an error."""
        if self.is_suspended:
            error = f"Resuming was interrupted; {self._description()}."
            return SessionError(error, hint=advice("{resume} tries again."))
        return SessionError(
            f"Reconnecting was interrupted; {self._description()}.",
            hint="" if self.has_devices else advice("{reconnect} tries again."),
        )

    def _description(self) -> str:
        if self.has_devices:
            return f"session {self.id} is connected"
        has = "a new proxy, which JAX does not use yet" if self.state.is_connected else "no proxy"
        return f"session {self.id} has {has}"

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

    def _require(self, command: SessionCommand) -> None:
        """Check that `command` can act, though JAX may have to wait for an interrupted connection.

        Raises:
          SessionError: It cannot.
        """
        answer = self.verdict(command)
        if not answer.acts and not (answer.does is Does.WAITS and self.state is SessionState.INTERRUPTED):
            raise answer.error()

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


_current: Session | None = None


def current() -> Session | None:
    """Return this process's session, also when its proxy is lost; None when there is none."""
    global _current
    if _current is not None and _current._side.is_over:
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

    def connected(side: KernelSide) -> Session:
        global _current
        _current = Session(config, side, revive)
        return _current

    return ConnectionAttempt(config, variables, connected=connected)


def connect(config: ConnectConfig, variables: Variables | None = None, *, revive: Revive | None = None) -> Session:
    """Connect, and return when JAX has its devices.

    Raises:
      CapacityError: The slices are taken, and `config.wait` is over.
      PathwaysError: Any other failure; nothing was changed.
    """
    return attempt_connect(config, variables, revive=revive).session
