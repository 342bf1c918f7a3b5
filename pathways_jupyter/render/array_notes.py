"""The arrays that connecting or disconnecting affects, as one or two lines of text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pathways_jupyter.base.text import count, some
from pathways_jupyter.render.parts import Tone, indented, line, toned
from pathways_jupyter.render.view import View, drawn
from pathways_jupyter.session.kernel.user_arrays import NamedArray

_MANY = 8
_FEW = 2
_VARIABLE = re.compile(r"\w*")


def switched(unusable: Sequence[NamedArray], left: Sequence[NamedArray]) -> list[str]:
    """What happened to the user's arrays, one line for each outcome; empty when no array is affected."""
    lines = []
    if unusable:
        lines.append(f"{count(len(unusable), 'array')} became unusable: {_named(unusable)}")
    if left:
        verb = "stays where it was" if len(left) == 1 else "stay where they were"
        lines.append(f"{count(len(left), 'array')} {verb} (jax.device_put moves them): {_named(left)}")
    return lines


def elsewhere(arrays: Sequence[NamedArray]) -> list[str]:
    """Why JAX cannot use arrays made before the session, in two lines; empty when there are none."""
    if not arrays:
        return []
    first = _VARIABLE.match(arrays[0].name)[0]  # type: ignore[index]
    return [
        f"{count(len(arrays), 'array')} made before this notebook connected: {_named(arrays)}",
        f"JAX does not move them to the TPUs by itself: {first} = jax.device_put({first}, jax.devices()[0]) does.",
    ]


def disconnected(session: str, unusable: Sequence[NamedArray], remains: str) -> View:
    """The result of ``%pathways disconnect``.

    Args:
      remains: What could not be removed from the cluster, and why.
    """
    lines = switched(unusable, ())
    if remains:
        lines.append(f"Not everything could be removed: {remains}")
    title = line(toned(Tone.OK), f"Session {session} is over; JAX is as it was before.")
    return drawn(None, title, *(indented(line(toned(Tone.WARN), each)) for each in lines))


def notes(lines: Sequence[str]) -> View:
    """Lines marked as warnings."""
    return drawn(None, *(line(toned(Tone.WARN), each) for each in lines))


def _named(arrays: Sequence[NamedArray]) -> str:
    """The arrays' names; many arrays of one variable are counted instead."""
    by_variable: dict[str, list[NamedArray]] = {}
    for array in arrays:
        by_variable.setdefault(_VARIABLE.match(array.name)[0], []).append(array)  # type: ignore[index]
    shown: list[str] = []
    for variable, group in by_variable.items():
        shown += map(str, group) if len(group) <= _FEW else [f"{variable} ({len(group)} arrays)"]
    return some(shown, _MANY)
