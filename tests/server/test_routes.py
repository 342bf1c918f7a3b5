"""Access to the routes, and answers to requests that cannot be served."""

import asyncio
import json
import math
import re

import pytest

from pathways_jupyter.base.config import SETTINGS
from pathways_jupyter.base.errors import ApiError, ClusterError, ConfigError, PathwaysError, ServiceError, SessionError
from pathways_jupyter.cli.terminal import TerminalShell
from pathways_jupyter.render.view import View
from pathways_jupyter.server import handlers, quickstart, routes
from pathways_jupyter.server.request_checks import LONGEST_MESSAGE_BYTES
from pathways_jupyter.session import protocol, registry
from tests.server.conftest import connecting

ROUTES = [
    ("GET", "version"),
    ("GET", "contexts"),
    ("GET", "services"),
    ("GET", "logs?pod=x"),
    ("GET", "sessions/abc/arrays"),
    ("GET", "broken"),
    ("POST", "sessions/abc/disconnect"),
    ("POST", "sessions/abc/reconnect"),
    ("POST", "sessions/abc/suspend"),
    ("POST", "sessions/abc/keep"),
    ("POST", "sessions/abc/profile"),
    ("POST", "sweep"),
    ("GET", "jobs/x"),
    ("GET", "jobs/x/logs"),
    ("POST", "jobs/x/suspend"),
    ("POST", "jobs/x/resume"),
    ("POST", "jobs/x/delete"),
    ("POST", "embedded"),
    ("POST", "quickstart"),
    ("GET", "updates"),
]
BAD = [
    ("GET", "logs", None, "The name of the pod"),
    ("GET", "services?namespace=UPPER", None, "namespace"),
    ("GET", "services?context=nowhere", None, "kubeconfig"),
    ("GET", "services?kubeconfig=/nowhere/at/all", None, "'kubeconfig'"),
    ("GET", "services?gke=project/region/cluster", None, "'gke'"),
    ("GET", "services?local=true", None, "embedded cluster"),
    ("GET", "services?local=maybe", None, "local must be true or false"),
    ("GET", "services?namespace=a&namespace=b", None, "2 times"),
    ("GET", "services?namespace=%ff", None, "UTF-8"),
    ("GET", "services?session=../../secrets", None, "not the id of a session"),
    ("GET", "services?session=nosuchsession", None, "no session"),
    ("GET", "services?colour=blue", None, "'colour'"),
    ("GET", "services?context=" + "c" * 1001, None, "longer than 1000"),
    ("GET", "version?colour=blue", None, "'colour'"),
    ("GET", "contexts?colour=blue", None, "'colour'"),
    ("GET", "logs?pod=x%3Fx%3D1", None, "not the name of a pod"),
    ("GET", "logs?pod=../pods/x", None, "not the name of a pod"),
    ("GET", "logs?pod=a%0d%0aX:1", None, "not the name of a pod"),
    ("GET", "logs?pod=" + "a" * 300, None, "not the name of a pod"),
    ("GET", "logs?pod=x&container=a", None, "'container'"),
    ("GET", "logs?pod=x&namespace=../../nodes", None, "namespace"),
    ("GET", "logs?pod=x&follow=maybe", None, "follow must be true or false"),
    ("GET", "jobs/x?kubeconfig=/nowhere/at/all", None, "'kubeconfig'"),
    ("GET", "jobs/UPPER", None, "not the name of a job"),
    ("GET", "jobs/a%2F..%2Fpods", None, "not the name of a job"),
    ("GET", "jobs/x?program=main", None, "'program'"),
    ("GET", "jobs/x/logs?program=init", None, "'program'"),
    ("POST", "jobs/-x/delete", None, "not the name of a job"),
    ("POST", "jobs/x/delete", b'{"name": "other"}', "'name'"),
    ("POST", "jobs/x/suspend?namespace=other", b"{}", "'namespace'"),
    ("POST", "sessions/nosuchsession/disconnect", None, "no session"),
    ("POST", "sessions/nosuchsession/suspend", None, "no session"),
    ("POST", "sessions/nosuchsession/keep", None, "no session"),
    ("POST", "sweep", b"not json", "not JSON"),
    ("POST", "sweep", b"[1]", "not a JSON object"),
    ("POST", "sweep", b'{"dry_run": "perhaps"}', "dry_run"),
    ("POST", "sweep", b'{"context": 5}', "context"),
    ("POST", "sweep", b'{"local": "maybe"}', "local must be true or false"),
    ("POST", "sweep", b'{"colour": "blue"}', "'colour'"),
    ("POST", "sweep?dry_run=true", b"{}", "'dry_run'"),
    ("POST", "sweep", b"[" * 10_000, "nested too deeply"),
    ("POST", "sweep", b"[" * 100_000, "nested too deeply"),
    ("POST", "sweep", b'{"context": "' + b"c" * 30_000_000 + b'"}', "longer than 1000"),
    ("POST", "sweep", b"\xff\xfe{", "not JSON"),
    ("POST", "embedded", b'{"slices": 100}', "'slices'"),
    ("POST", "quickstart", b'{"path": "elsewhere"}', "'path'"),
    ("POST", "sessions/abc/disconnect", b'{"session": "other"}', "'session'"),
    ("POST", "sessions/abc/suspend", b'{"count": 0}', "'count'"),
    ("POST", "sessions/abc/profile", b'{"seconds": "5"}', "seconds must be"),
    ("POST", "sessions/abc/profile", b'{"seconds": 5, "to": "gs://mine"}', "'to'"),
    ("POST", "sessions/nosuchsession/profile", b'{"seconds": 1}', "no session"),
]

