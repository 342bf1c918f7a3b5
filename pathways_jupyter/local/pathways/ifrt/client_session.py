"""One client's session: its handles, and the answers to its requests.

Requests are taken in the order in which they come, on one thread, and each is bound to its handles before the next is
looked at. What they start goes on elsewhere (see :mod:`session_arrays`), and answers go out whenever they are there.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pathways_jupyter.local.pathways.ifrt import messages, promises, statuses
from pathways_jupyter.local.pathways.ifrt.array_values import ArraySpec
from pathways_jupyter.local.pathways.ifrt.buffers import HostBuffers
from pathways_jupyter.local.pathways.ifrt.colocated_python import Order
from pathways_jupyter.local.pathways.ifrt.executables import OpaqueExecutable, XlaExecutable
from pathways_jupyter.local.pathways.ifrt.machine import Machine
from pathways_jupyter.local.pathways.ifrt.promises import Promise
from pathways_jupyter.local.pathways.ifrt.session_arrays import Array
from pathways_jupyter.local.pathways.ifrt.statuses import IfrtStatusError

_log = logging.getLogger(__name__)

_Value = TypeVar("_Value")

Handler = Callable[["IfrtSession", Any, Any], Promise | None]
"""Serves one kind of request, and fills in the message of its answer.

The answer is sent when the promise is settled, or at once when there is none; what the handler raises, and an error in
the promise, becomes the answer.
"""

UNCOUNTED = promises.settled(None)
"""Returned by handlers whose answers are left out of the sequence numbers, as those of batched requests are."""


class Handles(dict[int, _Value]):
    """Objects of one kind by the client's handles; one that is unknown is the client's error."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __missing__(self, handle: int) -> _Value:
        raise statuses.invalid(f"there is no {self._kind} with the handle {handle}")

    def take(self, handle: int) -> _Value:
        """Forget a handle, and return what it stood for."""
        value = self[handle]
        del self[handle]
        return value


class IfrtSession:
    """Everything that belongs to one client, until it goes.

    Args:
      deliver: Sends an IfrtResponse; called from many threads, one at a time.
    """

    def __init__(self, machine: Machine, handlers: Mapping[str, Handler], deliver: Callable[[Any], None]) -> None:
        # The other streams name their session by this number.
        self.id = secrets.randbits(64) | 1
        self.machine = machine
        self.buffers = HostBuffers()
        self.order = Order()
        self.arrays: Handles[Array] = Handles("array")
        self.executables: Handles[XlaExecutable | OpaqueExecutable] = Handles("executable")
        self.futures: Handles[Promise] = Handles("future")
        self._handlers = handlers
        self._deliver = deliver
        self._handles = itertools.count(messages.FIRST_SERVER_HANDLE + 1)
        self._answer_lock = threading.Lock()
        self._sequence = itertools.count()
        self._finished_contexts: list[int] = []

    def handle(self, request: Any) -> None:
        """Handle one IfrtRequest; never raise for what is wrong with one of a known kind."""
        field = request.WhichOneof("request")
        if field is None:
            raise statuses.invalid("a request of a kind that this server's protocol does not have")
        name = field.removesuffix("_request")
        message = getattr(request, field)
        context = request.request_metadata.user_context_id
        response = messages.IfrtResponse()
        metadata = response.response_metadata
        metadata.op_id = request.request_metadata.op_id
        body = getattr(response, f"{name}_response")
        body.SetInParent()
        handler = self._handlers.get(name)
        try:
            if handler is None:
                kind = message.DESCRIPTOR.name.removesuffix("Request")
                raise statuses.unimplemented(f"{kind} is not supported by the embedded proxy")
            promise = handler(self, message, body)
        except Exception as error:
            status = statuses.of(error)
            if not isinstance(error, IfrtStatusError):
                _log.warning("%s failed: %s", name, status, exc_info=True)
            self._bind_failed(message, status)
            promise = promises.failed(status)

        def answer() -> None:
            with self._answer_lock:
                if promise is not None and promise.error is not None:
                    response.ClearField(f"{name}_response")
                    promise.error.write_to(metadata.status)
                    # Context ids travel back on answers that succeeded.
                    if context:
                        self._finished_contexts.append(context)
                elif promise is not UNCOUNTED:
                    metadata.seq_num = next(self._sequence)
                    metadata.destroyed_user_context_ids.extend(self._finished_contexts)
                    self._finished_contexts.clear()
                    if context:
                        metadata.destroyed_user_context_ids.append(context)
                self._deliver(response)

        if promise is None:
            answer()
        else:
            promise.then(answer)

    def bind_new(self, handles: Sequence[int], specs: Sequence[ArraySpec]) -> tuple[list[int], list[Array]]:
        """Bind arrays that are yet to be made to the client's handles, or to new ones if it gave none."""
        arrays = [Array(spec) for spec in specs]
        bound = [handle or self.new_handle() for handle in handles or [0] * len(arrays)]
        self.arrays.update(zip(bound, arrays, strict=True))
        return bound, arrays

    def new_handle(self) -> int:
        """Return a handle that the client cannot have made."""
        return next(self._handles)

    def lose(self, device_ids: frozenset[int], error: IfrtStatusError) -> int:
        """Put `error` in place of every array with a shard on one of these devices; return how many there were."""
        lost = [
            array
            for array in list(self.arrays.values())
            if array.spec is not None and not device_ids.isdisjoint(array.spec.sharding.device_ids)
        ]
        for array in lost:
            array.lose(error)
        return len(lost)

    def end(self) -> tuple[int, int]:
        """Free everything, and return how many arrays and executables; work that is under way ends into nothing."""
        freed = len(self.arrays), len(self.executables)
        self.buffers.end()
        self.arrays.clear()
        self.futures.clear()
        executables = list(self.executables.values())
        self.executables.clear()
        for executable in executables:
            executable.release()
        return freed

    def __str__(self) -> str:
        return f"session {self.id:016x}"

    def _bind_failed(self, message: Any, error: IfrtStatusError) -> None:
        """Put the error behind the handles that the client made, since it goes on to use them."""
        fields = message.DESCRIPTOR.fields_by_name
        for name in _RESULT_FIELDS:
            if name not in fields:
                continue
            value = getattr(message, name)
            for handle in [value] if isinstance(value, int) else value:
                if handle and handle not in self.arrays:
                    self.arrays[handle] = _failed(error)
        if "result_status_handle" in fields and message.result_status_handle:
            self.futures.setdefault(message.result_status_handle, promises.failed(error))


_RESULT_FIELDS = ("array_handle", "array_handles", "result_handle", "result_handles", "result_array_handle")


def _failed(error: IfrtStatusError) -> Array:
    array = Array(None)
    array.promise = promises.failed(error)
    return array
