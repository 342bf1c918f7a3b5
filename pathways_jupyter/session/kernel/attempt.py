"""One attempt to connect or to reconnect: its progress, its result, and how it is undone."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, replace
from typing import Any, Generic, Self, TypeVar

from pathways_jupyter.base import interrupts
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ConfigError, PathwaysError, SessionError
from pathways_jupyter.base.events import Event, EventKind, SessionState, Stage, SuspendedArrays
from pathways_jupyter.base.text import absolute_path, count, without_infinity
from pathways_jupyter.session import native_environment, protocol, registry
from pathways_jupyter.session.kernel import jax_internals, process, spawn
from pathways_jupyter.session.kernel.jax_switch import Switched
from pathways_jupyter.session.kernel.kernel_side import CLEANUP_SECONDS, KernelSide, Variables, finish
from pathways_jupyter.session.kernel.supervisor_link import SupervisorLink
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.session.variables import PLATFORMS, TARGET

Revive = Callable[[ConnectConfig, SessionState], None]
"""Sees that the cluster of a session in this state runs; what starts the embedded one is above this module."""

S = TypeVar("S")

_Asked = tuple[SupervisorLink, int, int]
"""Whom it has asked, the number of the request that is answered with the session's record, and that of the first event
to report."""

_imported = interrupts.InterruptibleEvent()
"""Set while no thread imports JAX; replaced by each that does."""
_imported.set()
_import_errors: list[Exception] = []
"""The first one says why; the next import finds a part of JAX, and fails with something else."""
_UNCHECKED = {PLATFORMS, TARGET, "JAX_COMPILATION_CACHE_DIR"}
"""Variables of JAX that have any text; the others end its import if they cannot be read."""


class ConnectionAttempt(Generic[S]):
    """A connection to be made: iterate over its events in a ``with`` block of it, then read :attr:`session`.

    Leaving the block early, by an Interrupt or otherwise, cancels the attempt: the new proxy is removed. After a first
    connect JAX is as it was; a session that was being reconnected stays, without a proxy, or with the new one if that
    was complete already. In the block, an Interrupt is counted and acts at the next wait: at once while the proxy
    starts, and after the import of JAX and the switch of its devices, which nothing should leave half done. A further
    one ends the wait for what is being removed.

    Args:
      config: What to connect to.
      variables: The user's variables, to report the arrays that the switch of devices affects.
      connected: Called when JAX has its devices; returns the session.
      side: That of the session to reconnect; None for a first connect. A failure leaves that session as it was, so that
        it can be tried again.
      revive: Called before the session is reconnected, when the block is entered.
      saved: The session's arrays, which are put back next.

    Attributes:
      switched: What happened to the user's arrays; set at the end.
    """

    def __init__(
        self,
        config: ConnectConfig,
        variables: Variables | None,
        *,
        connected: Callable[[KernelSide], S],
        side: KernelSide | None = None,
        revive: Revive | None = None,
        saved: SuspendedArrays | None = None,
    ) -> None:
        self.switched = Switched()
        self._config = config
        self._variables = variables
        self._connected = connected
        self._revive = revive
        self._saved = saved
        self._before = side
        # That of a first connect, once the switch of JAX begins, so that a failure in the middle is undone.
        self._side: KernelSide | None = None
        # The connection to the supervisor that was asked for a proxy; not the side's own while a dead supervisor
        # is being replaced.
        self._link: SupervisorLink | None = None
        # The number of the request to the session's own supervisor for a new proxy.
        self._request = 0
        self._session: S | None = None
        self._done = False
        self._counting = contextlib.ExitStack()
        # What could not be removed after a first connect.
        self._left = ""
        self._events = self._run()

    def __iter__(self) -> Iterator[Event]:
        """Return the iterator over the events until the session is connected.

        Raises:
          CapacityError: The slices are taken, and the connection's ``wait`` is over.
          PathwaysError: Any other failure.
        """
        return self._events

    @property
    def session(self) -> S:
        """The session; blocks until it is connected.

        Raises:
          PathwaysError: See :meth:`__iter__`.
        """
        if not self._done:
            with self:
                for _ in self._events:
                    pass
        if self._session is None:
            raise SessionError("Connecting was cancelled.", hint="Connect again.")
        return self._session

    def __enter__(self) -> Self:
        if self._revive is not None and self._before is not None:
            self._revive(self._config, self._before.link.state)
        self._counting.enter_context(interrupts.count_sigint())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Cancel the attempt unless it has come to its end.

        Raises:
          KeyboardInterrupt: It was interrupted, and something could not be removed, which the message says.
        """
        with self._counting:
            if not self._done:
                self.cancel()
        if self._left and isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(self._left) from None

    def cancel(self) -> None:
        """Cancel connecting, and wait until its objects are removed; a session that is being reconnected stays."""
        self._events.close()
        if not self._done:
            self._undo()

    def _run(self) -> Generator[Event, None, None]:
        before = self._before
        try:
            link, request, since = self._ask()
            began = time.monotonic()
            # While the new proxy starts. What is suspended is moved with its arrays, when these are read.
            placed = before.placed() if before is not None and before.record.saved is None else None
            yield from link.watch(since, until=request)
            record = SessionRecord.from_json(link.answer(request))
            yield _stage("Switching JAX to the proxy.", began)
            _complete_import()
            side = before
            if side is None:
                side = self._side = KernelSide(link, record)
            self.switched = side.adopt(link, record, self._variables, placed)
            session = self._connected(side)
            slices = side.switch.slices()
            devices = sum(map(len, slices.values()))
            yield _stage(f"JAX has {count(devices, 'device')} on {count(len(slices), 'slice')}.", began, done=True)
            # Before it counts as done: an Interrupt that was counted during the switch acts here.
            interrupts.raise_if_interrupted()
            self._session = session
            self._done = True
        except PathwaysError as error:
            self._done = True
            if self._link is None:
                # No supervisor was asked, so nothing has changed.
                raise
            died = self._link.ended and self._link.state is SessionState.LOST
            # A failed reconnect keeps the session, without a proxy, so that it can be tried again.
            if before is None or before.link is not self._link:
                self._undo()
            # Who pressed Interrupt must not get an error instead, which a loop around this would try again.
            interrupts.raise_if_interrupted()
            if died:
                raise SessionError(
                    f"The session's supervisor died. {self._link.events()[-1].message}",
                    hint="Try again; pathways-jupyter doctor checks this machine for the cause.",
                ) from error
            raise
        except BaseException:
            self._undo()
            raise

    def _ask(self) -> _Asked:
        """Ask the session's supervisor for a proxy: a running one, the one that the previous kernel left, or a new one.

        Every link is kept before it is asked for anything, so that an Interrupt can undo what it was asked for.
        """
        native_environment.check(has_clients=jax_internals.has_clients())
        if "jax" not in sys.modules and any(each.startswith("JAX_") for each in os.environ.keys() - _UNCHECKED):
            # Usually it is imported while the proxy starts. Here it may fail, and nothing is created for that.
            _complete_import()
        own = self._ask_own(self._before) if self._before is not None else self._ask_lingering()
        return own or self._ask_new()

    def _ask_lingering(self) -> _Asked | None:
        """Ask the supervisor that the previous kernel has left; None if there is none."""
        link = self._link = _take_over_lingering(self._config)
        if link is None:
            return None
        import_jax()
        if link.state.is_connected:
            return link, link.ask(Method.STATUS), 0
        # Its proxy was lost while there was no kernel, or is being replaced.
        return link, link.ask(Method.RECONNECT), link.count

    def _ask_own(self, side: KernelSide) -> _Asked | None:
        """Ask the supervisor that this kernel has already; None if it has died."""
        link = side.link
        if link.ended:
            # Wait for the sweep after it: its proxy holds the slices that the new one needs.
            link.close(patience=CLEANUP_SECONDS)
            return None
        self._link, since = link, link.count
        if link.state.is_connected and not side.has_newest:
            self._request = link.ask(Method.STATUS)
        else:
            # They may be others than when it was connected.
            changes = without_infinity({"wait": self._config.wait, "instances": self._config.instances})
            self._request = link.ask(Method.RECONNECT, **changes)
        return link, self._request, since

    def _ask_new(self) -> _Asked:
        """Ask a new supervisor."""
        link = self._link = spawn.supervisor()
        request = link.ask(
            Method.START,
            config=protocol.config_to_json(_with_absolute_paths(self._config)),
            kernel_pid=os.getpid(),
            kernel_id=process.kernel_id(),
            notebook=process.notebook(),
            **({"saved": asdict(self._saved)} if self._saved is not None else {}),
            # A supervisor that was started in advance has those of then.
            environment=dict(os.environ),
            directory=process.directory(),
        )
        import_jax()
        return link, request, 0

    @interrupts.count_sigint(cleanup=True)
    def _undo(self) -> None:
        self._done = True
        link, before = self._link, self._before
        if link is None:
            return
        if before is not None and link is before.link:
            try:
                # The supervisor may be gone, or be busy; it removes what it has made in any case.
                with contextlib.suppress(PathwaysError):
                    link.request(Method.CANCEL, patience=CLEANUP_SECONDS)
            finally:
                link.forget(self._request)
            return
        link.end_unless_begun()
        if self._side is not None:
            self._left = self._side.disconnect().left
        else:
            # JAX does not use its proxy yet. A session that was being reconnected keeps its dead supervisor, as before.
            self._left = finish(link)


