"""Meshes, shardings, devices and compiled programs: all that JAX has placed on devices besides arrays."""

from __future__ import annotations

import contextlib
import gc
import itertools
import sys
import threading
import types
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pathways_jupyter.base import interrupts
from pathways_jupyter.base.text import some
from pathways_jupyter.saved.heap import RunningCall, calls, objects_of
from pathways_jupyter.saved.holders import OUTSIDE, Holders, described
from pathways_jupyter.saved.resize import Resize

_JAX = ("jax", "jaxlib")
ending: weakref.WeakKeyDictionary[Any, tuple[Any, ...]] = weakref.WeakKeyDictionary()
"""Objects that end with their proxy, and the containers of their arrays, which are not kept."""
of_calls: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Requests to hosts and their answers, by their ids: arrays that end with the call, and are none of the user's."""
copies: weakref.WeakSet[Any] = weakref.WeakSet()
"""Objects that hold some arrays more than once, such as an elastic run's snapshots; ``spare`` yields the others."""
runs: set[Any] = set()
"""Ends of the training runs of this process: ``thread`` is that of the run, and ``end`` ends it, with a snapshot."""
CALL_THREAD = "colocated-call"
"""Name of the threads that wait for calls on hosts."""


def find(devices: Sequence[Any]) -> list[Any]:
    """Return these devices, and the meshes, shardings and compiled programs on them that this process has."""
    import jax

    client, those, parts = devices[0].client, set(devices), list(devices)
    for each in objects_of((jax.sharding.Mesh, jax.sharding.Sharding, jax.stages.Compiled, jax.stages.Lowered)):
        if isinstance(each, jax.sharding.Mesh):
            has = those.issuperset(each.devices.flat) and each.devices.size
        elif isinstance(each, jax.sharding.Sharding):
            has = _devices_of(each) and those >= _devices_of(each)
        else:
            has = _client_of(each) is client
        if has:
            parts.append(each)
    return parts


def _devices_of(sharding: Any) -> set[Any]:
    try:
        return set(sharding.device_set)
    except (AttributeError, ValueError, NotImplementedError):
        # Of an abstract mesh, which has none.
        return set()


def _client_of(program: Any) -> Any:
    """Return the client that a compiled or lowered program is for; None if it does not say."""
    executable = getattr(program, "_executable", None)
    if executable is not None:
        return getattr(getattr(executable, "xla_executable", None), "client", None)
    arguments = getattr(getattr(program, "_lowering", None), "compile_args", None) or {}
    return arguments.get("backend")


def jaxs_own(arrays: Sequence[Any]) -> Callable[[Any, Any], bool]:
    """Return whether a holder is JAX's own: a table of what is not an array, or the list of an array's parts.

    Args:
      arrays: All arrays.
    """
    import jax

    # By their numbers: a list of arrays would be one more holder of them.
    by_parts: dict[Any, list[int]] = {}
    for number, each in enumerate(arrays):
        kind = len(each.sharding.device_set), each.sharding.shard_shape(each.shape), each.dtype
        by_parts.setdefault(kind, []).append(number)

    tables: set[int] = set()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _JAX and isinstance(module, types.ModuleType):
            tables.add(id(vars(module)))
            for each in list(vars(module).values()):
                tables.add(id(each))
                if isinstance(each, (weakref.WeakKeyDictionary, weakref.WeakValueDictionary)):
                    tables.add(id(vars(each)["data"]))

    def skip(holder: Any, held: Any) -> bool:
        if isinstance(holder, list) and isinstance(held, jax.Array):
            # JAX 0.12 keeps that list, older ones make another at each call.
            alike = by_parts.get((len(holder), held.shape, held.dtype), ())
            is_of_parts = any(arrays[number]._arrays is holder for number in alike)
            if is_of_parts:
                _inner[id(held)] = held
            return is_of_parts
        if isinstance(held, (jax.Array, tuple)) and not isinstance(holder, dict):
            return False
        return id(holder) in tables and not isinstance(held, jax.Array)

    return skip


