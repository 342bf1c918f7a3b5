from __future__ import annotations

import contextlib
import dataclasses
import json
import math

import pytest
from session_records import new_record

from pathways_jupyter.base import setting_sources
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import (
    ApiError,
    CapacityError,
    ClusterError,
    ConfigError,
    ConnectionLost,
    NoKubeconfigError,
    PathwaysError,
    SessionError,
    Unreachable,
)
from pathways_jupyter.base.events import Event, EventKind
from pathways_jupyter.base.text import LARGEST_NUMBER
from pathways_jupyter.session import protocol, registry
from pathways_jupyter.session.protocol import Method, Request, Response


@pytest.mark.parametrize(
    "message",
    [
        Request(1, Method.START, {"config": {"wait": 1.0}}),
        Response(2, result={"a": [1, None]}),
        Response(3, result=None),
        Event(EventKind.STAGE, "The pod\nis ready.", data={"stage": "start"}),
    ],
)
def test_every_message_comes_back_as_it_was(message):
    line = protocol.encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert protocol.decode(line) == message


def test_an_error_keeps_its_class_its_hint_and_its_status():
    refused = ApiError("jobs is forbidden", status=403, reason="Forbidden", hint="Ask for the role.")
    answer = protocol.decode(protocol.encode(Response(1, error=refused)))
    assert isinstance(answer, Response)
    assert isinstance(answer.error, ApiError)
    assert (str(answer.error), answer.error.hint) == ("jobs is forbidden", "Ask for the role.")
    assert (answer.error.status, answer.error.reason) == (403, "Forbidden")
    for kind in (NoKubeconfigError, Unreachable, ConnectionLost):
        assert type(protocol.error_from_json(protocol.error_to_json(kind("It failed.", hint="Look.")))) is kind
    taken = protocol.error_from_json(protocol.error_to_json(CapacityError("All taken.", hint="--wait 60")))
    assert isinstance(taken, CapacityError)


def test_an_error_of_a_room_arrives_as_its_parent_in_the_tree_of_errors():
    class PortRefused(ClusterError):
        pass

    error = protocol.error_from_json(protocol.error_to_json(PortRefused("No answer.", hint="Look.")))
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


_NUMBERS = [each.name for each in dataclasses.fields(ConnectConfig) if each.type == "float"]


@pytest.mark.parametrize("setting", _NUMBERS)
def test_a_config_comes_back_from_a_record_as_it_was_also_with_a_setting_at_its_extreme(setting, runtime):
    allowed = []
    for value in (math.inf, LARGEST_NUMBER, 60.1, 1e-300):
        with contextlib.suppress(ConfigError):
            given = {"tpu": "tpuv6e:2x2=2", "proxy_options": "--a=b", setting: value}
            allowed.append(setting_sources.resolve(given, environ={}))
    assert len(allowed) >= 2
    for asked in allowed:
        request = protocol.decode(protocol.encode(Request(1, Method.START, {"config": protocol.config_to_json(asked)})))
        assert isinstance(request, Request)
        record = new_record(config=request.params["config"])
        registry.write(record)
        # As a browser reads it, which knows neither Infinity nor NaN.
        kept = json.loads(registry.record_path(record.id).read_bytes(), parse_constant=pytest.fail)
        assert protocol.config_from_json(kept["config"]) == asked
        assert registry.read(record.id) == record


def test_a_record_of_an_older_version_has_its_endless_wait_as_json_has_it(runtime):
    record = dataclasses.replace(new_record(), config={"wait": math.inf})
    registry.record_path(record.id).write_text(json.dumps(record.to_json()))
    kept = registry.read(record.id)
    assert kept is not None
    assert json.dumps(kept.to_json(), allow_nan=False)
    assert protocol.config_from_json(kept.config).wait == math.inf


def test_a_setting_of_another_version_is_dropped():
    assert protocol.config_from_json({"novel": 1}) == ConnectConfig()
