"""Running a cell or a function here: capture, stop, failure, value and arrays."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental.colocated_python import serialization

from . import failures, namespaces, outputs, prefetching, rich, stoppable, streams
from .transcript import Transcript
from .value_writer import Writer

_MAX_VALUE = 1 << 20
"""Most bytes of a cell's value; a larger one is only shown."""

Done = tuple[dict[str, Any], list[bytes]]
"""An answer: JSON values and binary parts."""
objects: dict[str, Any] = {}
"""Objects that the notebook has a handle to, by its key; they stay in this process from call to call."""


def held(key: str) -> Any:
    """Return an object that the notebook has a handle to.

    Raises:
      LookupError: It is not here: the sidecar restarted, or the session was reconnected, since it was made.
    """
    try:
        return objects[key]
    except KeyError:
        raise LookupError(
            "This object is not on this host any more: the sidecar restarted, or the session was reconnected."
        ) from None


def cell(head: dict[str, Any], blobs: list[bytes], inputs: tuple[Any, ...], mesh: Any) -> Done:
    """Run a cell in its session's namespace."""
    session = head["session"]
    writer = Writer(outputs.is_array, own=head["own"], unpickle=head["unpickle"])
    written: dict[str, Any] = {}

    def work() -> tuple[Any, list[dict[str, Any]]]:
        names = namespaces.space(session)
        values, trees = serialization._deserialize(blobs[0]) if head["values"] else ({}, {})
        names.update(_variables(head, inputs, values, trees))
        value = namespaces.run(session, head["source"], head["filename"])
        shown, values = outputs.split(head["outputs"], names, writer)
        written.update(values)
        return value, outputs.keep(head["call"], shown, mesh, inputs) if shown else []

    answer, parts = _run(head, work, show=True)
    # Their parts are the last.
    answer["written"], answer["parts"] = written, len(parts)
    return answer, [*parts, *(writer.parts if answer["error"] is None else ())]


def function(head: dict[str, Any], blobs: list[bytes], inputs: tuple[Any, ...], mesh: Any) -> Done:
    """Call a function that came with the request; its result goes back as a tree of values and arrays."""
    namespaces.remember(head["source"], head["filename"])

    def work() -> tuple[Any, list[dict[str, Any]]]:
        called, values, trees = serialization._deserialize(blobs[0])
        if head["object"]:
            if _index(head, mesh) in head["make"]:
                made, made_args, made_kwargs = serialization._deserialize(blobs[1])
                objects[head["object"]] = made(*made_args, **made_kwargs)
            called = getattr(held(head["object"]), called)
        variables = _variables(head, inputs, values, trees)
        args = [variables.pop(f"argument {index}") for index in range(head["positional"])]
        result = namespaces.placed(called, head["filename"])(*args, **variables)
        writer = Writer(lambda value: isinstance(value, jax.Array), own=head["own"], unpickle=head["unpickle"])
        written = writer.write(result, "result")
        # Sorted, since a dict may have another order on another host.
        arrays = dict(sorted(writer.arrays.items()))
        specs = outputs.keep(head["call"], arrays, mesh, inputs) if arrays else []
        return (written, writer.parts), specs

    answer, parts = _run(head, work, show=False)
    answer["held"] = head["object"] in objects
    return answer, parts


def _index(head: dict[str, Any], mesh: Any) -> int:
    """Return the place of this host among those of the call."""
    counts, local = head["counts"], set(mesh.local_devices)
    return next(index for index in range(len(counts)) if mesh.devices.flat[sum(counts[:index])] in local)


def _variables(
    head: dict[str, Any], inputs: tuple[Any, ...], values: dict[str, Any], trees: dict[str, Any]
) -> dict[str, Any]:
    """Put variables together again that `trees.py` has taken apart; an input that is in none is one by itself."""
    arrays = dict(zip(head["inputs"], inputs, strict=True))
    for name, (tree, leaves, keys) in trees.items():
        for index, key in keys.items():
            leaves[index] = arrays.pop(key)
        values[name] = jax.tree_util.tree_unflatten(tree, leaves)
    return values | arrays


def open_iterator(head: dict[str, Any], blobs: list[bytes], inputs: tuple[Any, ...], mesh: Any) -> Done:
    """Start a data-loading iterator; describe its batches."""
    namespaces.remember(head["source"], head["filename"])
    host, count = _index(head, mesh), len(head["counts"])

    def work() -> tuple[Any, list[dict[str, Any]]]:
        make = namespaces.placed(serialization._deserialize(blobs[0]), head["filename"])
        prefetcher = objects[head["object"]] = prefetching.Prefetcher(lambda: make(host, count), head["ahead"])
        try:
            leaves, tree = jax.tree_util.tree_flatten(prefetcher.first())
        except StopIteration:
            raise ValueError("The iterator has no batch at all.") from None
        arrays = [np.asarray(leaf) for leaf in leaves]
        # Of a batch the notebook needs only how it is built: each array stands for its index.
        writer = Writer(own=head["own"], unpickle=head["unpickle"])
        written = writer.write(jax.tree_util.tree_unflatten(tree, range(len(arrays))), "batch")
        return (written, writer.parts), [{"shape": list(each.shape), "dtype": str(each.dtype)} for each in arrays]

    return _run(head, work, show=False)


def _run(head: dict[str, Any], work: Callable[[], tuple[Any, list[dict[str, Any]]]], *, show: bool) -> Done:
    """Run `work`, which returns a value and what the arrays are that it kept; without `show` the value is written."""
    # The container's log: that is where this process's own output goes.
    log = getattr(sys.stdout, "original", sys.stdout) if head["live"] else None
    transcript = Transcript(head["call"], log=log)
    answer: dict[str, Any] = {"error": None, "value": None, "result": None, "outputs": []}
    parts: list[bytes] = []

    def captured() -> None:
        # As wide as the notebook's numbers; what a cell has switched on here stays on.
        wide = jax.enable_x64(True) if head["x64"] else contextlib.nullcontext()
        with streams.written_to(transcript), wide:
            before = rich.prepare_figures()
            value, answer["outputs"] = work()
            rich.show_figures(before, value)
            if not show:
                answer["result"], blobs = value
                parts.extend(blobs)
            elif value is not None:
                transcript.display(rich.bundle(value))
                writer = Writer(own=head["own"], unpickle=head["unpickle"], limit=_MAX_VALUE)
                answer["value"] = {"written": None}
                # One that cannot be sent is shown, which is what a cell's value is for; it stays on the host.
                with contextlib.suppress(Exception):
                    answer["value"] = {"written": writer.write(value, "value")}
                    parts.extend(writer.parts)

    try:
        stoppable.Job(head["call"]).run(captured, head["filename"])
    except BaseException as error:
        failure = answer["error"] = failures.describe(error, head["filename"])
        transcript.note(
            f"failed, while others may still run: {failure['type']}: {failure['message'].partition(chr(10))[0]}"
        )
        answer["outputs"], answer["value"], answer["result"] = [], None, None
        parts.clear()
    answer["transcript"], blobs = transcript.close()
    answer["displays"] = len(parts)
    return answer, [*parts, *blobs]