_inner: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""The arrays that were found inside others, by their ids."""


def inner(arrays: Iterable[Any]) -> set[int]:
    """Return the ids of those of `arrays` that JAX keeps inside others, as far as that is known without making them.

    It does so once the shards of an array were looked at, and before 0.12 once it was fetched or printed.
    """
    import jax

    fetching_opens = jax.__version_info__ < (0, 12)
    for each in arrays:
        if "addressable_shards" in vars(each) or (fetching_opens and each._npy_value is not None):
            _parts(each)
    return {id(each) for each in arrays if id(each) in _inner}


def _parts(array: Any) -> set[int]:
    """Return the ids of the arrays inside `array`; where there are none yet, JAX makes them."""
    parts: list[Any] = []
    # It may be deleted on another thread.
    with contextlib.suppress(RuntimeError):
        parts += array._arrays
        if array.is_fully_replicated:
            parts.append(array._fully_replicated_shard())
        parts += [each._fully_replicated_shard() for each in parts]
    # An array on one chip may be its own part.
    inner = {id(each): each for each in parts if each is not array}
    _inner.update(inner)
    return inner.keys() | set()


def spare(lost: Container[int]) -> set[int]:
    """Return the ids of arrays that need not be kept, as another that is not `lost`, by its id, is the same."""
    return {id(each) for holder in list(copies) for each in holder.spare(lost)}


def runs_elsewhere() -> list[Any]:
    """Return the training loops of other threads than this one."""
    return [each for each in list(runs) if each.thread != threading.get_ident()]


def of_users(arrays: Sequence[Any]) -> list[Any]:
    """Return `arrays` without those of calls on hosts, which may not be ready for long."""
    called = [each for each in arrays if id(each) in of_calls]
    own = {id(each) for each in called} | {part for each in called for part in _parts(each)}
    return [each for each in arrays if id(each) not in own]


def hidden(arrays: Sequence[Any], holders: Holders) -> set[int]:
    """Return the ids of those of `arrays` that nothing holds but JAX, inside others."""
    suspects = {id(each): each for each in arrays if OUTSIDE in holders.fixed.get(id(each), ())}
    kinds = {(each.shape, each.dtype) for each in suspects.values()}
    alike = [
        each
        for each in arrays
        if not each.is_deleted() and (each.sharding.shard_shape(each.shape), each.dtype) in kinds
    ]
    return {part for each in alike for part in _parts(each)} & suspects.keys()


@contextlib.contextmanager
def without_shards(arrays: Sequence[Any]) -> Iterator[None]:
    """Context manager over a search for who holds the shards of `arrays`: these themselves forget them."""
    # Not the arrays: this would be one more holder of them.
    had = [number for number, each in enumerate(arrays) if vars(each).pop("addressable_shards", None) is not None]
    yield
    for number in had:
        # JAX finds them again.
        with contextlib.suppress(RuntimeError):
            arrays[number].addressable_shards  # noqa: B018


def stuck(parts: Iterable[Any], holders: Holders) -> list[str]:
    """Describe what will still point at the old proxy, a sentence each: programs, and variables that cannot be set."""
    import jax

    sentences, programs = [], []
    for each in parts:
        if id(each) not in holders.held:
            continue
        name = holders.names.get(id(each), "")
        if isinstance(each, (jax.stages.Compiled, jax.stages.Lowered)):
            programs.append(name or "one without a name")
            continue
        kinds = (RunningCall, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
        sentences += [
            f"a {type(each).__name__}, held by {described(holder)}"
            for holder in holders.fixed.get(id(each), ())
            if isinstance(holder, kinds) and not _is_jaxs(holder)
        ]
    if programs:
        sentences.append(f"programs that were compiled for this proxy: {some(programs)}")
    return list(dict.fromkeys(sentences))


def computing(devices: Sequence[Any]) -> set[str]:
    """Return what computes elsewhere: other threads that run a function of the user's with an array on these devices.

    And calls on hosts that another thread waits for.
    """
    import jax

    those, running = set(devices), calls()
    return {"a call on the hosts" for call in running if call.thread == CALL_THREAD} | {
        f"thread {call.thread}"
        for call in running
        if call.thread not in {"", CALL_THREAD} and call.computes
        for value in call.variables.values()
        if isinstance(value, jax.Array) and not those.isdisjoint(value.sharding.device_set)
    }


def _is_jaxs(holder: Any) -> bool:
    if isinstance(holder, RunningCall):
        return holder.module.partition(".")[0] in _JAX
    code = next(getattr(holder, name) for name in ("gi_code", "cr_code", "ag_code") if hasattr(holder, name))
    return any(f"/{each}/" in code.co_filename for each in _JAX)


def are_held(arrays: Sequence[Any]) -> bool:
    """Return whether anything holds one of these arrays besides this sequence."""
    # A new object's count shows which references this makes itself.
    usual, *counts = (sys.getrefcount(each) for each in itertools.chain((object(),), arrays))
    return any(each > usual for each in counts)


class Placed:
    """All that is on the devices of a proxy, and its holders, so that it can be moved to the devices of another.

    Finding takes half a second of a process with JAX: do it while the other proxy starts.

    Args:
      slices: The proxy's devices, by slice.
      arrays: The arrays to move too; without them only meshes, shardings and programs are.
    """

    def __init__(self, slices: Sequence[Sequence[Any]], arrays: Sequence[Any] = ()) -> None:
        # What only garbage holds has no place.
        gc.collect()
        self._slices, self._arrays = slices, {id(each) for each in arrays}
        self._devices = [device for each in slices for device in each]
        parts = find(self._devices)
        self._holders = Holders([*arrays, *parts], own=(arrays, parts, self._devices), skip=jaxs_own(()))

    def move(self, slices: Sequence[Sequence[Any]], arrays: Mapping[int, Any] | None = None) -> set[int]:
        """Put it onto these devices, wherever it is held.

        Args:
          slices: The devices of the present proxy, by slice.
          arrays: What takes the place of arrays, by their ids.

        Returns:
          The ids of the arrays that were held somewhere.
        """
        resize = Resize(len(self._slices), len(slices), len(self._slices[0]))
        mover = resize.mover(self._devices, [device for each in slices for device in each])
        new = arrays or {}
        # Not some of them: names of one array would become names of two when it is tried again.
        with interrupts.defer_sigint(), _programs_follow():
            done = self._holders.replace(lambda value: new[id(value)] if id(value) in new else mover(value))
        return done & self._arrays


@contextlib.contextmanager
def _programs_follow() -> Iterator[None]:
    """Context manager over a change of shardings: jitted functions that had some of them forget what they compiled."""
    import jax

    functions = [(each, vars(each).get("_jit_info")) for each in objects_of((type(jax.jit(lambda: None)),))]
    yield
    for function, info in functions:
        if vars(function).get("_jit_info") is not info:
            function.clear_cache()


def worth_naming(variables: Mapping[str, Any], arrays: Sequence[Any], largest: int) -> dict[str, Any]:
    """Return the variables that hold one of `arrays`, and plain values; without those with much that is on no TPU."""
    import jax
    import numpy as np

    known, named = {id(each) for each in arrays}, {}
    for name, value in variables.items():
        if value is None or isinstance(value, (bool, int, float, str)):
            if not isinstance(value, str) or len(value) < 10_000:
                named[name] = value
            continue
        try:
            leaves = jax.tree.leaves(value)
        except Exception:
            # A user's own class may raise when it is taken apart.
            continue
        has = any(id(each) in known or id(getattr(each, "_base_array", None)) in known for each in leaves)
        if has and sum(each.nbytes for each in leaves if isinstance(each, np.ndarray)) <= largest:
            named[name] = value
    return named
