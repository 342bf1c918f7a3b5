"""The slices that a training run uses, and decorators that call a function again when they change.

The names and their meanings follow pathwaysutils' ``elastic.manager.Manager`` (version 0.1.13), so that a program can
change from one to the other by its import. The difference is how changes are noticed: here a session's event wakes a
waiting run at once, and polling is only the fallback.

The user's own loop says less about itself than `train_loop`. Its run begins with the first call of the Manager that
takes part in one, and its steps are known only if the loop notes them.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.elastic.errors import (
    ArgumentError,
    ElasticRuntimeError,
    ScaleUpSignalError,
    check_callable,
    check_seconds,
    check_slices,
    check_whole,
    is_proxy_gone,
    is_slice_down,
    slices_named,
)
from pathways_jupyter.elastic.goodput import Spent
from pathways_jupyter.elastic.health import SETTLE_SECONDS, Health, by_slice
from pathways_jupyter.elastic.record import Kind, Record, listed, lost_words, paused_words
from pathways_jupyter.elastic.run_registry import RUNS
from pathways_jupyter.session.kernel import process
from pathways_jupyter.session.verdicts import ended

if TYPE_CHECKING:
    import jax

    from pathways_jupyter.session.kernel.session import Session

Function = TypeVar("Function", bound=Callable[..., Any])
RetryPolicy = Callable[[int, Exception], bool]


class Manager:
    """The slices of this process, and those that its computation uses.

    The events of this process's session report losses; without one, slices are probed.

    Args:
      devices: The devices to manage; default: all of JAX's.
      settle_seconds: How long a slice that was lost must be up before it is used again; doubles with each loss.
      record: Where the events of the user's own loop go; default: a new one for each run.

    Attributes:
      slice_to_devices: Devices by slice index.
      all_slice_indices: The indices of all slices.
      elastic_down_event_count: How often slices in use were lost.

    Raises:
      ArgumentError: There is no device, or the time cannot be used.
    """

    def __init__(
        self,
        devices: Sequence[jax.Device] | None = None,
        *,
        settle_seconds: float = SETTLE_SECONDS,
        record: Record | None = None,
    ) -> None:
        import jax

        check_seconds("settle_seconds", settle_seconds)
        if devices is not None and not len(devices):
            raise ArgumentError("devices is empty.", hint="Leave it out for all of JAX's devices.")
        self.session: Session | None = process.session()
        self.elastic_down_event_count = 0
        self._settle_seconds = settle_seconds
        self._record = record
        self._own_record: Record | None = None
        if self.session is not None and threading.current_thread() is threading.main_thread():
            # There may be a new proxy since JAX was used last: from outside, or after an interrupted reconnect.
            self.session.settle()
        self._manage(jax.devices() if devices is None else devices)

    def _manage(
        self, devices: Sequence[jax.Device], listeners: Sequence[Callable[[int, bool, str], None]] = ()
    ) -> None:
        """Make `devices` the ones that are managed; `listeners` are those of their health."""
        self._managed = frozenset(devices)
        self.slice_to_devices: Mapping[int, Sequence[jax.Device]] = by_slice(devices)
        self.all_slice_indices = frozenset(self.slice_to_devices)
        session = self.session
        # Devices of another platform, or of a proxy that JAX does not use yet, say nothing of the session's end.
        is_of_session = session is not None and session.has_devices and not set(devices) - set(session.devices())
        self._proxy = session.record.proxy if session is not None and is_of_session else None
        self.health = Health(self.slice_to_devices, self.session, settle_seconds=self._settle_seconds)
        self.health.listeners.extend(listeners)
        self._active: frozenset[int] = frozenset()
        self.active_slice_indices = self._answering()

    def _answering(self) -> frozenset[int]:
        """Return the slices that answer; none without a proxy, or with one that JAX does not use yet."""
        import jax

        if self.session is None:
            return self.health.check()
        if not self.session.has_devices:
            return frozenset()
        try:
            return self.health.check()
        except jax.errors.JaxRuntimeError as error:
            # A broken connection is noticed here before the session reports the loss.
            if not is_proxy_gone(error):
                raise
            return frozenset()

    @property
    def is_replaced(self) -> bool:
        """Return whether the session has other devices than these by now: those of a new proxy."""
        present = () if self.session is None or self._proxy is None else self.session.devices()
        return bool(present) and not self._managed & set(present)

    @property
    def has_ended(self) -> bool:
        """Return whether the session has ended, or is being ended by another thread."""
        session = self.session
        if session is None or session.state.is_over:
            return session is not None
        # JAX gives the devices back first; only then is the supervisor asked to end, which then reports it. After a
        # switch to a new proxy that was interrupted there are none either, but that proxy is another one.
        return self._proxy == session.record.proxy and not session.devices()

    def reconnect(self) -> tuple[str, ...]:
        """Get a new proxy for the session, and manage the same devices of it; all arrays are lost.

        Call it on the thread that runs the user's code. Compiled functions and meshes have to be made again.

        Returns:
          The user's variables that have become unusable.

        Raises:
          SessionError: There is no session, it has ended, or the new proxy did not come up; then it can be tried again.
        """
        session = self.session
        if session is None:
            raise SessionError(
                "This process has no session whose proxy could be replaced.",
                hint=advice("Connect first, then make the Manager: {connect}."),
            )
        if self.has_ended:
            # Not asked for a new proxy, which it might get a moment before its end.
            raise ended(session.record).error()
        managed, listeners = self._managed, self.health.listeners
        # What the old devices do is no news from here on.
        self.health.close()
        is_replaced = session.has_devices and not managed & set(session.devices())
        unusable = () if is_replaced else session.reconnect().unusable
        ids = {device.id for device in managed}
        # Not those of JAX: once the session is disconnected by another thread, these are this machine's.
        devices = [device for device in session.devices() if device.id in ids]
        if not devices:
            raise ended(session.record).error()
        self._manage(devices, listeners)
        self.health.start()
        return tuple(each.name for each in unusable if each.name)

    def start_monitoring(self, poll_interval: float = 10) -> None:
        """Start to watch the slices; `poll_interval` is in seconds, and counts only where there is no session."""
        self.health.start(poll_interval)

    def close(self, *, done: bool | None = None) -> None:
        """Stop to watch, and end the record of the user's own loop.

        Args:
          done: Whether that loop has come to its end; default: if no exception is being handled.
        """
        self.health.close()
        own, self._own_record = self._own_record, None
        if own is not None:
            self.health.listeners.remove(own.slice_changed)
            RUNS.end(own, done=sys.exc_info()[0] is None if done is None else done)

    @property
    def active_slice_indices(self) -> frozenset[int]:
        """The slices that the computation uses."""
        return self._active

    @active_slice_indices.setter
    def active_slice_indices(self, indices: Collection[int]) -> None:
        if unknown := set(indices) - self.all_slice_indices:
            raise ArgumentError(
                f"active_slice_indices has {sorted(unknown)}, which are not this manager's.",
                hint=f"Its slices are {sorted(self.all_slice_indices)}.",
            )
        self._active, self._active_since = frozenset(indices), time.monotonic()

    @property
    def inactive_slice_indices(self) -> frozenset[int]:
        """The slices that the computation does not use."""
        return self.all_slice_indices - self._active

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

    def note_loss(self, error: Exception | None = None) -> frozenset[int]:
        """Do as :meth:`find_loss`, and record it as an event of the user's own loop."""
        record, before = self.own_record(), self._active
        remaining = self.find_loss(error)
        if record.latest is not None:
            # Otherwise it is not known what of the time so far was in vain.
            record.goodput.waste()
        record.add(Kind.DETECTED, lost_words(before - remaining, error), slices=tuple(sorted(remaining)))
        return remaining

    def find_loss(self, error: Exception | None = None) -> frozenset[int]:
        """Make the slices active that remain after `error`, and return them; the caller records it."""
        self.elastic_down_event_count += 1
        # A worker that was restarted in its place may answer again, but what was on its slice is lost.
        named = slices_named(error) & self._active if error is not None else frozenset()
        self.health.lose(named, since=self._active_since)
        # The error may be faster than the event, so ask the devices.
        remaining = (self.health.check(self._active) & self.health.trusted) - named
        self.active_slice_indices = remaining
        return remaining

    def note_step(self, step: int, **metrics: float) -> None:
        """Note that step number `step` of the user's own loop is complete, for its record, the log and the panel."""
        record = self.own_record()
        record.goodput.step(step)
        record.step(step, metrics, slices=self.active_slice_count, losses=self.elastic_down_event_count)

    def own_record(self, name: str = "") -> Record:
        """Return the record of the user's own loop, whose function is `name`; its run begins with the first call."""
        if self._own_record is None:
            record = self._own_record = self._record or Record()
            RUNS.begin(record, name=name)
            RUNS.has_devices(record, self.total_slice_count, self.session)
            record.goodput.begin_steps()
            self.health.listeners.append(record.slice_changed)
        return self._own_record

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

        Raises:
          ArgumentError: An argument cannot be used.

        The decorated function raises:
          ElasticRuntimeError: No further attempt is allowed; its cause is the last error.
          TimeoutError: The slices did not come up in time.
        """
        if max_retries is not None and retry_policy is not None:
            raise ArgumentError("Give max_retries or retry_policy, not both.", hint="Leave one of them out.")
        if max_retries is not None:
            check_whole("max_retries", max_retries, at_least=1)
        if minimum_slice_count is not None:
            check_whole("minimum_slice_count", minimum_slice_count, at_least=0)
            check_slices("minimum_slice_count", minimum_slice_count, self.total_slice_count)
        check_seconds("poll_interval", poll_interval, positive=True)
        if timeout is not None:
            check_seconds("timeout", timeout)
        for name, callback in (
            ("pre_callback", pre_callback),
            ("on_elastic_event_callback", on_elastic_event_callback),
            ("retry_policy", retry_policy),
        ):
            if callback is not None:
                check_callable(name, callback)
        # Without any slice there is nothing that a function could run on.
        minimum = self.total_slice_count if minimum_slice_count is None else max(1, minimum_slice_count)

        def decorator(function: Function) -> Function:
            @functools.wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                import jax

                self.start_monitoring(poll_interval)
                record, attempt, done = self.own_record(getattr(function, "__name__", "")), 1, False
                try:
                    while True:
                        self._begin_attempt(attempt, minimum, timeout)
                        if pre_callback is not None:
                            pre_callback()
                        try:
                            with jax.default_device(self.default_device):
                                result = function(*args, **kwargs)
                            done = True
                            return result
                        except (ScaleUpSignalError, jax.errors.JaxRuntimeError) as error:
                            with record.goodput.during(Spent.REINITIALIZATION):
                                if isinstance(error, jax.errors.JaxRuntimeError):
                                    if not is_slice_down(error):
                                        raise
                                    self.note_loss(error)
                                # A trace that spans the change cannot be finished, and would make the next one fail.
                                with contextlib.suppress(RuntimeError, ValueError):
                                    jax.profiler.stop_trace()
                                if on_elastic_event_callback is not None:
                                    on_elastic_event_callback()
                            if attempt == max_retries or (retry_policy and not retry_policy(attempt, error)):
                                raise ElasticRuntimeError(
                                    f"Attempt {attempt} failed, and the retry policy allows no other.",
                                    hint="Its cause is the error of that attempt.",
                                ) from error
                        attempt += 1
                finally:
                    self.close(done=done)

            return wrapper  # type: ignore[return-value]

        return decorator

    def _begin_attempt(self, attempt: int, minimum: int, timeout: float | None) -> None:
        """Use all slices that can be used, and wait until these are at least `minimum`."""
        record, before, up = self.own_record(), self.active_slice_indices, len(self.health.trusted)
        if up < minimum:
            record.add(Kind.WAITING, paused_words(up, minimum))
        with record.goodput.during(Spent.SLICE_DOWN):
            active = self.active_slice_indices = self.health.wait_for(minimum, timeout=timeout)
        slices, has_grown = tuple(sorted(active)), bool(before) and not active <= before
        if attempt > 1 or up < minimum or has_grown:
            said = f"Attempt {attempt} begins on {listed(slices)}."
            record.add(Kind.GROWN if has_grown else Kind.RESUMED, said, slices=slices)
        else:
            record.uses(len(slices))

    def pause_resume(self, max_retries: int, **more: Any) -> Callable[[Function], Function]:
        """Return :meth:`elastic_retry` for all slices: the function waits until they are back."""
        return self.elastic_retry(max_retries, None, **more)

    def replica_resize(self, max_resizes: int, **more: Any) -> Callable[[Function], Function]:
        """Return :meth:`elastic_retry` for at least one slice."""
        return self.elastic_retry(max_resizes, 1, **more)
