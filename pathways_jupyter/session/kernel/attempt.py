"""One attempt to connect or to reconnect: its progress, its result, and how it is undone."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pathways_jupyter.errors import PathwaysError, SessionError
from pathways_jupyter.events import Event, EventKind, SessionState, Stage
from pathways_jupyter.session.kernel.attachment import Attachment, Variables, finish
from pathways_jupyter.session.kernel.jax_switch import Switched
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.wording import count

if TYPE_CHECKING:
    from pathways_jupyter.session.kernel.link import Link

S = TypeVar("S")


class ConnectionAttempt(Generic[S]):
    """A connection that is being made: iterate over its events, then read :attr:`session`.

    Leaving the iteration early, by an Interrupt or otherwise, cancels the attempt: the proxy is removed, and JAX stays
    as it was.

    Args:
      attachment: What is attached to the proxy.
      link: The connection to the supervisor; not the attachment's own while a dead supervisor is being replaced.
      request: The number of the request that the supervisor answers with the session's record.
      variables: The user's variables, to report the arrays that the switch of devices affects.
      connected: Called when JAX has its devices; returns the session.
      again: Whether the session exists already: a failure leaves it as it was, so that it can be tried again.
      since: Number of the first event to report.

    Attributes:
      switched: What happened to the user's arrays; set at the end.
    """

    def __init__(
        self,
        attachment: Attachment,
        link: Link,
        request: int,
        variables: Variables | None,
        *,
        connected: Callable[[], S],
        again: bool = False,
        since: int = 0,
    ) -> None:
        self.switched = Switched()
        self._attachment = attachment
        self._link = link
        self._request = request
        self._variables = variables
        self._connected = connected
        self._again = again
        # Whether the switch of JAX must be undone on failure. For a first connect it is set before the switch begins,
        # so that an Interrupt in the middle of it is undone too.
        self._switched = again
        self._since = since
        self._session: S | None = None
        self._done = False
        self._began = time.monotonic()
        self._events = self._run()

    def __del__(self) -> None:
        if not self._done and not self._again:
            self._link.close()

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
        for _ in self._events:
            pass
        if self._session is None:
            raise SessionError("Connecting was cancelled.", hint="Connect again.")
        return self._session

    def cancel(self) -> None:
        """Cancel connecting, and wait until the objects in the cluster are removed."""
        self._events.close()
        if not self._done:
            self._undo()

    def _run(self) -> Generator[Event, None, None]:
        try:
            yield from self._link.watch(self._since, until=self._request)
            record = SessionRecord.from_json(self._link.answer(self._request))
            yield self._stage("Switching JAX to the proxy.")
            import_jax().join()
            self._switched = True
            self.switched = self._attachment.adopt(self._link, record, self._variables)
            session = self._connected()
            slices = self._attachment.switch.slices()
            devices = sum(map(len, slices.values()))
            yield self._stage(f"JAX has {count(devices, 'device')} on {count(len(slices), 'slice')}.", done=True)
            self._session = session
            self._done = True
        except PathwaysError as error:
            self._done = True
            died = self._link.ended and self._link.state is SessionState.LOST
            # A failed reconnect keeps the session, without a proxy, so that it can be tried again.
            if died or not self._again or self._attachment.link is not self._link:
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
            if self._switched:
                self._attachment.disconnect()
        finally:
            # Also when JAX cannot be restored: otherwise the proxy would hold slices that nothing uses.
            finish(self._link)

    def _stage(self, message: str, **data: Any) -> Event:
        elapsed = round(time.monotonic() - self._began, 4)
        return Event(EventKind.STAGE, message, time.time(), {"stage": Stage.JAX, "elapsed": elapsed, **data})


def import_jax() -> threading.Thread:
    """Import JAX on its own thread, while the proxy starts: both take about as long.

    An Interrupt reaches the main thread only, so it cannot leave a module half imported for good.
    """

    def run() -> None:
        # An import error is raised again where JAX is used.
        with contextlib.suppress(Exception):
            from jax.extend.backend import ifrt_proxy  # noqa: F401

    thread = threading.Thread(target=run, name="pathways-import-jax", daemon=True)
    thread.start()
    return thread
