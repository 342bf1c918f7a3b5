"""Point a running kernel's JAX at a proxy, and restore it later.

JAX decides on its devices once, at first use. Switching later means clearing its caches and its table of clients. The
previous clients are kept and stay in that table behind the proxy, so arrays on them remain usable while connected, and
disconnecting restores the same objects.

The table has no public API. The private names that are used are listed in `jax_internals` and checked before anything
changes, so a JAX that has moved one raises an error instead of being half switched.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.base import interrupts
from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.service.names import INSECURE_CREDENTIALS
from pathways_jupyter.session.kernel import device_puts, jax_internals, jax_platform, silenced_logs, user_arrays
from pathways_jupyter.session.kernel.jax_internals import Internals
from pathways_jupyter.session.kernel.jax_platform import InitializeGuard
from pathways_jupyter.session.kernel.user_arrays import NamedArray, all_of, live, on_client, size_of, uncommitted_arrays
from pathways_jupyter.session.variables import PLATFORM

_Outcome = queue.SimpleQueue[tuple[Any, str]]
"""Carries the client from the thread that makes it, or the reason why there is none."""


@dataclass(frozen=True)
class Switched:
    """The effect of a switch of devices on the user's arrays.

    Attributes:
      unusable: All arrays whose devices are gone, each once.
      left: They stay on their devices, which are no longer the default ones; ``jax.device_put(x, device)`` moves one.
      cleared: Whether it was the user who cleared JAX's backends; the proxy is the same.
    """

    unusable: tuple[NamedArray, ...] = ()
    left: tuple[NamedArray, ...] = ()
    cleared: bool = False


@dataclass(frozen=True)
class _JaxState:
    """JAX's state before the switch: clients (none if it was not initialized), settings and ``proxy`` factory.

    Attributes:
      guard: Undoes the changes that ``pathwaysutils.initialize()`` makes from here on.
    """

    guard: InitializeGuard
    clients: Mapping[str, Any]
    default: Any
    errors: Mapping[str, str]
    factory: Any
    platforms: str | None
    platform_name: str
    target: str | None


class JaxSwitch:
    """Points JAX at one proxy after the other, until :meth:`deactivate`.

    Except for :meth:`lost`, call all methods on the thread that runs the user's code: another thread would remove the
    devices of a running computation.
    """

    def __init__(self) -> None:
        self._replaced: _JaxState | None = None
        self._client: Any = None
        self._silenced: silenced_logs.SilencedLogs | None = None
        self._emptied = False
        self._outcome: _Outcome | None = None
        self._used = False
        self._cleared: list[NamedArray] = []

    def quiet_while_ending(self) -> contextlib.AbstractContextManager[None]:
        """Keep JAX's C++ side from logging inside the block, in which the proxy is removed.

        A client that is still referenced (by the traceback of an interrupt, for example) logs when its connection ends.
        That may be later than the end of the silence that :meth:`deactivate` leaves behind.
        """
        return silenced_logs.silenced() if self._used else contextlib.nullcontext()

    @property
    def active(self) -> bool:
        """Return whether JAX's default devices are the proxy's."""
        return self._replaced is not None

    @property
    def elsewhere(self) -> str:
        """The platform on which JAX computes by default instead of the proxy's devices; empty if it uses those.

        The user may have changed JAX's settings, and cleared its backends, to get other devices for a while.
        """
        import jax

        if self._client is None:
            return ""
        chosen, used = jax.config.jax_default_device, jax_internals.load().bridge._default_backend
        if chosen is not None:
            name = chosen if isinstance(chosen, str) else "" if chosen.client is self._client else chosen.platform
            return "" if name == PLATFORM else str(name)
        if used is not None:
            return "" if used is self._client else str(used.platform)
        # Its backends were cleared: at its next use it makes those of its settings.
        first = (jax.config.jax_platforms or "").partition(",")[0]
        return "" if first == PLATFORM else first or "its default devices"

    def take_cleared(self) -> tuple[NamedArray, ...]:
        """Return the arrays that became unusable when the user had cleared JAX's backends, once."""
        cleared, self._cleared = self._cleared, []
        return tuple(cleared)

    def slices(self) -> dict[int, tuple[Any, ...]]:
        """Return the proxy's devices by slice index; empty while inactive."""
        by_slice: dict[int, list[Any]] = {}
        for device in self._client.devices() if self._client is not None else ():
            by_slice.setdefault(getattr(device, "slice_index", 0), []).append(device)
        return {index: tuple(by_slice[index]) for index in sorted(by_slice)}

    def activate(
        self,
        target: str,
        *,
        secure: bool = False,
        timeout: float = 60.0,
        namespace: Mapping[str, Any] | None = None,
    ) -> Switched:
        """Make the proxy at `target` JAX's default, in place of the previous one if there is one.

        Args:
          target: ``grpc://unix:PATH`` of a socket that only this user can open, or ``grpc://HOST:PORT`` in the cluster
            that this process runs in.
          secure: Use JAX's default credentials, which are ALTS; otherwise the channel is plaintext.
          timeout: Seconds to wait for the proxy's first answer.
          namespace: The user's variables, to report the affected arrays.

        Raises:
          SessionError: The proxy does not answer, or this version of JAX cannot be switched; nothing was changed.
        """
        internals = jax_internals.load()
        self._used = True
        silence, client = silenced_logs.SilencedLogs(), None
        try:
            self._outcome = queue.SimpleQueue()
            try:
                client = _make_client(target, timeout, self._outcome, secure=secure)
            finally:
                self._outcome = None
            state = self._replaced or _present_state(internals)
            variables = namespace or {}
            switched = Switched(
                unusable=self._all_arrays(variables),
                left=tuple(uncommitted_arrays(state.clients.values(), variables) if not self._replaced else ()),
            )
            retired = self._retire()
            try:
                # Set these before JAX is touched: wherever this is interrupted from here on, deactivate() can undo it.
                self._client, self._replaced, self._silenced = client, state, silence
                _clear(internals)
                _point(internals, client, state, target, lambda: self._replace_cleared(target, timeout, secure=secure))
                device_puts.ask_layouts(client)
            except BaseException:
                self._client = self._silenced = None
                _restore(internals, state)
                self._replaced = None
                raise
            finally:
                retired()
        except BaseException:
            silence.end(client)
            raise
        return switched

    def _replace_cleared(self, target: str, timeout: float, *, secure: bool) -> Any:
        """Return another client of the same proxy, after the user has cleared JAX's backends.

        It numbers its arrays from 1 again, so that those of the previous one could stand for others: they are deleted.
        JAX calls this with its table of clients locked, so nothing here may run the user's code.
        """
        if self._client is not None:
            self._cleared += [NamedArray("", each.shape, str(each.dtype), size_of(each)) for each in live(self._client)]
            # Before there is another client, whose arrays may get the numbers of these.
            _invalidate(self._client)
        self._client = _make_client(target, timeout, queue.SimpleQueue(), secure=secure)
        device_puts.ask_layouts(self._client)
        return self._client

    def count_arrays(self) -> dict[str, int]:
        """Return the ``count`` and ``bytes`` of all arrays on the proxy's devices; callable from any thread.

        Also of those that only a library or the notebook's history keeps. Replicas are not counted.
        """
        client = self._client
        sizes = [] if client is None else [size_of(each) for each in live(client)]
        return {"count": len(sizes), "bytes": sum(sizes)}

    def live_arrays(self) -> list[Any]:
        """Return all arrays on the proxy's devices, also those inside others; callable from any thread."""
        client = self._client
        return [] if client is None else on_client(client)

    def _all_arrays(self, namespace: Mapping[str, Any] | None) -> tuple[NamedArray, ...]:
        """Return all arrays on the proxy's devices, with the names that they have in `namespace`; none without one."""
        return () if self._client is None or namespace is None else all_of(self._client, namespace)

    def lost(self, reason: str) -> None:
        """Handle the loss of the proxy; may be called on any thread.

        An :meth:`activate` that waits for its answer fails.
        """
        outcome, client = self._outcome, self._client
        if outcome is not None:
            outcome.put((None, reason))
        if client is not None:
            device_puts.forbid(client)

    def empty(self, namespace: Mapping[str, Any] | None = None) -> Switched | None:
        """Invalidate the arrays and devices of a lost proxy; they stay JAX's default ones, and fail when used.

        Args:
          namespace: The user's variables, to report the arrays; without it none are.

        Returns:
          What happened to the user's arrays; None if it was done before.
        """
        if self._client is None or self._emptied:
            return None
        switched = Switched(unusable=self._all_arrays(namespace))
        _invalidate(self._client)
        self._emptied = True
        return switched

    def deactivate(self, namespace: Mapping[str, Any] | None = None) -> Switched:
        """Restore JAX to its state before the first :meth:`activate`.

        Args:
          namespace: The user's variables, to report those on the proxy's devices.
        """
        state = self._replaced
        if state is None:
            return Switched()
        switched = Switched(unusable=self._all_arrays(namespace))
        retired = self._retire()
        try:
            _restore(jax_internals.load(), state)
        finally:
            retired()
        # Last, so that an interrupted call can be repeated.
        self._replaced = None
        return switched

    def _retire(self) -> Callable[[], None]:
        """Invalidate the current proxy's arrays and devices.

        Returns:
          A function to call once JAX has dropped the client, to end the silence of its logs.
        """
        client, silence = self._client, self._silenced
        self._client, self._silenced, self._emptied = None, None, False
        if client is None or silence is None:
            return lambda: None
        _invalidate(client)
        return lambda: silence.end(client)


