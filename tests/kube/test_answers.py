"""Answers of an API server that hold what one user has stored, and others have to read."""

import json

import pytest

from pathways_jupyter.base.errors import ClusterError
from pathways_jupyter.kube import answers

DEEP = 50_000


def nested(opening, closing):
    """A list of three objects, of which the second one is nested too deeply for Python."""
    items = ['{"name": "a]}\\"[{"}', opening * DEEP + "1" + closing * DEEP, '{"name": "b"}']
    return f'{{"items": [{", ".join(items)}]}}'.encode()


@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]"), ('[{"a": "]}", "b":', "}]")])
def test_an_object_that_is_nested_too_deeply_does_not_hide_the_others(opening, closing):
    decoded = answers.decode(nested(opening, closing), "server")
    first, deep, last = decoded["items"]
    assert (first, last) == ({"name": 'a]}"[{'}, {"name": "b"})
    assert len(json.dumps(deep)) < 100 * answers.DEEPEST


def test_a_change_of_such_an_object_does_not_end_a_watch():
    event = answers.loads(b'{"type": "ADDED", "object": {"spec": ' + b"[" * DEEP + b"]" * DEEP + b"}}")
    assert event["type"] == "ADDED"


def test_what_is_not_json_is_still_refused():
    with pytest.raises(ClusterError, match="is not a Kubernetes object"):
        answers.decode(b"[" * DEEP, "server")
