"""The kernel's side of a session: the link to the supervisor, and the switch of JAX.

It is made for a first connect, gets a new proxy with every reconnect, and is undone once, by
:meth:`KernelSide.disconnect` or when the session was ended from outside.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.base.events import Event, EventKind, SessionState, Transfer
from pathways_jupyter.base.text import count, size
from pathways_jupyter.saved.on_devices import Placed
from pathways_jupyter.session import clusters, registry
from pathways_jupyter.session.kernel import process
from pathways_jupyter.session.kernel.jax_switch import JaxSwitch, Switched
from pathways_jupyter.session.kernel.storage import AdoptedStorage
from pathways_jupyter.session.kernel.supervisor_link import SupervisorLink
from pathways_jupyter.session.kernel.user_arrays import NamedArray, described
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.session.variables import ChildEnvironment

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


class KernelSide:
    """The session as this process holds it.

    Args:
      link: The connection to the supervisor, whose proxy is ready.
      record: What the supervisor has said of the session.

    Attributes:
      link: The connection to the supervisor; another one once a dead supervisor has been replaced.
      switch: What points JAX at the proxy.
      children: What points the processes that this one starts at the proxy.
      handlers: Those of the supervisor's requests; see :attr:`.SupervisorLink.handlers`.
      undone: Whether JAX was restored for good.
      transfer: How far its arrays are, while they are saved to suspend it, or read; None at other times.
    """

    def __init__(self, link: SupervisorLink, record: SessionRecord) -> None:
        self.link = link
        self.switch = JaxSwitch()
        self.children = ChildEnvironment()
        self.handlers: dict[Method, Callable[..., Any]] = {Method.ARRAYS: self.switch.count_arrays}
        self._storage = AdoptedStorage()
        self.undone = False
        self.transfer: Transfer | None = None
        # Session and generation of the proxy that JAX was pointed at last. A supervisor that has replaced a dead one
        # has another session, and counts from 1 again.
        self._adopted = ("", 0)
        self._process = os.getpid()
        self._record = record

    @property
    def is_over(self) -> bool:
        """Return whether this process has the session no more; a fork has its parent's in name only."""
        return self.undone or self.is_inherited

    @property
    def is_inherited(self) -> bool:
        """Return whether this process is a fork of the one that connected; it must leave its parent's session alone."""
        return os.getpid() != self._process

    @property
    def record(self) -> SessionRecord:
        """The session's record as of the last event."""
        link = self.link
        present: dict[str, Any] = {"state": link.state, "state_since": link.state_since, "slices": link.slices}
        return replace(self._record, **present, **link.unused, transfer=self.transfer, **link.of_proxy)

    @property
    def has_devices(self) -> bool:
        """Return whether the session's proxy can be used, and is the one whose devices JAX has."""
        return self.link.state.is_connected and self.switch.active and self.has_newest

    @property
    def has_newest(self) -> bool:
        """Return whether the proxy that JAX was pointed at last is the session's newest."""
        return self._adopted == (self.link.session, self.link.generation)

    def placed(self) -> Placed | None:
        """Return what is on the devices that JAX has of the session; None if it has none."""
        slices = list(self.switch.slices().values())
        return Placed(slices) if slices else None

    def adopt(
        self, link: SupervisorLink, record: SessionRecord, variables: Variables | None, placed: Placed | None = None
    ) -> Switched:
        """Point JAX at the proxy of `record`.

        Args:
          placed: From :meth:`placed`, if that was asked before.

        Raises:
          SessionError: The proxy is lost already.
        """
        # From here on the side owns this link: an attempt that fails no longer undoes it, but only its own request.
        self.link, self._record = link, record
        # Before the state is looked at, so that a loss in between is not missed.
        link.on_lost, link.handlers = self.switch.lost, self.handlers
        if not link.state.is_connected:
            raise SessionError("The proxy was lost before JAX had connected to it.", hint="Try again.")
        # Meshes and jitted functions go on to work; of arrays there is nothing to move. Resuming moves all.
        if placed is None and record.saved is None:
            placed = self.placed()
        switched = self.switch.activate(
            record.target,
            secure=record.credentials == registry.ALTS,
            namespace=process.variables() if variables is None else variables,
        )
        if placed is not None:
            placed.move(list(self.switch.slices().values()))
        self._record_lost(switched.unusable)
        self.adopt_storage()
        self.children.follow(record)
        # Last, so that after an interrupt anywhere above, the same proxy can be adopted once more.
        self._adopted = record.proxy
        return switched

    def adopt_storage(self) -> None:
        """Lead ``gs://`` to the bucket of the embedded cluster, which has another address once it was started again."""
        self._storage.adopt(clusters.Storage.of(self.record))

    def remember(self, answer: Mapping[str, Any]) -> None:
        """Take the record that the supervisor has answered with as the session's."""
        self._record = SessionRecord.from_json(answer)

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
