"""The user's arrays: what connecting and disconnecting did to them, in one or two lines, and what is saved of them."""

from __future__ import annotations

import time
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from pathways_jupyter.base.events import SessionSlice
from pathways_jupyter.base.sentences import Face, advice, worded
from pathways_jupyter.base.text import capitalized, count, size, some
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.render.parts import indented, line, remarks, table, toned
from pathways_jupyter.render.text import duration, later
from pathways_jupyter.render.view import View, drawn, listing
from pathways_jupyter.session.kernel.user_arrays import NamedArray, described

if TYPE_CHECKING:
    # Every connect reads this file, and few have saves.
    from pathways_jupyter.saved.assignment import Assignment
    from pathways_jupyter.saved.saves import Save


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


def lost(arrays: Sequence[NamedArray], *, saved_as: str = "", kept: Sequence[str] = ()) -> list[str]:
    """Why JAX cannot use arrays of an earlier proxy, in two lines; empty when there are none.

    Args:
      saved_as: The save with the arrays of the last session, which was suspended; empty if it was not.
      kept: Saves with arrays that had no place when the session was resumed.
    """
    if not arrays:
        return []
    if saved_as:
        return [
            f"The last session was suspended before it ended, with its arrays: {described(arrays)}",
            f"%pathways load {saved_as} sets the variables that had them, in another session.",
        ]
    verb, them = ("was", "it") if len(arrays) == 1 else ("were", "them")
    if kept:
        return [
            f"{count(len(arrays), 'array')} {verb} on a proxy that is gone: {described(arrays)}",
            f"%pathways load {kept[-1]} sets what a resume has left; run the cells that make the others again.",
        ]
    return [
        f"{count(len(arrays), 'array')} {verb} on a proxy that is gone, and lost with it: {described(arrays)}",
        f"Run the cells that make {them} again; meshes, shardings and compiled programs too.",
    ]


def of_lost_slices(slices: Sequence[SessionSlice], lost: Container[int], face: Face) -> list[str]:
    """Why JAX cannot use an array that was on slices which are lost, in two lines.

    Args:
      slices: The session's.
      lost: JAX's indices of those that its error names; none where it names none.
    """
    named = [str(each) for each in slices if each.index in lost] or ["a slice"]
    was, them = ("was", "it") if len(named) == 1 else ("were", "them")
    others = "Other slices work. " if any(each.up and each.index not in lost for each in slices) else ""
    hint = advice(
        "{others}Run the cells that make these arrays again, or {load} what was saved of them.", others=others
    )
    return [
        capitalized(f"{some(named)} {was} lost, and all arrays that were on {them}, in whole or in part."),
        worded(hint, face),
    ]


def disconnected(
    session: str, unusable: Sequence[NamedArray], remains: str, *, saved_as: str = "", unsaved: str = ""
) -> View:
    """Return the result of ``%pathways disconnect``.

    Args:
      remains: What could not be removed from the cluster, and why.
      saved_as: The save with the arrays of a session that was suspended.
      unsaved: Why that save cannot be found now.
    """
    lines = switched(unusable, ())
    if unsaved:
        lines.append(f"The arrays were saved as {saved_as}. Now: {unsaved}")
    elif saved_as:
        load = f"%pathways load {saved_as}"
        lines.append(
            f"The arrays stay in the save {saved_as}: {load} sets the variables that had them, in another session."
        )
    if remains:
        lines.append(f"Not everything could be removed: {remains}")
    title = line(toned(Tone.OK), f"Session {session} is over; JAX is as it was before.")
    return drawn(None, title, *(indented(line(toned(Tone.WARN), each)) for each in lines))


def notes(lines: Sequence[str]) -> View:
    """Lines marked as warnings."""
    return drawn(None, *(line(toned(Tone.WARN), each) for each in lines))


def saved(save: Save) -> View:
    """Return what was saved, and what was left out."""
    what = f"Saved as {save.name}: {count(len(save.variables), 'variable')}, {size(save.nbytes)}."
    return drawn(save, line(what), remarks([f"Left out: {each}" for each in save.unkept]))


def loaded(name: str, assignment: Assignment) -> View:
    """Return the variables that were set, and what became of those that were there."""
    remarked = []
    if assignment.into:
        remarked.append(f"Put into the objects that were here: {some(assignment.into)}.")
    if assignment.replaced:
        remarked.append(f"Replaced: {some(assignment.replaced)}.")
    if assignment.dictionaries:
        became = [f"{variable} ({kind.rpartition('.')[2]})" for variable, kind in assignment.dictionaries.items()]
        remarked.append(f"Dictionaries of leaves, as no object of their names was here: {some(became)}.")
    kept = [line(toned(Tone.WARN), f"Not loaded: {each}.") for each in assignment.kept]
    if kept:
        remarked.append(f"pathways_jupyter.current_session().load({name!r}) returns all values.")
    what = f"Loaded {name}: {some(assignment.names) or 'no variables'}."
    return drawn(assignment.names, line(what), *kept, remarks(remarked))


def reminder(save: Save) -> str:
    """Say that this notebook has a save, and how to load it."""
    amount = f"{count(len(save.variables), 'variable')}, {size(save.nbytes)}"
    return f"This notebook has a save from {later(save.saved, time.time())}, {amount}: %pathways load --last"


def listed(saves: Sequence[Save], last: Save | None = None) -> View:
    """Return the saves of a user, and the last one of this notebook."""
    rows = [
        [
            each.name,
            size(each.nbytes) if each.saved else "",
            f"{duration(max(0.0, time.time() - each.saved))} ago" if each.saved else "",
            each.notebook,
            some(each.variables) if each.saved else " ".join(each.unkept),
        ]
        for each in saves
    ]
    headers = ("Name", "Size", "Saved", "Notebook", "Variables")
    shown = [table(headers, rows)] if last is None else [table(headers, rows), line(reminder(last))]
    return listing(list(saves), *shown, none="There are no saves in the bucket.")