NONSENSE = (
    "{",
    "[]",
    "[" * 50_000,
    '{"type": "look"}',
    '{"type": "listen", "scope": null}',
    '{"type": "look", "scope": null, "colour": "blue"}',
    '{"type": "look", "scope": "here"}',
    '{"type": "look", "scope": {"namespace": 7}}',
    '{"type": "look", "scope": {"local": "maybe"}}',
    '{"type": "look", "scope": {"kubeconfig": "/etc/evil"}}',
    '{"type": "look", "scope": {"session": "../../x"}}',
)


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_requests_without_a_token_are_refused(server, method, path):
    async with server.http(token="") as http, http.request(method, server.route(path), allow_redirects=False) as answer:
        assert answer.status in {401, 403}


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_a_user_whom_the_authorizer_refuses_gets_nothing(strict_server, method, path):
    async with strict_server.http() as http, http.request(method, strict_server.route(path)) as answer:
        assert answer.status == 403


async def test_a_session_without_limits_is_listed_and_reconnected(server, cluster, monkeypatch, capsys):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", server.environ["JUPYTER_RUNTIME_DIR"])
    endless = dict.fromkeys(("wait", "max_lifetime", "timeout"), math.inf)
    with connecting(cluster) as connect:
        session = (await asyncio.to_thread(connect, **endless))[1]["id"]
        async with server.http() as http, http.post(server.route(f"sessions/{session}/reconnect")) as answer:
            text = await answer.text()
            assert answer.status == 200, text
        TerminalShell(as_json=True).show(View(registry.sessions(), "", ""))
    said = json.loads(text, parse_constant=pytest.fail)
    for kept in (said["result"], *json.loads(capsys.readouterr().out, parse_constant=pytest.fail)):
        assert kept["generation"] == 2
        assert protocol.config_from_json(kept["config"]).wait == math.inf


async def test_a_fault_of_the_server_is_a_sentence_and_ends_a_log(server):
    async with server.http() as http:
        async with http.get(server.route("broken")) as answer:
            said = await answer.json(content_type=None)
            assert answer.status == 500
        async with http.get(server.route("broken?late=yes")) as answer:
            lines = (await answer.text()).splitlines()
    assert said["message"] == "The Jupyter server failed to do this (ZeroDivisionError: a fault)."
    assert said["hint"].endswith("see the log of the Jupyter server.")
    assert lines == ["a line", f"The Jupyter server failed to do this (ValueError: a fault after it). {said['hint']}"]


@pytest.mark.parametrize(("method", "path", "body", "message"), BAD, ids=lambda value: str(value)[:40])
async def test_bad_input_is_answered_with_a_message(server, method, path, body, message):
    async with server.http() as http, http.request(method, server.route(path), data=body) as answer:
        assert 400 <= answer.status < 500
        said = await answer.json(content_type=None)
    assert message in said["message"]
    assert said["hint"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ApiError("Not allowed.", status=403), 403),
        # The cluster's refusal of the credentials must not look as if the page had to log in to Jupyter again.
        (ApiError("Log in again.", status=401), 502),
        (ApiError("Internal error.", status=500), 502),
        (ClusterError("No answer."), 502),
        (ConfigError("No such context."), 400),
        (SessionError("No such session."), 404),
        (ServiceError("No such service."), 409),
        (PathwaysError("Anything else."), 409),
    ],
    ids=lambda value: value if isinstance(value, int) else type(value).__name__,
)
def test_an_answer_says_whether_the_user_must_act_or_the_cluster_failed(error, status):
    assert handlers.status_of(error) == status