def import_jax() -> interrupts.InterruptibleEvent:
    """Import JAX on its own thread, while the proxy starts: both take about as long; return its end.

    An Interrupt reaches the main thread only, so it cannot leave a module half imported for good. A process that ends
    meanwhile waits for it.
    """

    global _imported
    _imported = imported = interrupts.InterruptibleEvent()

    def run() -> None:
        try:
            from jax.extend.backend import ifrt_proxy  # noqa: F401
        except Exception as error:
            _import_errors.append(error)
        finally:
            imported.set()

    # Not a daemon: one that is in C++ code, as it is in most of this import, makes the end of the process an abort. So
    # a script whose connection is refused ends when JAX is imported.
    try:
        threading.Thread(target=run, name="pathways-import-jax").start()
    except RuntimeError:
        # There are too many threads: nothing would end the wait for this one.
        imported.set()
        raise
    return imported


def _complete_import() -> None:
    """Wait until JAX is imported.

    Raises:
      ConfigError: It cannot be imported.
      KeyboardInterrupt: Interrupts are counted here, and there was one.
    """
    import_jax().wait()
    if not _import_errors:
        return
    error = _import_errors[0]
    if isinstance(error, ImportError):
        hint = "Install jax and jaxlib in this environment, of the same version."
    else:
        hint = "It reads variables named JAX_...: correct that one, then restart this kernel or script."
    raise ConfigError(f"JAX cannot be imported here: {str(error).rstrip('.')}.", hint=hint) from error


