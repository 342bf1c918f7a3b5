"""Which slices a training run uses, and decorators that call it again when they change.

The names and their meanings follow pathwaysutils' ``elastic.manager.Manager`` (version 0.1.13), so that a program can
change from one to the other by its import; names of its earlier versions are kept as aliases. The difference is how
changes are noticed: here a session's event wakes a waiting run at once, and polling is only the fallback.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pathways_jupyter.elastic.errors import (
    ElasticRetryLimit,
    ElasticRuntimeError,
    ScaleUpSignalError,
    is_slice_down,
)
from pathways_jupyter.elastic.health import SETTLE_SECONDS, Health, by_slice
from pathways_jupyter.elastic.snapshots import Snapshots
from pathways_jupyter.errors import SessionError
from pathways_jupyter.events import SessionState

if TYPE_CHECKING:
    import jax

    from pathways_jupyter.session.kernel.session import Session

Function = TypeVar("Function", bound=Callable[..., Any])
RetryPolicy = Callable[[int, Exception], bool]

logger = logging.getLogger(__name__)


class Manager:
    """The slices of this process, and those that its computation uses.

    Args:
      devices: The devices to manage; default: all of JAX's.
      session: The session whose events report losses; default: this process's. Without one, slices are probed.
      settle_seconds: How long a slice that was lost must be up before it is used again; doubles with each loss.

    Attributes:
      slice_to_devices: Devices by slice index.
      all_slice_indices: The indices of all slices.
      inactive_slice_indices: Those that the computation does not use.
      elastic_down_event_count: How often slices in use were lost.
      snapshots: The snapshots that :meth:`maybe_snapshot` takes.
    """

    def __init__(
        self,
        devices: Sequence[jax.Device] | None = None,
        *,
        session: Session | None = None,
        settle_seconds: float = SETTLE_SECONDS,
        snapshot_period: int = 1,
        reshard_check_period: int = 1,
    ) -> None:
        import jax

        self.session = session if session is not None else _session_of_this_process()
        self.elastic_down_event_count = 0
        self.snapshots = Snapshots()
        self.snapshot_period = snapshot_period
        self.reshard_check_period = reshard_check_period
        self._settle_seconds = settle_seconds
        self._lock = threading.Lock()
        self._manage(devices or jax.devices())

    def _manage(
        self, devices: Sequence[jax.Device], listeners: Sequence[Callable[[int, bool, str], None]] = ()
    ) -> None:
        """Make `devices` the ones that are managed; `listeners` are those of their health."""
        self.slice_to_devices: Mapping[int, Sequence[jax.Device]] = by_slice(devices)
        self.all_slice_indices = frozenset(self.slice_to_devices)
        self.health = Health(self.slice_to_devices, self.session, settle_seconds=self._settle_seconds)
        self.health.listeners.extend(listeners)
        self._active: frozenset[int] = frozenset()
        self.inactive_slice_indices = self.all_slice_indices
        # A proxy that is lost cannot be asked.
        is_lost = self.session is not None and self.session.state is SessionState.LOST
        self.active_slice_indices = frozenset() if is_lost else self.health.check()

    def reconnect(self) -> tuple[str, ...]:
        """Get a new proxy for the session, and manage the same devices of it; all arrays are lost.

        Call it on the thread that runs the user's code. Compiled functions and meshes have to be made again.

        Returns:
          The user's variables that have become unusable.

        Raises:
          SessionError: There is no session, it is over, or the new proxy did not come up; then it can be tried again.
        """
        import jax

        if self.session is None:
            raise SessionError("This process has no session whose proxy could be replaced.")
        managed = [device for devices in self.slice_to_devices.values() for device in devices]
        listeners = self.health.listeners
        self.health.close()
        # With other devices than JAX's, these are of a proxy that has been replaced already.
        is_replaced = self.session.state.is_connected and not set(managed) & set(jax.devices())
        unusable = () if is_replaced else self.session.reconnect().unusable
        ids = {device.id for device in managed}
        self._manage([device for device in jax.devices() if device.id in ids], listeners)
        self.start_monitoring()
        return tuple(each.name for each in unusable)

    def start_monitoring(self, poll_interval: float = 10) -> None:
        """Start to watch the slices; `poll_interval` is in seconds, and counts only where there is no session."""
        self.health.start(poll_interval)

    def close(self) -> None:
        """Stop to watch."""
        self.health.close()

    @property
    def active_slice_indices(self) -> frozenset[int]:
        """The slices that the computation uses."""
        return self._active

    @active_slice_indices.setter
    def active_slice_indices(self, indices: Collection[int]) -> None:
        with self._lock:
            self._active = frozenset(indices)
            self.inactive_slice_indices = self.all_slice_indices - self._active

    @property
    def available_inactive_slices(self) -> frozenset[int]:
        """Slices that the computation does not use and could: they are up and have settled."""
        return self.health.trusted - self._active

    @property
    def total_slice_count(self) -> int:
        """The number of all slices."""
        return len(self.slice_to_devices)

    @property
    def active_slice_count(self) -> int:
        """The number of slices that the computation uses."""
        return len(self._active)

    @property
    def active_devices(self) -> list[jax.Device]:
        """The devices of the active slices, slice by slice."""
        return [device for index in sorted(self._active) for device in self.slice_to_devices[index]]

    @property
    def default_device(self) -> jax.Device:
        """A device of an active slice.

        Raises:
          ValueError: No slice is active.
        """
        if not self._active:
            raise ValueError("No slice is active.")
        return self.slice_to_devices[min(self._active)][0]

    def scale_by_active_slices(self, x: int | float) -> int | float:
        """Return `x` times the share of slices that are active.

        Raises:
          ValueError: `x` is an integer and the result would not be one; or it is no number.
        """
        if isinstance(x, bool) or not isinstance(x, (int, float)):
            raise ValueError(f"{x!r} is no number.")
        if isinstance(x, float):
            return x * self.active_slice_count / self.total_slice_count
        quotient, remainder = divmod(x * self.active_slice_count, self.total_slice_count)
        if remainder:
            raise ValueError(f"{x} cannot be scaled to {self.active_slice_count} of {self.total_slice_count} slices.")
        return quotient

    def elastic_retry(
        self,
        max_retries: int | None = None,
        minimum_slice_count: int | None = None,
        poll_interval: float = 10,
        timeout: float | None = None,
        pre_callback: Callable[[], Any] | None = None,
        on_elastic_event_callback: Callable[[], Any] | None = None,
        retry_policy: RetryPolicy | None = None,
    ) -> Callable[[Function], Function]:
        """Return a decorator that calls a function again after the loss of a slice, or a :class:`ScaleUpSignalError`.

        Args:
          max_retries: Limit of attempts; the same as ``retry_policy=ElasticRetryLimit(max_retries)``.
          minimum_slice_count: Slices that an attempt needs; default: all. It waits for them before each attempt.
          poll_interval: Seconds between probes where there is no session.
          timeout: Longest wait for slices before an attempt, in seconds; default: without end.
          pre_callback: Called before each attempt.
          on_elastic_event_callback: Called after each loss or signal.
          retry_policy: Called with the number of the attempt (from 1) and its error; a false result ends the retries.

        The decorated function raises:
          ElasticRuntimeError: No further attempt is allowed; its cause is the last error.
          TimeoutError: The slices did not come up in time.
        """
        if max_retries is not None and retry_policy is not None:
            raise ValueError("Give max_retries or retry_policy, not both.")
        wanted = self.total_slice_count if minimum_slice_count is None else minimum_slice_count
        allowed = retry_policy or (ElasticRetryLimit(max_retries) if max_retries is not None else _always)

        def decorator(function: Function) -> Function:
            @functools.wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                import jax

                self.start_monitoring(poll_interval)
                attempt = 1
                try:
                    while True:
                        self.active_slice_indices = self.health.wait_for(wanted, timeout=timeout)
                        if pre_callback is not None:
                            pre_callback()
                        try:
                            with jax.default_device(self.default_device):
                                return function(*args, **kwargs)
                        except (ScaleUpSignalError, jax.errors.JaxRuntimeError) as error:
                            self._after(error)
                            if on_elastic_event_callback is not None:
                                on_elastic_event_callback()
                            if not allowed(attempt, error):
                                raise ElasticRuntimeError(
                                    f"Attempt {attempt} failed, and the retry policy allows no other."
                                ) from error
                        attempt += 1
                finally:
                    self.close()

            return wrapper  # type: ignore[return-value]

        return decorator

    def pause_resume(self, max_retries: int, **more: Any) -> Callable[[Function], Function]:
        """Return :meth:`elastic_retry` for all slices: the function waits until they are back."""
        return self.elastic_retry(max_retries, None, **more)

    def replica_resize(self, max_resizes: int, **more: Any) -> Callable[[Function], Function]:
        """Return :meth:`elastic_retry` for at least one slice."""
        return self.elastic_retry(max_resizes, 1, **more)

    def _after(self, error: Exception) -> None:
        """Update the slices after an attempt has failed; raise `error` again if it is not about slices."""
        import jax

        if not isinstance(error, ScaleUpSignalError):
            if not is_slice_down(error):
                raise error
            self.note_loss()
        # A trace that spans the loss cannot be finished, and would make the next start_trace fail.
        with contextlib.suppress(RuntimeError, ValueError):
            jax.profiler.stop_trace()

    def note_loss(self) -> frozenset[int]:
        """Find out which active slices are gone, after an error that says that some are; return the remaining ones."""
        self.elastic_down_event_count += 1
        # The error may be faster than the event, so ask the devices.
        answered = self.health.check(self._active)
        self.active_slice_indices = answered
        return answered

    # The names that earlier versions of pathwaysutils had.

    @property
    def good_slice_indices(self) -> frozenset[int]:
        """The same as :attr:`active_slice_indices`."""
        return self._active

    @property
    def good_slice_count(self) -> int:
        """The same as :attr:`active_slice_count`."""
        return self.active_slice_count

    @property
    def good_devices(self) -> list[jax.Device]:
        """The same as :attr:`active_devices`."""
        return self.active_devices

    @property
    def good_slice_to_devices(self) -> dict[int, Sequence[jax.Device]]:
        """The devices of the active slices, by slice index."""
        return {index: self.slice_to_devices[index] for index in sorted(self._active)}

    def scale_by_good_slices(self, x: int | float) -> int | float:
        """The same as :meth:`scale_by_active_slices`."""
        return self.scale_by_active_slices(x)

    def maybe_snapshot(
        self,
        step: int,
        snapshot_jax_arrays: Any,
        snapshot_controller: Any = None,
        force: bool = False,
        block: bool = False,
    ) -> None:
        """Take a snapshot if `step` is a multiple of :attr:`snapshot_period`, or with `force`.

        Args:
          snapshot_controller: What is not an array; returned by :meth:`get_resharded_snapshot`.
          block: Wait until it is whole.
        """
        if force or step % self.snapshot_period == 0:
            taken = self.snapshots.take(step, snapshot_jax_arrays, snapshot_controller)
            if block:
                taken.finished.wait()

    def get_resharded_snapshot(self, mesh: jax.sharding.Mesh) -> tuple[int, Any, Any]:
        """Return the step, the arrays on `mesh`, and the rest of the newest snapshot that can be read.

        Raises:
          ElasticRuntimeError: There is none.
        """
        import jax

        for snapshot in self.snapshots.candidates():
            try:
                return snapshot.step, snapshot.on(mesh, usable=self.health.up), snapshot.extra
            except ElasticRuntimeError:
                self.snapshots.drop(snapshot)
            except jax.errors.JaxRuntimeError as error:
                if not is_slice_down(error):
                    raise
                self.snapshots.drop(snapshot)
        raise ElasticRuntimeError("There is no snapshot that can be read.", hint="Call maybe_snapshot more often.")

    def maybe_reshard_down(
        self,
        error: Exception,
        elastic_handler: Callable[..., Any],
        handler_args: Sequence[Any] = (),
        handler_kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call `elastic_handler` with the remaining slices active, until it succeeds; return its result.

        Raises:
          Exception: `error`, or the handler's, if it is not about slices.
        """
        import jax

        while True:
            if not is_slice_down(error):
                raise error
            self.note_loss()
            try:
                return elastic_handler(*handler_args, **(handler_kwargs or {}))
            except jax.errors.JaxRuntimeError as another:
                error = another

    def maybe_reshard_up(
        self,
        step: int,
        snapshot_jax_arrays: Any,
        elastic_handler: Callable[..., Any],
        snapshot_controller: Any = None,
        handler_args: Sequence[Any] = (),
        handler_kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """If more slices are available at this step, activate them, take a snapshot, and call `elastic_handler`.

        Returns:
          The handler's result; None if there was nothing to do.
        """
        import jax

        if step % self.reshard_check_period or not self.available_inactive_slices:
            return None
        self.maybe_snapshot(step, snapshot_jax_arrays, snapshot_controller, force=True, block=True)
        self.active_slice_indices = self.health.trusted | self._active
        try:
            return elastic_handler(*handler_args, **(handler_kwargs or {}))
        except jax.errors.JaxRuntimeError as error:
            return self.maybe_reshard_down(error, elastic_handler, handler_args, handler_kwargs)


def _always(attempt: int, error: Exception) -> bool:
    return True


def _session_of_this_process() -> Session | None:
    # Only look the module up: a process with a session has imported it.
    module = sys.modules.get("pathways_jupyter.session.kernel.session")
    return module.current() if module is not None else None
