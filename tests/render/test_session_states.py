"""Each state of a session has its transitions, and the sidebar knows it, whose compiler asks for a word and a tone."""

import re
from pathlib import Path

from pathways_jupyter.base.events import TRANSITIONS, SessionState

ROWS = Path(__file__).parents[2] / "labextension" / "src" / "models" / "sessionrows.ts"


def test_each_state_has_transitions():
    assert set(TRANSITIONS) == set(SessionState)


def test_the_sidebar_has_the_same_states():
    union = ROWS.read_text(encoding="utf-8").partition("export type SessionState =")[2].partition("\n\n")[0]
    assert re.findall(r"^  \| '([\w-]+)'", union, re.MULTILINE) == list(SessionState)