def give_up(error: KeyboardInterrupt) -> str:
    """End what was started in advance for a first connect that `error` has ended; return what to say of it."""
    spawn.discard()
    return f"Connecting was interrupted. {str(error) or 'Everything that it had created was removed.'}"


def until_imported() -> None:
    """Wait until JAX, if its import has begun, is imported.

    For a script that a KeyboardInterrupt will end. It would wait later, but its exit code would not say that it was
    interrupted if another thread still executes code from a string, which this import does: CPython notes in one place
    for all threads whether the last such code was interrupted.
    """
    _imported.wait()


def _stage(message: str, began: float, **data: Any) -> Event:
    elapsed = round(time.monotonic() - began, 4)
    return Event(EventKind.STAGE, message, time.time(), {"stage": Stage.JAX, "elapsed": elapsed, **data})


def _take_over_lingering(config: ConnectConfig) -> SupervisorLink | None:
    """Take over the session that the previous kernel left lingering, if it was connected with the same `config`."""
    record = registry.find(kernel_id=process.kernel_id(), notebook=process.notebook()) if config.linger else None
    if record is None or protocol.config_from_json(record.config) != _with_absolute_paths(config):
        return None
    return spawn.attach(record)


def _with_absolute_paths(config: ConnectConfig) -> ConnectConfig:
    """Return `config` with a kubeconfig path that is valid in other processes: the supervisor, a later sweep."""
    if not config.kubeconfig:
        return config
    return replace(config, kubeconfig=str(absolute_path(config.kubeconfig)))