def _invalidate(client: Any) -> None:
    """Delete every array on devices of `client`, and put none there any more.

    A program that is passed one may compute with another proxy's, or abort the kernel.
    """
    device_puts.forbid(client)
    user_arrays.end(client)


def _present_state(internals: Internals) -> _JaxState:
    import jax

    # JAX asks its plugins for platforms at its first use, which may only come while a session serves this one: then the
    # plugin would be skipped, and the platform that the environment asks for would be missing afterwards.
    jax_platform.register_if_asked()
    bridge = internals.bridge
    with bridge._backend_lock:
        return _JaxState(
            guard=InitializeGuard(PLATFORM),
            clients=dict(bridge._backends),
            default=bridge._default_backend,
            errors=dict(bridge._backend_errors),
            factory=bridge._backend_factories.get(PLATFORM),
            platforms=jax.config.jax_platforms,
            platform_name=jax.config.read("jax_platform_name"),
            target=jax.config.read("jax_backend_target"),
        )


def _point(internals: Internals, client: Any, state: _JaxState, target: str, again: Callable[[], Any]) -> None:
    import jax

    bridge, first = internals.bridge, [client]

    def factory() -> Any:
        # JAX calls this again after a clear_backends() by the user.
        return first.pop() if first else again()

    state.guard.engage()
    jax.config.update("jax_platforms", ",".join([PLATFORM, *(state.clients or ("cpu",))]))
    # It goes before the order of the platforms: with JAX_PLATFORM_NAME=cpu everything would be computed here.
    jax.config.update("jax_platform_name", "")
    jax.config.update("jax_backend_target", target)
    state.guard.register(PLATFORM, factory, priority=-1, fail_quietly=False)
    proxy = bridge._init_backend(PLATFORM)
    others = state.clients or {"cpu": bridge._init_backend("cpu")}
    with bridge._backend_lock:
        bridge._backends = {PLATFORM: proxy, **others}
        bridge._default_backend = proxy


