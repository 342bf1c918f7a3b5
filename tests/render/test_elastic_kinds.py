"""Each kind of elastic event has a tone in both faces, and is documented."""

import re
from pathlib import Path

from pathways_jupyter.elastic.record import Kind
from pathways_jupyter.render import events

ROOT = Path(__file__).parents[2]
OWN = {Kind.SLICE_DOWN}
"""That of a record only; a session has an event of its own."""


def test_each_kind_of_elastic_event_has_a_tone_in_both_faces_and_is_documented():
    assert set(events.ELASTIC_TONES) == set(Kind)
    source = (ROOT / "labextension" / "src" / "models" / "timeline.ts").read_text(encoding="utf-8")
    table = source.partition("const ELASTIC_TONES")[2].partition("};")[0]
    assert set(re.findall(r"'?([\w-]+)'?: '\w+'", table)) == set(Kind) - OWN
    page = (ROOT / "docs" / "session-protocol.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| `what` |")]
    assert set(re.findall(r"`([\w-]+)`", row)) - {"what"} == set(Kind) - OWN
