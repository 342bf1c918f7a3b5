from __future__ import annotations

import math

import pytest

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ApiError, CapacityError, ClusterError, PathwaysError, SessionError
from pathways_jupyter.base.events import Event, EventKind
from pathways_jupyter.session import protocol
from pathways_jupyter.session.protocol import Answer, Method, Request


@pytest.mark.parametrize(
    "message",
    [
        Request(1, Method.START, {"config": {"wait": 1.0}}),
        Answer(2, result={"a": [1, None]}),
        Answer(3, result=None),
        Event(EventKind.STAGE, "The pod is ready.", data={"stage": "start"}),
    ],
)
def test_every_message_comes_back_as_it_was(message):
    line = protocol.encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert protocol.decode(line) == message


def test_an_error_keeps_its_class_its_hint_and_its_status():
    refused = ApiError("jobs is forbidden", status=403, reason="Forbidden", hint="Ask for the role.")
    answer = protocol.decode(protocol.encode(Answer(1, error=refused)))
    assert isinstance(answer, Answer)
    assert isinstance(answer.error, ApiError)
    assert (str(answer.error), answer.error.hint) == ("jobs is forbidden", "Ask for the role.")
    assert (answer.error.status, answer.error.reason) == (403, "Forbidden")
    taken = protocol.error_from_json(protocol.error_to_json(CapacityError("All taken.", hint="--wait 60")))
    assert isinstance(taken, CapacityError)


def test_an_error_of_a_room_arrives_as_its_parent_in_the_tree_of_errors():
    class Unreachable(ClusterError):
        pass

    error = protocol.error_from_json(protocol.error_to_json(Unreachable("No answer.", hint="Look.")))
    assert type(error) is ClusterError
    assert (str(error), error.hint) == ("No answer.", "Look.")


def test_an_error_of_an_unknown_class_is_still_an_error_of_ours():
    error = protocol.error_from_json({"type": "NewerError", "message": "what", "hint": "how"})
    assert type(error) is PathwaysError
    assert protocol.error_from_json({"type": "annotations", "message": "m"}).hint == ""


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"nonsense\n",
        b"[]\n",
        b"7\n",
        b'{"id": 1}\n',
        b'{"id": 1, "method": "no"}\n',
        b'{"event": {}}\n',
        b'{"event": {"kind": "state", "message": "m", "at": "x"}}\n',
        b'{"event": {"kind": "state", "message": "m", "at": 1, "data": 7}}\n',
        b'["event", "method"]\n',
        b'"method"\n',
        b"[" * 100_000 + b"\n",
        b'{"id":' * 100_000 + b"\n",
        b'{"id": 1e400, "method": "ping"}\n',
        b'{"id": NaN, "method": "ping"}\n',
        b'{"id": ' + b"9" * 10_000 + b', "method": "ping"}\n',
        b'{"id": 1, "method": "ping", "params": [7]}\n',
        b'{"id": 1, "error": 7}\n',
        b'\xff\xfe{"id": 1}\n',
        "é\n".encode("latin-1"),
    ],
)
def test_a_line_that_is_no_message_is_refused(line):
    with pytest.raises(SessionError, match="Not a message"):
        protocol.decode(line)


def test_a_config_comes_back_as_it_was_even_with_an_endless_wait():
    config = ConnectConfig(instances={"tpuv6e:2x2": 2}, proxy_options=("--a=b",), wait=math.inf, namespace="team")
    line = protocol.encode(Request(1, Method.START, {"config": protocol.config_to_json(config)}))
    request = protocol.decode(line)
    assert isinstance(request, Request)
    assert protocol.config_from_json(request.params["config"]) == config


def test_a_setting_of_another_version_is_dropped():
    assert protocol.config_from_json({"novel": 1}) == ConnectConfig()
