"""A map of slices: a box for each slice, with its hosts and their chips inside.

The colour is the health of the slice, and a word beside it says the same. A blue frame and a filled star mark what this
notebook has, a grey frame and a hollow star what others have. The chips of a held slice are filled, those of a free one
are hollow, and those of a slice that is kept for a silent session are half filled. While a slice starts its chips are
dashed; if it is down they are crossed. The sidebar draws slices likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from html import escape

from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.text import count
from pathways_jupyter.render.parts import Part, Tone, line, muted, toned
from pathways_jupyter.service.podstate import State

TONES = {State.READY: Tone.OK, State.STARTING: Tone.WAIT, State.DOWN: Tone.FAIL}
"""The tones of health."""
THIS_NOTEBOOK = "this notebook"
"""The word for a slice that the notebook which shows it has."""

_MANY_HOSTS = 16
_MOST_SLICES = 128


class Owner(StrEnum):
    """Holder of a slice, or one that has lost it and waits for it; the value is the mark beside its number."""

    NONE = ""
    THIS = "★"
    OTHER = "☆"


@dataclass(frozen=True)
class Box:
    """One slice to draw.

    Attributes:
      word: What one can do with it, in a word or two.
      reclaimable: Whether the session that holds it is silent.
      detail: Its holder, or what it waits for.
      down: Indices of hosts that do not run.
    """

    index: int
    instance_type: str
    health: State
    word: str
    owner: Owner = Owner.NONE
    reclaimable: bool = False
    detail: str = ""
    down: tuple[int, ...] = ()


def picture(boxes: Sequence[Box]) -> Part:
    """Return the map, in HTML only."""
    drawn = "".join(map(_box, boxes[:_MOST_SLICES]))
    rest = len(boxes) - _MOST_SLICES
    more = line(muted(f"and {count(rest, 'more slice', 'more slices')}")).html if rest > 0 else ""
    return Part("", f'<div class="pw-map" role="list">{drawn}</div>{more}')


def _box(box: Box) -> str:
    tone = TONES[box.health]
    label = f"slice {box.index}, {box.instance_type}, {box.word}{f', {box.detail}' if box.detail else ''}"
    held = "kept" if box.reclaimable else "held" if box.owner and box.health is State.READY else "free"
    title = f"<b>slice {box.index}</b> {box.owner} {muted(box.instance_type).html}"
    words = f"{toned(tone, box.word).html} {muted(box.detail).html}"
    return (
        f'<div class="pw-slice pw-{tone} pw-of-{box.owner.name.lower()} pw-{held}" role="listitem" '
        f'aria-label="{escape(label)}"><div>{title}</div><div>{words}</div>{_hosts(box)}</div>'
    )


def _hosts(box: Box) -> str:
    try:
        kind = tpu.parse_instance_type(box.instance_type)
    except ConfigError:
        # A newer service may have instance types that this version does not know: show its text without chips.
        return ""
    chips = kind.chips_per_host if kind.hosts <= _MANY_HOSTS else 1
    columns = min(chips, 4) if chips != 4 else 2
    hosts = []
    for host in range(kind.hosts):
        # If a slice is down and the failed hosts are known, only those are drawn as failed.
        tone = Tone.NONE if box.health is State.DOWN and box.down and host not in box.down else TONES[box.health]
        grid = '<div class="pw-chip"></div>' * chips
        hosts.append(
            f'<div class="pw-host pw-{tone}" title="host {host}: {count(kind.chips_per_host, "chip")}" '
            f'style="grid-template-columns: repeat({columns}, auto)">{grid}</div>'
        )
    return f'<div class="pw-hosts" aria-hidden="true">{"".join(hosts)}</div>'
