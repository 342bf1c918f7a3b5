"""Sentences keep their codes on the way to a page."""

import ast
import copy
import json
import string
from pathlib import Path

import pathways_jupyter
from pathways_jupyter.errors import LocalClusterError, SessionError
from pathways_jupyter.events import Event, EventKind
from pathways_jupyter.sentences import SENTENCES, Sentence, say
from pathways_jupyter.session import protocol, recording
from pathways_jupyter.wording import Face

PACKAGE = Path(pathways_jupyter.__file__).parent
ONE = {"message": "Slice 1", "text": {"code": "slice", "values": {"number": 1}}}
DOWN = {"code": "slice-down", "values": {"slice": ONE}}


def test_a_sentence_is_its_english_text_also_when_copied():
    down = say("slice-down", slice=say("slice-of-both", number=3, index=0))
    assert down == "Slice 3 (your 0) is down."
    copied = copy.deepcopy(down)
    assert isinstance(copied, Sentence)
    assert (copied, copied.code, copied.values) == (down, down.code, down.values)


def test_an_event_carries_code_and_parameters_through_the_protocol():
    event = Event(EventKind.SLICE_DOWN, say("slice-down", slice=say("slice", number=1)), 5.0, {"slice": 0})
    sent = event.to_json()
    assert sent == {"kind": "slice-down", "message": "Slice 1 is down.", "at": 5.0, "data": {"slice": 0}, "text": DOWN}
    received = protocol.decode(protocol.encode(event))
    assert received.to_json() == sent


def test_an_event_without_a_code_has_its_message_only():
    event = Event(EventKind.WARNING, "Something else.", 5.0)
    assert "text" not in event.to_json()
    assert Event.from_json({**event.to_json(), "text": "not a code"}) == event


def test_several_sentences_can_be_a_parameter_and_keep_their_codes_through_the_protocol():
    holds = (say("holds", holder="joe", number=1, time="3 min"), say("holds", holder="jane", number=2, time="1 h"))
    short = say("short-of-slices-held", found="None", wanted=say("one-wanted"), holders=holds)
    assert short == "None, and 1 is wanted: joe holds 1 for 3 min; jane holds 2 for 1 h."
    event = Event(EventKind.STATE, short, 5.0)
    received = protocol.decode(protocol.encode(event))
    assert received.to_json() == event.to_json()
    assert [each["text"]["code"] for each in event.to_json()["text"]["values"]["holders"]] == ["holds", "holds"]


def test_a_recorded_event_keeps_its_code_unless_it_is_too_long():
    said = [say("training-pauses", up=1, wanted=2), say("no-proxy-yet", reason="x" * 3000)]
    sent = [Event(EventKind.ELASTIC, each, 5.0).to_json() for each in said]
    kept, cut = recording.checked({"events": sent})
    assert kept.to_json() == sent[0]
    assert "text" not in cut.to_json()


def test_an_error_carries_both_and_words_only_the_english_hint():
    error = LocalClusterError(say("no-embedded"), hint=say("no-embedded-hint"))
    sent = error.to_json(Face.SIDEBAR)
    assert sent["message"] == "The embedded cluster is not running."
    assert (sent["text"]["code"], sent["hint_text"]["code"]) == ("no-embedded", "no-embedded-hint")
    assert set(SessionError("Something else.").to_json()) == {"message", "hint"}


def test_an_error_carries_its_code_through_the_protocol():
    error = SessionError(say("no-session", session="ab"), hint=say("no-session-hint"))
    assert protocol.error_from_json(json.loads(json.dumps(protocol.error_to_json(error)))).to_json() == error.to_json()


def _said():
    """Yield the places of the package where a sentence is said, with its codes and its parameters."""
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "pathways_jupyter.sentences import" in text else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "say":
                yield f"{file.relative_to(PACKAGE)}:{node.lineno}", node


def _codes(node: ast.expr) -> list[str]:
    match node:
        case ast.Constant(value=str(code)):
            return [code]
        case ast.IfExp():
            return [*_codes(node.body), *_codes(node.orelse)]
    raise AssertionError(f"not a literal: {ast.unparse(node)}")


def _fields(code: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(SENTENCES[code]) if name}


def test_each_sentence_that_is_said_exists_and_has_its_parameters():
    said = [(where, code, node) for where, node in _said() for code in _codes(node.args[0])]
    wrong = [
        (where, code)
        for where, code, node in said
        if code not in SENTENCES or _fields(code) != {each.arg for each in node.keywords}
    ]
    assert wrong == []
    assert set(SENTENCES) - {code for _, code, _ in said} == set()


def test_each_sentence_can_be_composed():
    for code in SENTENCES:
        assert say(code, **dict.fromkeys(_fields(code), "x")).code == code
