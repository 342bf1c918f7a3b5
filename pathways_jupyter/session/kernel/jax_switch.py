"""Point a running kernel's JAX at a proxy, and put it back as it was found.

JAX decides on its devices once, at first use. Switching later means emptying its caches and its table of clients; the
clients that were there before are kept and stay in that table behind the proxy, so arrays on them remain usable while
connected, and disconnecting puts back the very same objects.

The table has no public way in. What is touched of JAX's inside is listed in `jax_internals` and checked before anything
changes, so a JAX that moved it gets an error and not half a switch.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.errors import SessionError
from pathways_jupyter.session.kernel import jax_internals, lost_arrays, silenced_logs
from pathways_jupyter.session.kernel.arrays import NamedArray, arrays_of
from pathways_jupyter.session.kernel.initialize import InitializeGuard
from pathways_jupyter.session.kernel.jax_internals import Internals

PLATFORM = "proxy"
INSECURE_CREDENTIALS = "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS"

_Outcome = queue.SimpleQueue[tuple[Any, str]]
"""Where the thread that makes a client leaves it, or the reason why there is none."""


@dataclass(frozen=True)
class Switched:
    """What a switch of devices did to the user's arrays.

    Attributes:
      unusable: Their devices are gone.
      left: They stay on the devices they are on, which are no longer the default ones: ``jax.device_put(x, device)``
        moves one.
    """

    unusable: tuple[NamedArray, ...] = ()
    left: tuple[NamedArray, ...] = ()


@dataclass(frozen=True)
class _Found:
    """What JAX was before: the clients (none when it was not initialised), its settings, and its ``proxy`` factory.

    Attributes:
      guard: Undoes what ``pathwaysutils.initialize()`` changes from here on.
    """

    guard: InitializeGuard
    clients: Mapping[str, Any]
    default: Any
    errors: Mapping[str, str]
    factory: Any
    platforms: str | None
    target: str | None


class JaxSwitch:
    """JAX pointed at one proxy after the other, until :meth:`deactivate`.

    All methods belong to the thread that runs the user's code: another one would pull the devices from under a
    running computation.
    """

    def __init__(self) -> None:
        self._found: _Found | None = None
        self._client: Any = None
        self._silenced: silenced_logs.SilencedLogs | None = None
        self._emptied = False
        self._outcome: _Outcome | None = None
        self._used = False

    def quiet_while_ending(self) -> contextlib.AbstractContextManager[None]:
        """Keep JAX's C++ side from logging inside the block, in which the proxy is removed.

        A client that is still referenced (by the traceback of an interrupt, for example) logs when its connection ends,
        which may take longer than what is left of its silence once JAX has been put back.
        """
        return silenced_logs.silenced() if self._used else contextlib.nullcontext()

    @property
    def active(self) -> bool:
        """Whether JAX's default devices are the proxy's."""
        return self._found is not None

    def slices(self) -> dict[int, tuple[Any, ...]]:
        """The proxy's devices by slice index; empty while inactive."""
        by_slice: dict[int, list[Any]] = {}
        for device in self._client.devices() if self._client is not None else ():
            by_slice.setdefault(getattr(device, "slice_index", 0), []).append(device)
        return {index: tuple(by_slice[index]) for index in sorted(by_slice)}

    def activate(self, target: str, *, timeout: float = 60.0, namespace: Mapping[str, Any] | None = None) -> Switched:
        """Makes the proxy at `target` JAX's default, in place of the one before if there is one.

        Args:
          target: ``grpc://unix:PATH`` of a socket that only this user can open.
          timeout: Seconds to wait for the proxy's first answer.
          namespace: The user's variables, to name those that are concerned.

        Raises:
          SessionError: The proxy does not answer, or this version of JAX cannot be switched; nothing was changed.
        """
        internals = jax_internals.load()
        self._used = True
        hush, client = silenced_logs.SilencedLogs(), None
        try:
            self._outcome = queue.SimpleQueue()
            try:
                client = _make_client(target, timeout, self._outcome)
            finally:
                self._outcome = None
            found = self._found or _look(internals)
            variables = namespace or {}
            switched = Switched(
                unusable=tuple(arrays_of([self._client], variables) if self._client is not None else ()),
                left=tuple(arrays_of(found.clients.values(), variables, uncommitted=True) if not self._found else ()),
            )
            retired = self._retire()
            try:
                # From here on :meth:`deactivate` finds the way back, wherever this is interrupted.
                self._client, self._found, self._silenced = client, found, hush
                _clear(internals)
                _point(internals, client, found, target, timeout)
            except BaseException:
                self._client = self._silenced = None
                _restore(internals, found)
                self._found = None
                raise
            finally:
                retired()
        except BaseException:
            hush.end(client)
            raise
        return switched

    def lost(self, reason: str) -> None:
        """Takes note that the proxy is gone; may be called on any thread.

        An :meth:`activate` that waits for its answer fails.
        """
        outcome, client = self._outcome, self._client
        if outcome is not None:
            outcome.put((None, reason))
        if client is not None:
            lost_arrays.forbid(client)

    def empty(self, namespace: Mapping[str, Any] | None = None) -> Switched | None:
        """Deletes the arrays of a proxy that is gone; its devices stay JAX's default ones, and fail.

        Returns:
          What became of the user's arrays; None when that was done already.
        """
        if self._client is None or self._emptied:
            return None
        switched = Switched(unusable=tuple(arrays_of([self._client], namespace or {})))
        lost_arrays.delete_arrays(self._client)
        self._emptied = True
        return switched

    def deactivate(self, namespace: Mapping[str, Any] | None = None) -> Switched:
        """Puts JAX back as it was found.

        Args:
          namespace: The user's variables, to name those on the proxy's devices.
        """
        found = self._found
        if found is None:
            return Switched()
        present = [] if self._client is None else [self._client]
        switched = Switched(unusable=tuple(arrays_of(present, namespace or {})))
        retired = self._retire()
        try:
            _restore(jax_internals.load(), found)
        finally:
            retired()
        # Last, so that what was interrupted can be done again.
        self._found = None
        return switched

    def _retire(self) -> Callable[[], None]:
        """Leaves nothing of the present proxy that could be taken for usable.

        Returns:
          To be called once JAX has forgotten it.
        """
        client, hush = self._client, self._silenced
        self._client, self._silenced, self._emptied = None, None, False
        if client is None or hush is None:
            return lambda: None
        lost_arrays.delete_arrays(client)
        lost_arrays.forbid(client)
        return lambda: hush.end(client)


