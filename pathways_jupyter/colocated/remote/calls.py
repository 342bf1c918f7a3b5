"""Running a cell or a function here: capture, stop, failure, value and arrays."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import jax
from jax.experimental.colocated_python import serialization

from . import failures, feeds, kept, namespaces, plain, returned, rich, stoppable, streams
from .transcript import Transcript

_MAX_VALUE = 1 << 20
"""Most bytes of a cell's value; a larger one is only shown."""


def cell(
    head: dict[str, Any], blobs: list[bytes], inputs: tuple[Any, ...], mesh: Any
) -> tuple[dict[str, Any], list[bytes]]:
    """Runs a cell in its session's namespace."""
    session, filename = head["session"], head["filename"]

    writer = plain.Writer(returned.is_array, own=head["own"], unpickle=head["unpickle"])
    written: dict[str, Any] = {}

    def work() -> tuple[Any, list[dict[str, Any]]]:
        names = namespaces.space(session)
        given = dict(zip(head["inputs"], inputs, strict=True))
        if head["values"]:
            values, trees = serialization._deserialize(blobs[0])
            names.update(values)
            for name, (tree, leaves, places) in trees.items():
                for place, key in places.items():
                    leaves[place] = given.pop(key)
                names[name] = jax.tree_util.tree_unflatten(tree, leaves)
        names.update(given)
        value = namespaces.run(session, head["source"], filename)
        found, values = returned.split(head["outputs"], names, writer)
        written.update(values)
        return value, returned.keep(head["call"], found, mesh, inputs) if found else []

    answer, parts = _run(head, work, filename, show=True)
    # Their parts are the last.
    answer["written"], answer["parts"] = written, len(parts)
    return answer, [*parts, *(writer.parts if answer["error"] is None else ())]


def function(
    head: dict[str, Any], blobs: list[bytes], inputs: tuple[Any, ...], mesh: Any
) -> tuple[dict[str, Any], list[bytes]]:
    """Calls a function that came with the request; its result goes back as a tree of values and arrays."""

    namespaces.remember(head["source"], head["filename"])

    def work() -> tuple[Any, list[dict[str, Any]]]:
        called, tree, leaves, places = serialization._deserialize(blobs[0])
        if head["object"]:
            if len(blobs) > 1:
                made, made_args, made_kwargs = serialization._deserialize(blobs[1])
                kept.add(head["object"], made(*made_args, **made_kwargs))
            called = getattr(kept.get(head["object"]), called)
        for place, array in zip(places, inputs, strict=True):
            leaves[place] = array
        args, kwargs = jax.tree_util.tree_unflatten(tree, leaves)
        result = called(*args, **kwargs)
        writer = plain.Writer(lambda value: isinstance(value, jax.Array), own=head["own"], unpickle=head["unpickle"])
        written = writer.write(result, "result")
        # Sorted, since a dict may have another order on another host.
        arrays = dict(sorted(writer.arrays.items()))
        specs = returned.keep(head["call"], arrays, mesh, inputs) if arrays else []
        return (written, writer.parts), specs

    return _run(head, work, head["filename"], show=False)


def open_feed(head: dict[str, Any], blobs: list[bytes], mesh: Any) -> tuple[dict[str, Any], list[bytes]]:
    """Start a data-loading iterator; describe its batches."""
    namespaces.remember(head["source"], head["filename"])
    host, count = _place(head["counts"], mesh)

    def work() -> tuple[Any, list[dict[str, Any]]]:
        make = serialization._deserialize(blobs[0])
        feed = feeds.Feed(lambda: make(host, count), head["ahead"])
        kept.add(head["object"], feed)
        try:
            tree, specs = feeds.describe(feed.first())
        except StopIteration:
            raise ValueError("The iterator has no batch at all.") from None
        # Of a batch the notebook needs only how it is built: each array stands for its place.
        writer = plain.Writer(own=head["own"], unpickle=head["unpickle"])
        return (writer.write(jax.tree_util.tree_unflatten(tree, range(len(specs))), "batch"), writer.parts), specs

    return _run(head, work, head["filename"], show=False)


def _place(counts: list[int], mesh: Any) -> tuple[int, int]:
    """This host's place among the hosts of the call, and their number."""
    local, first = set(mesh.local_devices), 0
    for place, count in enumerate(counts):
        if mesh.devices.flat[first] in local:
            return place, len(counts)
        first += count
    raise LookupError("This host is not one of the call's.")


def _run(
    head: dict[str, Any], work: Callable[[], tuple[Any, list[dict[str, Any]]]], filename: str, *, show: bool
) -> tuple[dict[str, Any], list[bytes]]:
    log = streams.container_log() if head["live"] else None
    transcript = Transcript(head["call"], limit=head["limit"], log=log, display_limit=head.get("display_limit", 0))
    answer: dict[str, Any] = {"error": None, "value": None, "outputs": []}
    parts: list[bytes] = []

    def captured() -> None:
        # As wide as the notebook's numbers; what a cell has switched on here stays on.
        wide = jax.enable_x64(True) if head["x64"] else contextlib.nullcontext()
        with streams.written_to(transcript), wide:
            before = rich.prepare_figures()
            value, answer["outputs"] = work()
            rich.show_figures(before, value)
            if show:
                answer["value"] = _value(head, value, transcript, parts)
            else:
                written, blobs = value
                answer["value"] = {"written": written, "sent": True, "shown": False}
                parts.extend(blobs)

    try:
        stoppable.Job(head["call"]).run(captured, filename)
    except BaseException as error:
        failure = answer["error"] = failures.describe(error, filename)
        transcript.note(
            f"failed, while others may still run: {failure['type']}: {failure['message'].partition(chr(10))[0]}"
        )
        answer["outputs"], answer["value"] = [], None
        parts.clear()
    answer["transcript"], blobs = transcript.close()
    answer["displays"] = len(parts)
    return answer, [*parts, *blobs]


def _value(head: dict[str, Any], value: Any, transcript: Transcript, parts: list[bytes]) -> dict[str, Any] | None:
    if value is None:
        return None
    transcript.display(rich.bundle(value))
    writer = plain.Writer(own=head["own"], unpickle=head["unpickle"], limit=_MAX_VALUE)
    try:
        written = writer.write(value, "value")
    except Exception:
        # It is shown, which is what a cell's value is for; it stays on the host.
        return {"written": None, "sent": False, "shown": True}
    parts.extend(writer.parts)
    return {"written": written, "sent": True, "shown": True}
