"""The values of enums that the sidebar must know too: each of them, and nothing else. Tones travel with the rows."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from pathways_jupyter.base.events import TRANSITIONS, Event, EventKind, SessionState
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.elastic.export import event_to_log
from pathways_jupyter.elastic.record import ElasticEvent, Kind, Phase, Record
from pathways_jupyter.service.model import Availability
from pathways_jupyter.service.pathwaysjob import conditions
from pathways_jupyter.service.podstate import State
from pathways_jupyter.session.verdicts import Does, SessionCommand

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "labextension" / "src" / "models"
TRAVELLING: dict[str, Iterable[str]] = {
    "Tone": Tone,
    "SessionState": SessionState,
    # The run itself has a message of its own.
    "EventKind": set(EventKind) - {EventKind.ELASTIC_RUN},
    "Phase": Phase,
    "SessionCommand": SessionCommand,
    "Does": Does,
    "Health": State,
    "Availability": Availability,
}
"""By the name of the type in TypeScript."""


@pytest.mark.parametrize("name", TRAVELLING)
def test_the_sidebar_knows_each_value_and_no_other(name):
    source = "".join(file.read_text(encoding="utf-8") for file in sorted(MODELS.glob("*.ts")))
    (union,) = re.findall(rf"^export type {name} =(.*?);$", source, re.MULTILINE | re.DOTALL)
    assert sorted(re.findall(r"'([^']+)'", union)) == sorted(TRAVELLING[name])


def test_each_state_kind_and_phase_has_a_tone():
    without = {each for each in (*SessionState, *Kind, *Phase, *State, *EventKind) if each.tone is Tone.NONE}
    from_data = {EventKind.STATE, EventKind.ELASTIC}
    assert without - from_data == {SessionState.CLOSED, EventKind.STAGE, EventKind.ELASTIC_RUN}
    assert set(conditions.TONES) == set(conditions.CONDITIONS)


@pytest.mark.parametrize("each", [SessionState.LOST, Kind.GROWN])
def test_a_value_is_its_text_alone(each):
    assert type(each)(str(each)) is each
    assert pickle.loads(pickle.dumps(each)) is each
    assert json.loads(json.dumps({each: each})) == {str(each): each.value}


def test_each_state_has_transitions():
    assert set(TRANSITIONS) == set(SessionState)


def test_an_event_of_a_run_travels_with_its_tone():
    tones = {kind: event_to_log(Record(), ElasticEvent(kind, "", 0.0)).tone for kind in Kind}
    assert tones == {kind: kind.tone for kind in Kind}
    # Recorded by a client of another version.
    for data in ({}, {"tone": "loud"}, {"tone": ["ok"]}):
        assert Event(EventKind.ELASTIC, "", data=data).tone is Tone.NONE


def test_each_kind_of_elastic_event_is_documented():
    page = (ROOT / "docs" / "session-protocol.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| `what` |")]
    # That a slice is down is an event of the session's own.
    assert set(re.findall(r"`([\w-]+)`", row)) - {"what"} == set(Kind) - {Kind.SLICE_DOWN}
