"""The arrays that connecting or disconnecting affects, as one or two lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from pathways_jupyter.base.text import count
from pathways_jupyter.render.parts import Tone, indented, line, toned
from pathways_jupyter.render.view import View, drawn
from pathways_jupyter.session.kernel.user_arrays import NamedArray, described


def switched(unusable: Sequence[NamedArray], left: Sequence[NamedArray]) -> list[str]:
    """Describe what happened to the user's arrays, one line for each outcome; empty when no array is affected."""
    lines = []
    if unusable:
        lines.append(f"{count(len(unusable), 'array')} became unusable: {described(unusable)}")
    if left:
        verb = "stays where it was" if len(left) == 1 else "stay where they were"
        lines.append(f"{count(len(left), 'array')} {verb} (jax.device_put moves them): {described(left)}")
    return lines


def elsewhere(arrays: Sequence[NamedArray]) -> list[str]:
    """Why JAX cannot use arrays made before the session, in two lines; empty when there are none."""
    if not arrays:
        return []
    first = arrays[0].variable
    return [
        f"{count(len(arrays), 'array')} made before this notebook connected: {described(arrays)}",
        f"JAX does not move them to the TPUs by itself: {first} = jax.device_put({first}, jax.devices()[0]) does.",
    ]


def lost(arrays: Sequence[NamedArray]) -> list[str]:
    """Why JAX cannot use arrays of an earlier proxy, in two lines; empty when there are none."""
    if not arrays:
        return []
    verb, them = ("was", "it") if len(arrays) == 1 else ("were", "them")
    return [
        f"{count(len(arrays), 'array')} {verb} on a proxy that is gone, and lost with it: {described(arrays)}",
        f"Run the cells that make {them} again; meshes and shardings too.",
    ]


def disconnected(session: str, unusable: Sequence[NamedArray], remains: str, *, saved_as: str = "") -> View:
    """Return the result of ``%pathways disconnect``.

    Args:
      remains: What could not be removed from the cluster, and why.
      saved_as: The save with the arrays of a session that was suspended.
    """
    lines = switched(unusable, ())
    if saved_as:
        load = f"%pathways load {saved_as}"
        lines.append(f"The arrays stay in the save {saved_as}: {load} sets them as a list, arrays, in another session.")
    if remains:
        lines.append(f"Not everything could be removed: {remains}")
    title = line(toned(Tone.OK), f"Session {session} is over; JAX is as it was before.")
    return drawn(None, title, *(indented(line(toned(Tone.WARN), each)) for each in lines))


def notes(lines: Sequence[str]) -> View:
    """Lines marked as warnings."""
    return drawn(None, *(line(toned(Tone.WARN), each) for each in lines))