def _restore(internals: Internals, state: _JaxState) -> None:
    import jax

    # First: what JAX has compiled and cached is for the proxy's devices, and must not meet others.
    _clear(internals)
    device_puts.ask_layouts(None)
    state.guard.undo()
    jax.config.update("jax_platforms", state.platforms)
    jax.config.update("jax_platform_name", state.platform_name)
    jax.config.update("jax_backend_target", state.target)
    bridge = internals.bridge
    with bridge._backend_lock:
        bridge._backend_factories.pop(PLATFORM, None)
        if state.factory is not None:
            bridge._backend_factories[PLATFORM] = state.factory
        bridge._backends = dict(state.clients)
        bridge._default_backend = state.default
        bridge._backend_errors = dict(state.errors)


def _clear(internals: Internals) -> None:
    """Empty JAX's table of clients and its caches."""
    try:
        internals.backend.clear_backends()
    except Exception:
        # clear_backends() waits for pending effects first, and those of a lost proxy raise. Drop them and repeat.
        internals.dispatch.runtime_tokens.clear()
        internals.backend.clear_backends()


def _make_client(target: str, timeout: float, outcome: _Outcome, *, secure: bool) -> Any:
    """Return a client of the proxy at `target`, made on another thread: an Interrupt cannot reach code inside C++."""

    def make() -> None:
        try:
            outcome.put((jax_platform.new_client(target, int(timeout)), ""))
        except Exception as error:
            outcome.put((None, str(error).strip().partition("\n")[0]))

    with _credentials(secure=secure), silenced_logs.silenced():
        threading.Thread(target=make, name="pathways-jax-client", daemon=True).start()
        try:
            client, problem = interrupts.next_of(outcome, timeout)
        except TimeoutError:
            client, problem = None, f"no answer within {timeout:.0f} s"
    if client is None:
        raise SessionError(
            f"JAX could not connect to the proxy{' with ALTS' if secure else ''}: {problem}",
            hint=advice("Connect with {tunnel}; {logs:proxy} shows the proxy's log.")
            if secure
            else advice("{logs:proxy} shows the proxy's log; {reconnect} makes a new proxy."),
        )
    return client


@contextlib.contextmanager
def _credentials(*, secure: bool) -> Iterator[None]:
    """Allow plaintext channels inside the block only, and there only where the bytes stay on a private unix socket."""
    before = os.environ.pop(INSECURE_CREDENTIALS, None)
    if not secure:
        os.environ[INSECURE_CREDENTIALS] = "true"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(INSECURE_CREDENTIALS, None)
        else:
            os.environ[INSECURE_CREDENTIALS] = before
