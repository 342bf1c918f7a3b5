"""Replace the function by which JAX puts data on devices, while there is a proxy or one that was lost is referenced.

It refuses the devices of a lost proxy. JAX identifies an array on a proxy by a number that the client chose, and the
next client chooses the same numbers again; and a program that receives an array which was put on devices of a closed
connection aborts the whole process, inside JAX's C++ code.

And it asks a proxy for the layouts of arrays while that answers, before JAX does. Before the first program with
arguments of a new dtype and shape, jaxlib asks for their default layout, and holds Python's lock until the answer
comes. If the connection is interrupted at that moment, no thread of the kernel runs until it is back: panels stand
still, and an Interrupt does nothing. So the layout is asked for soon after something has arrived: JAX waits for that
without the lock, and until an Interrupt. jaxlib keeps the answer. What programs return has its layout from their
compilation.

The question is a round trip, as it is in jaxlib, and not one more: a thread asks, while the data are under way. A
program that follows the put at once overtakes it, and asks itself, with the lock. So where the last answer is older
than a round trip, the put waits for a sign of life first; of many puts one after the other only the first one does.
"""

from __future__ import annotations

import atexit
import itertools
import operator
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

from pathways_jupyter.base import interrupts
from pathways_jupyter.base.sentences import Face, advice, worded
from pathways_jupyter.session.kernel import jax_internals, process
from pathways_jupyter.session.verdicts import Does, SessionCommand

_FRESH_SECONDS = 1.0
"""Longest time for which an answer shows that there is a connection, however long a round trip takes."""
_SMALL_BYTES = 1024 * 1024
"""So much is waited for itself, where the last answer is older; behind more, JAX would no longer send in parallel."""

_is_deleted, _layout = operator.methodcaller("is_deleted"), operator.attrgetter("_pjrt_layout")

# Reentrant: a finalizer may replace the function while this thread does.
_lock = threading.RLock()
_original: Any = None
_lost: weakref.WeakSet[Any] = weakref.WeakSet()
_layouts: weakref.WeakKeyDictionary[Any, set[Any]] = weakref.WeakKeyDictionary()
"""Requests that were made of the present proxy's client."""
_answered_at = -1.0
_waits: deque[float] = deque(maxlen=16)
"""Seconds that the last signs of life took; the shortest is about a round trip."""
_questions: queue.SimpleQueue[tuple[Any, set[Any], Any] | None] | None = None
_asked: set[int] = set()
"""Ids of the arrays whose layout is being asked for."""
_probes: set[int] = set()
"""Ids of the arrays that only show that something has arrived."""


def ask_layouts(client: Any) -> None:
    """Ask for the layouts of what is put on devices of `client`, from now on; of none when it is None."""
    global _questions
    _layouts.clear()
    if _questions is not None:
        # It may wait for a proxy that is gone.
        _questions.put(None)
        _questions = None
        _asked.clear()
    if client is not None:
        _layouts[client] = set()
    _replace_or_restore()


def forbid(client: Any) -> None:
    """Make putting data on devices of `client` an error from now on; may be called on any thread."""
    with _lock:
        if client in _lost:
            return
        # Finalizers and weak references run in reverse order of registration. The WeakSet's own reference is made
        # second and so called first: `client` has left the set when the other one checks whether it is empty.
        weakref.finalize(client, _replace_or_restore).atexit = False
        _lost.add(client)
        _replace_or_restore()


def without_own(arrays: Sequence[Any]) -> list[Any]:
    """Leave out of `arrays` what only this module holds, for a moment.

    JAX usually gives its caller another array for the data that it has put. So an array whose layout is being asked for
    is left out where there is another one like it.
    """
    others = [_like(each) for each in arrays if id(each) not in _asked]
    return [each for each in arrays if id(each) not in _probes and not (id(each) in _asked and _like(each) in others)]


def _like(array: Any) -> tuple[Any, ...]:
    return array.shape, array.dtype, array.sharding


def _replace_or_restore() -> None:
    global _original
    jaxlib = jax_internals.load().client
    with _lock:
        needed = bool(_lost or _layouts)
        if needed and _original is None:
            _original, jaxlib.batched_device_put = jaxlib.batched_device_put, _put
        elif not needed and _original is not None:
            jaxlib.batched_device_put, _original = _original, None


