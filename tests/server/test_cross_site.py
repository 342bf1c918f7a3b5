"""Other sites: whatever they make a browser send that is logged in here, no program runs and nothing is read."""

import json

import aiohttp
import pytest

READING = [
    "version",
    "contexts",
    "services",
    "logs?pod=x",
    "sessions/abc/arrays",
    "jobs/x",
]
WRITING = [
    "sessions/abc/disconnect",
    "sessions/abc/reconnect",
    "sessions/abc/keep",
    "sweep",
    "quickstart",
    "embedded",
]
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Referer": "http://evil.example/"}


def plugin(directory, name="current"):
    """A kubeconfig whose credential plugin leaves a file, and that file."""
    mark = directory / "plugin-ran"
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": [str(mark)]}
    config = {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"exec": {**plugin, "interactiveMode": "Never"}}}],
    }
    return json.dumps(config), mark


@pytest.fixture
async def browser(server):
    """A browser that is logged in, and the XSRF token of its pages."""
    async with server.browser() as http:
        yield http, await server.log_in(http)


async def test_the_sidebars_own_requests_are_served(server, browser):
    http, xsrf = browser
    async with http.get(server.route("version"), headers={"X-XSRFToken": xsrf}) as answer:
        assert answer.status == 200
    same = {"X-XSRFToken": xsrf, "Sec-Fetch-Site": "same-origin"}
    async with http.get(server.route("contexts?1763750000000"), headers=same) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("path", READING)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        LINK,
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"X-XSRFToken": "guessed"},
        # Whatever this server itself delivers has this Referer: a file that was opened, a notebook's output.
        {"Referer": "{url}/behind/a-proxy/files/evil.html", "Sec-Fetch-Site": "same-origin"},
    ],
)
async def test_reading_takes_an_xsrf_token_as_writing_does(server, browser, path, headers):
    http, _ = browser
    sent = {name: value.format(url=server.url) for name, value in headers.items()}
    async with http.get(server.route(path), headers=sent) as answer:
        assert answer.status == 403


@pytest.mark.parametrize("path", READING + WRITING)
async def test_what_another_site_sends_is_refused_whatever_it_carries(server, browser, path):
    http, xsrf = browser
    method = "GET" if path in READING else "POST"
    headers = {**LINK, "X-XSRFToken": xsrf}
    async with http.request(method, server.route(path), headers=headers) as answer:
        assert answer.status == 403
        said = await answer.json(content_type=None)
    assert "another site" in said["message"]
    assert said["hint"]


async def test_a_link_on_another_site_runs_no_credential_plugin(server, browser, set_up, tmp_path):
    http, xsrf = browser
    content, mark = plugin(tmp_path)
    (tmp_path / "kubeconfig").write_text(content, encoding="utf-8")
    for path in (
        f"services?kubeconfig={tmp_path / 'kubeconfig'}",
        f"logs?pod=x&kubeconfig={tmp_path / 'kubeconfig'}",
    ):
        for headers in (LINK, {}, {"X-XSRFToken": xsrf}):
            async with http.get(server.route(path), headers=headers) as answer:
                assert answer.status in {400, 403}
    async with http.ws_connect(server.route("updates"), origin=server.url) as socket:
        await socket.send_json({"type": "look", "scope": {"kubeconfig": str(tmp_path / "kubeconfig")}})
        async for _ in socket:
            pass
        assert socket.close_code == 1003
    assert not mark.exists()


async def test_the_plugin_of_the_users_own_kubeconfig_runs_for_the_users_own_page_only(
    server, browser, set_up, tmp_path
):
    http, xsrf = browser
    content, mark = plugin(tmp_path)
    set_up(content)
    for headers in (LINK, {}):
        async with http.get(server.route("services"), headers=headers) as answer:
            assert answer.status == 403
    assert not mark.exists()
    async with http.get(server.route("services"), headers={"X-XSRFToken": xsrf}) as answer:
        assert answer.status >= 400
    assert mark.exists()


async def test_a_websocket_of_another_site_is_refused(server, browser):
    http, _ = browser
    async with http.ws_connect(server.route("updates"), origin=server.url) as socket:
        assert (await socket.receive_json())["type"] == "hello"
    for origin, headers in (
        ("https://evil.example", {}),
        ("https://evil.example", {"Sec-Fetch-Site": "cross-site"}),
        (server.url, {"Sec-Fetch-Site": "cross-site"}),
    ):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(server.route("updates"), origin=origin, headers=headers)
        assert refused.value.status == 403
