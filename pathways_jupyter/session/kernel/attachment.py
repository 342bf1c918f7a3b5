"""What attaches this process to a session's proxy: the link to the supervisor, and the switch of JAX.

An attachment is made for a first connect, gets a new proxy with every reconnect, and is undone once, by
:meth:`Attachment.disconnect` or when the session was ended from outside.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.session import registry
from pathways_jupyter.session.kernel import process
from pathways_jupyter.session.kernel.jax_switch import JaxSwitch, Switched
from pathways_jupyter.session.kernel.storage import KernelStorage
from pathways_jupyter.session.kernel.supervisor_link import Link
from pathways_jupyter.session.kernel.user_arrays import NamedArray
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
      unusable: Arrays whose devices are gone.
      left: What could not be removed from the cluster, and why; empty when nothing is left.
    """

    unusable: tuple[NamedArray, ...] = ()
    left: str = ""

    def __str__(self) -> str:
        lines = ["The session is over."]
        if self.unusable:
            lines.append(f"Unusable from now on: {', '.join(map(str, self.unusable))}.")
        if self.left:
            lines.append(f"Not everything could be removed: {self.left}")
        return "\n".join(lines)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What IPython shows of it."""
        printer.text(str(self))


class Attachment:
    """This process's end of a session.

    Attributes:
      link: The connection to the supervisor; another one once a dead supervisor has been replaced.
      switch: What points JAX at the proxy.
      children: What points the processes that this one starts at the proxy.
      generation: The number of the proxy that JAX was pointed at last; 0 before the first.
      undone: Whether JAX was restored for good.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self.switch = JaxSwitch()
        self.children = ChildEnvironment()
        self._storage = KernelStorage()
        self.generation = 0
        self.undone = False
        self._process = os.getpid()
        self._record: SessionRecord | None = None

    @property
    def is_inherited(self) -> bool:
        """Whether this process is a fork of the one that connected; it must leave its parent's session alone."""
        return os.getpid() != self._process

    @property
    def record(self) -> SessionRecord:
        """The session's record as of the last event."""
        assert self._record is not None, "not connected yet"
        link = self.link
        present: dict[str, Any] = {"state": link.state, "state_since": link.state_since, "slices": link.slices}
        return replace(self._record, **present, **link.of_proxy)

    def adopt(self, link: Link, record: SessionRecord, variables: Variables | None) -> Switched:
        """Point JAX at the proxy of `record`.

        Raises:
          SessionError: The proxy is lost already.
        """
        self.link, self._record = link, record
        link.on_lost = self.switch.lost
        if not link.state.is_connected:
            raise SessionError("The proxy was lost before JAX had connected to it.", hint="Try again.")
        switched = self.switch.activate(
            record.target,
            secure=record.credentials == registry.ALTS,
            namespace=process.variables() if variables is None else variables,
        )
        self._storage.adopt(record)
        self.children.follow(record)
        # Last, so that after an interrupt anywhere above, the same proxy can be adopted once more.
        self.generation = record.generation
        return switched

    def empty(self, variables: Variables | None) -> Switched | None:
        """Delete the arrays on a lost proxy; None when that was done before."""
        return self.switch.empty(self._searched(variables))

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
                return Ended(unusable, finish(self.link))
        except KeyboardInterrupt:
            # Without the stack of what was waited for, which says nothing to the user.
            raise KeyboardInterrupt(
                f"Interrupted. JAX is as it was before; the proxy of session {self.link.session} goes on being removed."
            ) from None
        finally:
            self.forget({})

    def _searched(self, given: Variables | None) -> Variables:
        """Return the variables to search for arrays; none while JAX is not switched, since the search takes time."""
        if given is None and self.switch.active:
            return process.variables()
        return given or {}


def finish(link: Link) -> str:
    """End the session of `link`; return what could not be removed, or an empty string."""
    patience = CLEANUP_SECONDS
    try:
        try:
            return str(link.answer(link.ask(Method.DISCONNECT), patience=CLEANUP_SECONDS)["left"])
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


def _unfinished(link: Link) -> str:
    return f"Session {link.session} is still being removed; pathways-jupyter sessions lists it until it is gone."