def _put(aval: Any, sharding: Any, xs: Any, devices: Any, *args: Any, **kwargs: Any) -> Any:
    global _answered_at
    import jax
    import numpy as np

    # Taken once: another thread may restore it meanwhile.
    put = _original or jax_internals.load().client.batched_device_put
    device = devices[0] if devices else None
    client = None if device is None else device.client
    if client is not None and client in _lost:
        face, session = Face.SCRIPT if process.shell() is None else Face.NOTEBOOK, process.session()
        answer = None if session is None else session.verdict(SessionCommand.USE)
        if answer is not None and answer.does is Does.REFUSES:
            why, next_step = f"{device}: {answer.sentence}", answer.hint
        else:
            # That of an earlier proxy, or of an earlier session.
            why = f"{device} belongs to a proxy that is gone."
            next_step = advice("{reconnect} gets a new one; make meshes and shardings from jax.devices() again.")
        raise jax.errors.JaxRuntimeError(f"UNAVAILABLE: {why} {worded(next_step, face)}")
    known = None if client is None else _layouts.get(client)
    # Neither keys nor strings have a layout of their own.
    if known is None or jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended) or aval.dtype.kind == "T":
        return put(aval, sharding, xs, devices, *args, **kwargs)
    layout = (sharding.shard_shape(aval.shape), aval.dtype, sharding.memory_kind)
    if layout in known:
        return put(aval, sharding, xs, devices, *args, **kwargs)
    array = put(aval, sharding, xs, devices, *args, **kwargs)
    if not _is_fresh():
        began = time.monotonic()
        arriving = array
        if array.nbytes > _SMALL_BYTES:
            number, alone = np.zeros((), np.int8), jax.sharding.SingleDeviceSharding(device)
            arriving = put(jax.core.ShapedArray((), number.dtype), alone, [number], [device])
            _probes.add(id(arriving))
        try:
            arriving.block_until_ready()
        finally:
            _probes.discard(id(arriving))
        _answered_at = time.monotonic()
        _waits.append(_answered_at - began)
    known.add(layout)
    _ask(array, known, layout)
    return array


def _is_fresh() -> bool:
    """Return whether an answer has come within the last round trip: a tree of 100 arrays need not wait for 100 more."""
    return time.monotonic() - _answered_at <= min([_FRESH_SECONDS, *_waits])


def _ask(array: Any, known: set[Any], layout: Any) -> None:
    global _questions
    with _lock:
        if _questions is None:
            _questions = queue.SimpleQueue()
            ended = interrupts.InterruptibleEvent()
            arguments = (_questions, ended)
            threading.Thread(target=_ask_until_end, args=arguments, name="pathways-layouts", daemon=True).start()
            atexit.register(_end, *arguments, os.getpid())
        _asked.add(id(array))
        _questions.put((array, known, layout))


def _end(questions: queue.SimpleQueue[Any], ended: interrupts.InterruptibleEvent, process_id: int) -> None:
    """Let the thread end before Python does: coming out of jaxlib afterwards, it would abort the process."""
    questions.put(None)
    # A forked child has no such thread.
    if os.getpid() == process_id:
        ended.wait(_FRESH_SECONDS)


def _ask_until_end(questions: queue.SimpleQueue[Any], ended: interrupts.InterruptibleEvent) -> None:
    try:
        _ask_each(questions)
    finally:
        ended.set()


def _ask_each(questions: queue.SimpleQueue[tuple[Any, set[Any], Any] | None]) -> None:
    global _answered_at
    while (question := questions.get()) is not None:
        array, known, layout = question
        try:
            if not _is_fresh():
                array.block_until_ready()
            # In one step of the interpreter, so that no other thread deletes it in between: with JAX 0.10 the layout of
            # a deleted array ends the process.
            next(map(_layout, itertools.filterfalse(_is_deleted, [array])), None)
            _answered_at = time.monotonic()
        except Exception:
            # A server that knows no layouts, an array that was deleted or lost: JAX says so where it needs the layout.
            known.discard(layout)
        number = id(array)
        # Not kept until the next question.
        del array, question
        _asked.discard(number)
