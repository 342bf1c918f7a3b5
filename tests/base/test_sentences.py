"""Sentences keep their templates on the way to a page."""

import ast
import copy
import json
import string
from pathlib import Path

import pathways_jupyter
from pathways_jupyter.base.errors import LocalClusterError, SessionError
from pathways_jupyter.base.events import Event, EventKind
from pathways_jupyter.base.sentences import Face, Sentence, say
from pathways_jupyter.session import protocol, recording

PACKAGE = Path(pathways_jupyter.__file__).parent
ONE = {"message": "Slice 1", "text": {"sentence": "Slice {number}", "values": {"number": 1}}}
DOWN = {"sentence": "{slice} is down.", "values": {"slice": ONE}}


def test_a_sentence_is_its_english_text_also_when_copied():
    down = say("{slice} is down.", slice=say("Slice {number} (your {index})", number=3, index=0))
    assert down == "Slice 3 (your 0) is down."
    copied = copy.deepcopy(down)
    assert isinstance(copied, Sentence)
    assert (copied, copied.template, copied.values) == (down, down.template, down.values)


def test_an_event_carries_template_and_parameters_through_the_protocol():
    event = Event(
        EventKind.SLICE_DOWN, say("{slice} is down.", slice=say("Slice {number}", number=1)), 5.0, {"slice": 0}
    )
    sent = event.to_json()
    assert sent == {"kind": "slice-down", "message": "Slice 1 is down.", "at": 5.0, "data": {"slice": 0}, "text": DOWN}
    received = protocol.decode(protocol.encode(event))
    assert received.to_json() == sent


def test_an_event_that_is_no_sentence_has_its_message_only():
    event = Event(EventKind.WARNING, "Something else.", 5.0)
    assert "text" not in event.to_json()
    assert Event.from_json({**event.to_json(), "text": "not a template"}) == event


def test_several_sentences_can_be_a_parameter_and_keep_their_templates_through_the_protocol():
    holds = tuple(
        say("{holder} holds {number} for {time}", holder=holder, number=number, time=time)
        for holder, number, time in [("joe", 1, "3 min"), ("jane", 2, "1 h")]
    )
    short = say("{found}, and {wanted}: {holders}.", found="None", wanted=say("1 is wanted"), holders=holds)
    assert short == "None, and 1 is wanted: joe holds 1 for 3 min; jane holds 2 for 1 h."
    event = Event(EventKind.STATE, short, 5.0)
    received = protocol.decode(protocol.encode(event))
    assert received.to_json() == event.to_json()
    sent = event.to_json()["text"]["values"]["holders"]
    assert [each["text"]["sentence"] for each in sent] == ["{holder} holds {number} for {time}"] * 2


def test_a_recorded_event_keeps_its_template_unless_it_is_too_long():
    said = [
        say("{up} of {wanted} slices are up.", up=1, wanted=2),
        say("No new proxy yet: {reason}", reason="x" * 3000),
    ]
    sent = [Event(EventKind.ELASTIC, each, 5.0).to_json() for each in said]
    kept, cut = recording.checked({"events": sent})
    assert kept.to_json() == sent[0]
    assert "text" not in cut.to_json()


def test_an_error_carries_both_and_words_only_the_english_hint():
    error = LocalClusterError(say("The embedded cluster is not running."), hint=say("Start it."))
    sent = error.to_json(Face.SIDEBAR)
    assert sent["message"] == "The embedded cluster is not running."
    assert (sent["text"]["sentence"], sent["hint_text"]["sentence"]) == (sent["message"], "Start it.")
    assert set(SessionError("Something else.").to_json()) == {"message", "hint"}


def test_an_error_carries_its_template_through_the_protocol():
    error = SessionError(say("There is no session {session}.", session="ab"), hint=say("It may have ended."))
    assert protocol.error_from_json(json.loads(json.dumps(protocol.error_to_json(error)))).to_json() == error.to_json()


def _said():
    """Yield each place of the package where a sentence is said."""
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "pathways_jupyter.base.sentences import" in text else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "say":
                yield f"{file.relative_to(PACKAGE)}:{node.lineno}", node


def test_each_sentence_that_is_said_is_a_literal_with_its_parameters():
    said = list(_said())
    assert len(said) > 100
    for where, node in said:
        template = ast.literal_eval(node.args[0])
        names = {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
        # The others are commands and options, see test_hints.
        assert {each.arg for each in node.keywords} <= names, where
