"""A map of slices: a box for each slice, with its hosts and their chips inside.

The state of a slice is shown as a word as well as a colour; the chips of a held slice are filled, those of a free slice
are hollow, and those of a slice that is kept for a silent session are half filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from pathways_jupyter import tpu
from pathways_jupyter.errors import ConfigError
from pathways_jupyter.render import html, text
from pathways_jupyter.render.html import Tone

_MANY_HOSTS = 16
_MOST_SLICES = 128


@dataclass(frozen=True)
class Box:
    """One slice to draw.

    Attributes:
      state: Its state, in a word or two.
      held: Whether a session holds it.
      kept: Whether that session is silent.
      detail: Its holder, or what it waits for.
      down: Indices of hosts that do not run.
    """

    index: int
    instance_type: str
    tone: Tone
    state: str
    held: bool = False
    kept: bool = False
    detail: str = ""
    down: tuple[int, ...] = ()


def picture(boxes: Sequence[Box]) -> str:
    """The map as HTML."""
    drawn = "".join(map(_box, boxes[:_MOST_SLICES]))
    rest = len(boxes) - _MOST_SLICES
    more = html.line(html.muted(f"and {text.count(rest, 'more slice', 'more slices')}")) if rest > 0 else ""
    return f'<div class="pw-map" role="list">{drawn}</div>{more}'


def _box(box: Box) -> str:
    label = f"slice {box.index}, {box.instance_type}, {box.state}{f', {box.detail}' if box.detail else ''}"
    held = " pw-kept" if box.kept else " pw-held" if box.held else ""
    return (
        f'<div class="pw-slice pw-{box.tone}{held}" role="listitem" aria-label="{escape(label)}">'
        f"<div><b>slice {box.index}</b> {html.muted(box.instance_type)}</div>"
        f"<div>{html.toned(box.tone, box.state)} {html.muted(box.detail)}</div>{_hosts(box)}</div>"
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
        tone = Tone.NONE if box.tone is Tone.FAIL and box.down and host not in box.down else box.tone
        grid = '<div class="pw-chip"></div>' * chips
        hosts.append(
            f'<div class="pw-host pw-{tone}" title="host {host}: {text.count(kind.chips_per_host, "chip")}" '
            f'style="grid-template-columns: repeat({columns}, auto)">{grid}</div>'
        )
    return f'<div class="pw-hosts" aria-hidden="true">{"".join(hosts)}</div>'
