"""Who gets in, and what is answered to requests that cannot be served."""

import aiohttp
import pytest

ROUTES = [
    ("GET", "version"),
    ("GET", "contexts"),
    ("GET", "services"),
    ("GET", "logs?pod=x"),
    ("POST", "sessions/abc/disconnect"),
    ("POST", "sessions/abc/reconnect"),
    ("POST", "sweep"),
    ("POST", "quickstart"),
    ("GET", "updates"),
]
BAD = [
    ("GET", "logs", None, "Which pod"),
    ("GET", "services?namespace=UPPER", None, "namespace"),
    ("GET", "services?gke=only-one-part", None, "GKE"),
    ("GET", "services?context=nowhere", None, "kubeconfig"),
    ("GET", "services?kubeconfig=/nowhere/at/all", None, "/nowhere/at/all"),
    ("GET", "services?local=true&kubeconfig=", None, "embedded cluster"),
    ("POST", "sessions/nosuchsession/disconnect", None, "no session"),
    ("POST", "sweep", b"not json", "not JSON"),
    ("POST", "sweep", b"[1]", "not a JSON object"),
    ("POST", "sweep", b'{"dry_run": "perhaps"}', "dry_run"),
    ("POST", "sweep", b'{"context": 5}', "context"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_nobody_gets_in_without_a_token(server, method, path):
    async with server.http(token="") as http, http.request(method, server.route(path), allow_redirects=False) as answer:
        assert answer.status in {401, 403}


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_a_user_whom_the_authorizer_refuses_gets_nothing(strict_server, method, path):
    async with strict_server.http() as http, http.request(method, strict_server.route(path)) as answer:
        assert answer.status == 403


@pytest.mark.parametrize(("method", "path", "body", "told"), BAD)
async def test_bad_input_is_told_with_a_message(server, method, path, body, told):
    async with server.http() as http, http.request(method, server.route(path), data=body) as answer:
        assert 400 <= answer.status < 500
        said = await answer.json(content_type=None)
    assert told in said["message"]
    assert said["hint"]


async def test_an_action_that_does_not_exist_is_not_found(server):
    async with server.http() as http, http.post(server.route("sessions/abc/explode")) as answer:
        assert answer.status == 404


async def test_a_cluster_that_does_not_answer_is_the_clusters_fault(server, unreachable):
    async with server.http() as http:
        async with http.get(server.route(f"services?kubeconfig={unreachable}")) as answer:
            said = await answer.json(content_type=None)
        assert 400 <= answer.status < 500 or answer.status == 502
        assert "127.0.0.1:1" in said["message"]
        async with http.get(server.route(f"logs?pod=x&kubeconfig={unreachable}")) as answer:
            assert answer.status == 502


async def test_without_a_kubeconfig_there_are_no_contexts_and_no_error(server):
    async with server.http() as http, http.get(server.route("contexts")) as answer:
        assert answer.status == 200
        said = await answer.json()
    assert said["contexts"] == []
    assert said["local"] is False


async def test_the_version_is_the_packages_own(server):
    import pathways_jupyter

    async with server.http() as http, http.get(server.route("version")) as answer:
        assert (await answer.json())["version"] == pathways_jupyter.__version__


async def test_the_quickstart_notebook_is_written_once_and_not_over_a_users_edits(server):
    async with server.http() as http:
        for _ in range(2):
            async with http.post(server.route("quickstart")) as answer:
                path = (await answer.json())["path"]
        async with http.get(f"{server.url}/behind/a-proxy/api/contents/{path}") as answer:
            assert (await answer.json())["content"]["nbformat"] == 4


async def test_a_page_that_sends_nonsense_is_hung_up_on(server):
    async with server.http() as http:
        for nonsense in ("{", "[]", '{"type": "look"}', '{"type": "look", "scope": {"namespace": 7}}'):
            async with http.ws_connect(server.route("updates")) as socket:
                assert (await socket.receive_json())["type"] == "hello"
                await socket.send_str(nonsense)
                async for _ in socket:
                    pass
                assert socket.close_code == 1003


async def test_a_page_may_look_at_nothing_and_then_at_a_cluster_that_is_not_there(server, unreachable):
    async with server.http() as http, http.ws_connect(server.route("updates")) as socket:
        await socket.send_json({"type": "look", "scope": None})
        await socket.send_json({"type": "look", "scope": {"kubeconfig": unreachable}})
        async for message in socket:
            said = message.json()
            if said["type"] == "hearing" and said["hearing"] == "failed":
                break
        assert "127.0.0.1:1" in said["problem"]["message"]
        assert said["problem"]["hint"]


async def test_a_page_of_another_site_is_turned_away(server):
    # With a cookie, as a browser comes; whoever knows the token itself may come from anywhere.
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as http:
        async with http.get(f"{server.url}/behind/a-proxy/api/status?token=s3cret") as answer:
            assert answer.status == 200
        async with http.ws_connect(server.route("updates"), origin=server.url) as socket:
            assert (await socket.receive_json())["type"] == "hello"
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(server.route("updates"), origin="https://evil.example")
        assert refused.value.status in {401, 403}
