"""Arrays that TPU hosts write to a bucket and read from there, bit by bit, without this process.

An array of a type that hosts cannot write travels as one of its bits: a PRNG key as its numbers, ``float8`` as
``uint8``. Devices are named by their positions among the session's, so that other slices of the same kind serve.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from pathways_jupyter.base import shardings, tasks
from pathways_jupyter.base.events import Transfer

_TIMEOUT = datetime.timedelta(hours=1)
_MOST_DIMENSIONS = 32
_NARROW = {"bool": "uint8", "int4": "int8", "uint4": "uint8", "int2": "int8", "uint2": "uint8"}
"""Types that are written as wider ones with the same values."""
_MOST_PIECES, _LEAST_PIECE_BYTES = 8, 64 << 20
"""Arrays are written and read in so many pieces at most, to see how far it is; more where their devices differ."""
_MOST_THREADS = 16
_LEAST_BYTES = 1 << 20
"""Fewer bytes are written so fast that their pace says nothing of others."""
_rates: dict[tuple[str, str], float] = {}
"""Bytes a second, by what was done and where, as of the last time."""

WAIT, WRITE, READ = "wait for what is being computed", "write the arrays", "read the arrays"

Report = Callable[[str, Transfer | str], None]
"""Called with what is done at the moment, and how far it is; empty where that is not known. On any thread."""
_Piece = TypeVar("_Piece")
_Begun = TypeVar("_Begun")
_Done = Callable[[int, int], None]
"""Called with the bytes that are done, and with all: first, and after each piece."""


def seconds(title: str, bucket: str, nbytes: int) -> float | None:
    """Return how long it takes to write or read so much in `bucket`, at the last pace there; None if unknown."""
    rate = _rates.get((title, bucket))
    return None if rate is None else nbytes / rate


def progress(title: str, bucket: str, report: Report | None) -> _Done:
    """Return what reports how far hosts are, and remembers how fast they were in `bucket`; the time begins now.

    Args:
      title: :data:`WRITE` or :data:`READ`.
    """
    began = time.monotonic()

    def done(nbytes: int, total: int) -> None:
        if nbytes >= _LEAST_BYTES:
            _rates[title, bucket] = nbytes / max(time.monotonic() - began, 1e-6)
        left = seconds(title, bucket, total - nbytes) if total > nbytes else None
        if report is not None:
            report(title, Transfer(nbytes, total, left))

    return done


def describe(array: Any, devices: Sequence[Any], lost: Mapping[int, str]) -> dict[str, Any]:
    """Return as JSON values what :func:`read` needs to know of `array`, which is on some of `devices`.

    Args:
      lost: What :func:`lost` has returned.

    Raises:
      TypeError, ValueError: It cannot be saved; the message is the end of a sentence.
    """
    import jax

    if isinstance(array, jax.core.Tracer):
        raise TypeError("is a tracer")
    if array.is_deleted():
        raise ValueError("has no data any more")
    if id(array) in lost:
        raise ValueError(lost[id(array)])
    if not set(devices).issuperset(array.sharding.device_set):
        raise ValueError("is not on the session's TPUs")
    dtype, position = _type_of(array), {device: number for number, device in enumerate(devices)}
    _plain_form(dtype)
    return {
        "shape": list(array.shape),
        "dtype": dtype,
        "sharding": shardings.write(array.sharding, position.__getitem__),
        "committed": bool(array.committed),
        "weak": shardings.is_weak(array),
    }


def lost(arrays: Sequence[Any], *, on: str = "a slice that went down") -> dict[int, str]:
    """Return by their ids which arrays will never have values, and why, as the end of a sentence; waits for the others.

    None is named where the proxy does not answer: what is done next says so. An Interrupt ends the wait.

    Args:
      on: Where those were that are lost with a slice.
    """
    present = [each for each in arrays if not each.is_deleted()]
    # A key answers by itself, as a single array does.
    values = [getattr(each, "_base_array", each) for each in present]

    def ask() -> list[str]:
        return _at_once(lambda each: _reason([each], on), values) if values and _reason(values, on) else []

    reasons = zip(present, tasks.abandonable(ask, name="pathways-values"), strict=False)
    return {id(each): reason for each, reason in reasons if reason}


def _reason(arrays: Sequence[Any], on: str) -> str:
    """Return why one of these arrays has no value; empty if all have, or nothing is known."""
    import jax

    try:
        # Twice: a single one would answer by itself, from what it knew before its slice went down.
        jax.block_until_ready([*arrays, *arrays])
    except RuntimeError as error:
        said = str(error).partition("\n")[0]
        if "DATA_LOSS" in said:
            return f"was on {on}, and is lost"
        return "" if "UNAVAILABLE" in said else f"was not computed: {said}"
    return ""


def write(location: str, arrays: Sequence[Any], done: _Done) -> None:
    """Have the hosts write each array to `location`, under its index; empty arrays have nothing to write.

    Raises:
      JaxRuntimeError: The hosts or the proxy failed, or do not offer it.
    """
    import jax
    from orbax.checkpoint._src.serialization import cloud_pathways_helper

    plain = {}
    for number, array in enumerate(arrays):
        if array.size:
            to_plain = _plain_form(_type_of(array))[0]
            plain[number] = jax.jit(to_plain, out_shardings=array.sharding)(array) if to_plain else array

    def begin(piece: Mapping[int, Any]) -> Any:
        return cloud_pathways_helper.write_arrays(location, list(map(str, piece)), list(piece.values()), _TIMEOUT)

    pieces = _pieces(plain, {number: each.sharding for number, each in plain.items()})
    written = _at_once(begin, [piece for piece, _ in pieces])
    _wait(written, [nbytes for _, nbytes in pieces], done)


def read(
    location: str, described: Mapping[int, Mapping[str, Any]], devices: Sequence[Any], done: _Done
) -> dict[int, Any]:
    """Have the hosts read what :func:`write` wrote to `location`; return the arrays by their indices there.

    Args:
      described: What each is, by its index.

    Raises:
      LookupError, TypeError, ValueError: `described` is not what :func:`describe` returned, or names more devices.
      JaxRuntimeError: The hosts or the proxy failed.
    """
    import jax
    import numpy as np
    from orbax.checkpoint._src.serialization import cloud_pathways_helper
    from orbax.checkpoint._src.serialization.cloud_pathways_plugin_executable import PluginExecutable

    by_position, in_chips = dict(enumerate(devices)), devices[0].default_memory().kind
    made, plain, on, read_on, weak = {}, {}, {}, {}, {}
    for number, each in described.items():
        if (needed := max(each["sharding"]["devices"]) + 1) > len(devices):
            raise LookupError(f"it was saved from at least {needed} chips, and here are {len(devices)}")
        dtype, sharding = str(each["dtype"]), shardings.read(each["sharding"], by_position)
        expected = jax.ShapeDtypeStruct(_shape(each["shape"]), _jax_type(dtype))
        weak[number] = bool(each["weak"])
        # Checks that the one fits the other.
        sharding.shard_shape(expected.shape)
        to_plain = _plain_form(dtype)[0]
        form, on[number] = jax.eval_shape(to_plain, expected) if to_plain else expected, sharding
        # Whatever memory is asked for, hosts read into that of the chips.
        read_on[number] = sharding.with_memory_kind(in_chips)
        if expected.size:
            plain[number] = form
        else:
            made[number] = jax.device_put(np.zeros(form.shape, form.dtype), sharding)

    def begin(piece: Mapping[int, Any]) -> tuple[Sequence[Any], Any]:
        shardings = [read_on[number] for number in piece]
        request = cloud_pathways_helper.get_bulk_read_request(
            location,
            list(map(str, piece)),
            [each.dtype for each in piece.values()],
            [each.shape for each in piece.values()],
            shardings,
            np.array(_ordered_devices(shardings[0]), object),
            _TIMEOUT,
        )
        # Not Orbax's read_arrays, which leaves a mesh with explicit axes and the memory out of the arrays' types.
        types = [
            jax.typeof(jax.ShapeDtypeStruct(each.shape, each.dtype, sharding=sharding, weak_type=weak[number]))
            for (number, each), sharding in zip(piece.items(), shardings, strict=True)
        ]
        begun: tuple[Sequence[Any], Any] = PluginExecutable(request).call((), shardings, types)
        return begun

    pieces = _pieces(plain, read_on)
    begun = _at_once(begin, [piece for piece, _ in pieces])
    for (piece, _), (arrays, _) in zip(pieces, begun, strict=True):
        made |= zip(piece, arrays, strict=True)
    kinds = {
        (each.sharding.shard_shape(each.shape), each.dtype, each.sharding.memory_kind): each for each in made.values()
    }
    _at_once(_ask_layout, list(kinds.values()))
    _wait([future for _, future in begun], [nbytes for _, nbytes in pieces], done)
    for number, each in described.items():
        if from_plain := _plain_form(str(each["dtype"]))[1]:
            made[number] = jax.jit(from_plain, out_shardings=on[number])(made[number])
        elif made[number].sharding.memory_kind != on[number].memory_kind:
            made[number] = jax.device_put(made[number], on[number])
        made[number] = shardings.typed(made[number], weak_type=weak[number], committed=bool(each["committed"]))
    by_index: dict[int, Any] = jax.block_until_ready(made)
    return by_index


def _ask_layout(array: Any) -> None:
    """Ask the proxy how an array lies in memory, which jaxlib keeps.

    Otherwise it asks before the first program with such an array, with Python's lock held, and before JAX 0.12 a proxy
    that is lost at that moment ends the process.
    """
    # Not known to each server; that the proxy is lost shows where the arrays are waited for.
    with contextlib.suppress(Exception):
        _ = array._pjrt_layout


def _pieces(arrays: Mapping[int, Any], on: Mapping[int, Any]) -> list[tuple[dict[int, Any], int]]:
    """Return parts of `arrays` with one order of devices each, and their bytes; `on` has the shardings."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for number in arrays:
        groups.setdefault(_ordered_devices(on[number]), []).append(number)
    sizes = {number: math.prod(each.shape) * each.dtype.itemsize for number, each in arrays.items()}
    most = max(_LEAST_PIECE_BYTES, sum(sizes.values()) // _MOST_PIECES)
    pieces = []
    for group in groups.values():
        piece: dict[int, Any] = {}
        filled = 0
        for number in group:
            if piece and filled + sizes[number] > most:
                pieces.append((piece, filled))
                piece, filled = {}, 0
            piece[number] = arrays[number]
            filled += sizes[number]
        pieces.append((piece, filled))
    return pieces


def _at_once(call: Callable[[_Piece], _Begun], pieces: Sequence[_Piece]) -> list[_Begun]:
    """Call `call` for each piece, on several threads, because each call waits for round trips to the proxy."""
    waiting: queue.SimpleQueue[tuple[_Piece, Future[_Begun]]] = queue.SimpleQueue()
    futures: list[Future[_Begun]] = [Future() for _ in pieces]
    for each in zip(pieces, futures, strict=True):
        waiting.put(each)

    def work() -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                piece, future = waiting.get_nowait()
                try:
                    future.set_result(call(piece))
                except BaseException as error:
                    future.set_exception(error)

    for _ in range(min(_MOST_THREADS, len(pieces))):
        # Not those of a pool, for which the end of this process would wait, however long the proxy does not answer.
        threading.Thread(target=work, name="pathways-pieces", daemon=True).start()
    return [each.result() for each in futures]


def _wait(futures: Sequence[Any], sizes: Sequence[int], done: _Done) -> None:
    """Wait for the future of each piece; `sizes` are their bytes."""
    total, so_far = sum(sizes), 0
    done(so_far, total)
    for future, nbytes in zip(futures, sizes, strict=True):
        future.result()
        so_far += nbytes
        done(so_far, total)


def _type_of(array: Any) -> str:
    """Return the name of the array's type; ``key:IMPLEMENTATION`` for PRNG keys."""
    import jax

    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        return f"key:{jax.random.key_impl(array)}"
    return str(array.dtype)


def _jax_type(dtype: str) -> Any:
    import jax
    import numpy as np

    if dtype.startswith("key:"):
        return jax.eval_shape(lambda: jax.random.key(0, impl=dtype.removeprefix("key:"))).dtype
    numpy_type = np.dtype(dtype)
    if jax.dtypes.canonicalize_dtype(numpy_type) != numpy_type:
        raise ValueError(f'arrays of {dtype} need jax.config.update("jax_enable_x64", True)')
    return numpy_type


_Convert = Callable[[Any], Any] | None


def _plain_form(dtype: str) -> tuple[_Convert, _Convert]:
    """Return what makes an array that hosts write of one of this type, and what makes it one again; None: it is one.

    Raises:
      TypeError, ValueError: There is no such array.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    if dtype.startswith("key:"):
        return jax.random.key_data, lambda data: jax.random.wrap_key_data(data, impl=dtype.removeprefix("key:"))
    if dtype in _NARROW:
        return lambda array: array.astype(_NARROW[dtype]), lambda array: array.astype(dtype)
    if dtype in ("complex64", "complex128"):
        return (
            lambda array: jnp.stack([array.real, array.imag], -1),
            lambda array: jax.lax.complex(array[..., 0], array[..., 1]),
        )
    plain = np.dtype(dtype)
    if dtype.startswith("float8") or dtype == "float16":
        bits = f"uint{8 * plain.itemsize}"
        return (
            lambda array: jax.lax.bitcast_convert_type(array, bits),
            lambda array: jax.lax.bitcast_convert_type(array, plain),
        )
    if dtype.startswith("float4"):
        return (
            lambda array: jax.lax.bitcast_convert_type(array, "uint4").astype("uint8"),
            lambda array: jax.lax.bitcast_convert_type(array.astype("uint4"), plain),
        )
    if dtype != "bfloat16" and plain.kind not in "iuf":
        raise TypeError(f"is an array of {dtype}, which hosts cannot write")
    return None, None


def _ordered_devices(sharding: Any) -> tuple[Any, ...]:
    import jax

    return tuple(
        sharding.mesh.devices.flat if isinstance(sharding, jax.sharding.NamedSharding) else sharding.device_set
    )


def _shape(written: Any) -> tuple[int, ...]:
    shape = tuple(written)
    if len(shape) > _MOST_DIMENSIONS or any(type(each) is not int or not 0 <= each < 1 << 48 for each in shape):
        raise ValueError("no shape")
    return shape