def test_every_route_is_tested_with_strangers():
    tried = [(method, path.partition("?")[0]) for method, path in ROUTES]
    for route in routes.ROUTES:
        assert any(method == route.method and re.fullmatch(route.path, path) for method, path in tried), route.path


async def test_an_action_that_does_not_exist_is_not_found(server):
    async with server.http() as http, http.post(server.route("sessions/abc/explode")) as answer:
        assert answer.status == 404


async def test_a_cluster_that_does_not_answer_is_the_clusters_fault(server, unreachable):
    async with server.http() as http:
        async with http.get(server.route("services")) as answer:
            said = await answer.json(content_type=None)
        assert 400 <= answer.status < 500 or answer.status == 502
        assert "127.0.0.1:1" in said["message"]
        async with http.get(server.route("logs?pod=x")) as answer:
            assert answer.status == 502


async def test_without_a_kubeconfig_there_are_no_contexts_and_no_error(server):
    async with server.http() as http, http.get(server.route("contexts")) as answer:
        assert answer.status == 200
        said = await answer.json()
    assert said["contexts"] == []
    assert said["local"] is False
    # The further fields of the dialog are those settings that have a label.
    assert {each["option"] for each in said["more"]} == {each.flag[2:] for each in SETTINGS.values() if each.label}
    flags = next(each for each in said["more"] if each["option"] == "proxy-options")
    assert (flags["list"], flags["label"]) == (True, "Proxy options")


async def test_the_version_is_the_packages_own(server):
    import pathways_jupyter

    async with server.http() as http, http.get(server.route("version")) as answer:
        assert (await answer.json())["version"] == pathways_jupyter.__version__


async def test_the_quickstart_notebook_is_written_once_and_not_over_a_users_edits(server):
    contents = f"{server.url}/behind/a-proxy/api/contents/{quickstart.PATH}"
    async with server.http() as http:
        async with http.post(server.route("quickstart")) as answer:
            assert await answer.json() == {"path": quickstart.PATH}
        async with http.get(contents) as answer:
            notebook = (await answer.json())["content"]
        assert notebook["nbformat"] == 4
        notebook["cells"] = [*notebook["cells"], {**notebook["cells"][0], "id": "mine", "source": "my own words"}]
        async with http.put(contents, json={"type": "notebook", "format": "json", "content": notebook}) as answer:
            assert answer.status == 200
        async with http.post(server.route("quickstart")) as answer:
            assert answer.status == 200
        async with http.get(contents) as answer:
            assert (await answer.json())["content"]["cells"][-1]["source"] == "my own words"


async def test_a_page_that_sends_nonsense_is_hung_up_on(server):
    async with server.http() as http:
        for nonsense in NONSENSE:
            async with http.ws_connect(server.route("updates")) as socket:
                assert (await socket.receive_json())["type"] == "hello"
                await socket.send_str(nonsense)
                async for _ in socket:
                    pass
                assert socket.close_code == 1003


async def problem(socket, scope):
    """Look at a cluster that cannot be looked at, and return why."""
    await socket.send_json({"type": "look", "scope": scope})
    async for message in socket:
        said = message.json()
        if said["type"] == "watch" and said["watch"] == "failed":
            return said["problem"]


async def test_a_page_may_look_at_nothing_and_then_at_a_cluster_that_is_not_there(server, unreachable):
    async with server.http() as http, http.ws_connect(server.route("updates")) as socket:
        await socket.send_json({"type": "look", "scope": None})
        said = await problem(socket, {"context": "gone"})
    assert "127.0.0.1:1" in said["message"]
    assert said["hint"]


async def test_a_page_can_distinguish_a_first_day_from_a_fault(server, set_up):
    async with server.http() as http, http.ws_connect(server.route("updates")) as socket:
        assert (await problem(socket, {}))["nothing_set_up"]
        assert not (await problem(socket, {"context": "mine"}))["nothing_set_up"]
        assert not (await problem(socket, {"context": "mine"}))["embedded_ended"]
        assert (await problem(socket, {"local": True}))["embedded_ended"]
        set_up("]")
        assert not (await problem(socket, {}))["nothing_set_up"]


async def test_a_page_that_sends_a_message_without_an_end_is_hung_up_on(server):
    async with server.http() as http, http.ws_connect(server.route("updates")) as socket:
        await socket.send_str(json.dumps({"type": "look", "scope": {"context": "c" * LONGEST_MESSAGE_BYTES}}))
        async for _ in socket:
            pass
        # The rest of the message is not read, so that the reason for the end may not arrive either.
        assert socket.close_code in {1006, 1009}