def _look(internals: Internals) -> _Found:
    import jax

    bridge = internals.bridge
    with bridge._backend_lock:
        return _Found(
            guard=InitializeGuard(PLATFORM),
            clients=dict(bridge._backends),
            default=bridge._default_backend,
            errors=dict(bridge._backend_errors),
            factory=bridge._backend_factories.get(PLATFORM),
            platforms=jax.config.jax_platforms,
            target=jax.config.read("jax_backend_target"),
        )


def _point(internals: Internals, client: Any, found: _Found, target: str, timeout: float) -> None:
    import jax

    bridge, first = internals.bridge, [client]

    def factory() -> Any:
        # After the user's own clear_backends() JAX asks again, and gets a fresh client of the same proxy.
        return first.pop() if first else _make_client(target, timeout, queue.SimpleQueue())

    found.guard.engage()
    jax.config.update("jax_platforms", ",".join([PLATFORM, *(found.clients or ("cpu",))]))
    jax.config.update("jax_backend_target", target)
    found.guard.register(PLATFORM, factory, priority=-1, fail_quietly=False)
    proxy = bridge._init_backend(PLATFORM)
    others = found.clients or {"cpu": bridge._init_backend("cpu")}
    with bridge._backend_lock:
        bridge._backends = {PLATFORM: proxy, **others}
        bridge._default_backend = proxy


def _restore(internals: Internals, found: _Found) -> None:
    import jax

    _clear(internals)
    found.guard.undo()
    jax.config.update("jax_platforms", found.platforms)
    jax.config.update("jax_backend_target", found.target)
    bridge = internals.bridge
    with bridge._backend_lock:
        bridge._backend_factories.pop(PLATFORM, None)
        if found.factory is not None:
            bridge._backend_factories[PLATFORM] = found.factory
        bridge._backends = dict(found.clients)
        bridge._default_backend = found.default
        bridge._backend_errors = dict(found.errors)


def _clear(internals: Internals) -> None:
    """Empty JAX's table of clients and its caches."""
    try:
        internals.backend.clear_backends()
    except Exception:
        # It waits for pending effects first; those of a proxy that is gone end in an error, and are gone too.
        internals.dispatch.runtime_tokens.clear()
        internals.backend.clear_backends()


def _make_client(target: str, timeout: float, outcome: _Outcome) -> Any:
    """A client of the proxy at `target`, made on another thread: Interrupt cannot reach this one inside C++."""
    ifrt_proxy = jax_internals.load().backend.ifrt_proxy
    options = ifrt_proxy.ClientConnectionOptions()
    options.connection_timeout_in_seconds = max(1, int(timeout))

    def make() -> None:
        # Of its own: an interrupt may have ended the block below, and the client that nobody waits for logs as well.
        with silenced_logs.silenced():
            try:
                outcome.put((ifrt_proxy.get_client(target, options), ""))
            except Exception as error:
                outcome.put((None, str(error).strip().partition("\n")[0]))

    with _insecure_credentials(), silenced_logs.silenced():
        threading.Thread(target=make, name="pathways-jax-client", daemon=True).start()
        try:
            client, problem = outcome.get(timeout=timeout)
        except queue.Empty:
            client, problem = None, f"no answer within {timeout:.0f} s"
    if client is None:
        raise SessionError(
            f"JAX could not connect to the proxy: {problem}",
            hint="%pathways logs proxy shows what the proxy says; %pathways reconnect makes a new one.",
        )
    return client


@contextlib.contextmanager
def _insecure_credentials() -> Iterator[None]:
    """Lets channels made meanwhile be plaintext, as bytes on a private unix socket may be, and no others."""
    before = os.environ.get(INSECURE_CREDENTIALS)
    os.environ[INSECURE_CREDENTIALS] = "true"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(INSECURE_CREDENTIALS, None)
        else:
            os.environ[INSECURE_CREDENTIALS] = before
