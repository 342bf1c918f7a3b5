import asyncio
import contextlib
import gc
import json
import re
import stat
import sys
from urllib.parse import urlsplit

import pytest
from kinds import CONFIG_MAPS, NAMESPACES
from scripted_server import Scripted, busy, ok

from pathways_jupyter.base.errors import ApiError, ClusterError, ConfigError, ConnectionLost, Unreachable
from pathways_jupyter.kube import answers, auth, client, credentials, objects, retries
from pathways_jupyter.kube.objects import JOBS, PODS


def config_map(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


async def test_an_object_is_created_read_changed_and_deleted(client):
    made = await objects.create(client, CONFIG_MAPS, config_map("a", x="1"))
    assert made["metadata"]["uid"]
    changed = await objects.patch(client, CONFIG_MAPS, "a", {"data": {"y": "2"}}, namespace="default")
    assert changed["data"] == {"x": "1", "y": "2"}
    assert await objects.get(client, CONFIG_MAPS, "a", namespace="default") == changed
    assert await objects.delete(client, CONFIG_MAPS, "a", namespace="default")
    assert not await objects.delete(client, CONFIG_MAPS, "a", namespace="default")
    assert await objects.find(client, CONFIG_MAPS, "a", namespace="default") is None


async def test_a_name_with_a_query_in_it_is_a_name(client):
    await objects.create(client, CONFIG_MAPS, config_map("a", x="1"))
    for name in ("a?x=1", "a#b", "a&b"):
        with pytest.raises(ApiError, match=re.escape(f'"{name}" not found')):
            await objects.get(client, CONFIG_MAPS, name, namespace="default")
        assert not await objects.delete(client, CONFIG_MAPS, name, namespace="default")
    assert await objects.find(client, CONFIG_MAPS, "a", namespace="default")


async def test_an_object_without_a_name_is_never_taken_for_all_of_them(client):
    await objects.create(client, CONFIG_MAPS, config_map("a"))
    for verb in (objects.get, objects.delete):
        with pytest.raises(ConfigError, match="name of a ConfigMap is empty"):
            await verb(client, CONFIG_MAPS, "", namespace="default")
    assert await objects.find(client, CONFIG_MAPS, "a", namespace="default")


async def test_a_long_list_comes_page_by_page(client, monkeypatch):
    monkeypatch.setattr(objects, "PAGE", 7)
    await asyncio.gather(*(objects.create(client, CONFIG_MAPS, config_map(f"m{i:02}")) for i in range(20)))
    listing = await objects.list_(client, CONFIG_MAPS, namespace="default")
    names = [item["metadata"]["name"] for item in listing.items if item["metadata"]["name"].startswith("m")]
    assert names == [f"m{i:02}" for i in range(20)]
    assert listing.resource_version
    assert {item["kind"] for item in listing.items} == {"ConfigMap"}


async def test_reading_a_long_answer_leaves_the_garbage_collector_as_it_was(client):
    long = config_map("long")
    long["data"] = {"blob": "x" * 2 * answers.LARGE_BYTES}
    await objects.create(client, CONFIG_MAPS, long)
    for enabled in (True, False):
        try:
            if not enabled:
                gc.disable()
            found = await objects.get(client, CONFIG_MAPS, "long", namespace="default")
            assert found["data"] == long["data"]
            assert gc.isenabled() is enabled
        finally:
            gc.enable()


async def test_connections_are_used_again(bench, client):
    for _ in range(10):
        await objects.list_(client, NAMESPACES)
    assert bench.server.connections == 1


async def test_a_patch_of_a_stale_object_is_refused(client):
    old = await objects.create(client, CONFIG_MAPS, config_map("a"))
    await objects.patch(client, CONFIG_MAPS, "a", {"data": {"x": "1"}}, namespace="default")
    stale = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "data": {"x": "2"}}
    with pytest.raises(ApiError) as raised:
        await objects.patch(client, CONFIG_MAPS, "a", stale, namespace="default")
    assert raised.value.status == 409
    assert raised.value.hint


async def test_a_delete_can_be_bound_to_the_very_object_that_was_seen(client):
    seen = (await objects.create(client, CONFIG_MAPS, config_map("a")))["metadata"]
    await objects.patch(client, CONFIG_MAPS, "a", {"data": {"x": "1"}}, namespace="default")
    for stated in ({"uid": "other"}, {"resource_version": seen["resourceVersion"]}):
        with pytest.raises(ApiError) as raised:
            await objects.delete(client, CONFIG_MAPS, "a", namespace="default", **stated)
        assert raised.value.status == 409
    assert await objects.delete(client, CONFIG_MAPS, "a", namespace="default", uid=seen["uid"])


async def test_what_is_forbidden_is_named_with_the_role_that_would_allow_it(bench):
    rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list"]}]
    async with bench.client(rules=rules, name="reader") as client:
        await objects.list_(client, JOBS, namespace="default")
        with pytest.raises(ApiError, match="not allowed to create jobs in namespace default") as raised:
            await client.post(JOBS.path("default"), {"metadata": {"name": "x"}})
        assert raised.value.status == 403
        assert "administrator for create on jobs.batch: pathways-jupyter manifests roles" in raised.value.hint
        assert "kubectl create rolebinding NAME --role=ROLE --user=USER -n default" in raised.value.hint
        with pytest.raises(ApiError, match="get pods/exec p in namespace default"):
            await client.websocket(PODS.path("default", "p", "exec"), protocols=("v5.channel.k8s.io",))
        assert await objects.allowed(client, "list", JOBS, namespace="default")
        assert not await objects.allowed(client, "create", JOBS, namespace="default")


async def test_a_wrong_token_is_reported_with_a_hint(bench):
    async with bench.client(user={"token": "wrong"}) as client:
        with pytest.raises(ApiError, match="does not accept these credentials") as raised:
            await objects.list_(client, PODS)
    assert raised.value.status == 401
    assert "Fetch the credentials" in raised.value.hint


async def test_a_refused_token_is_renewed_once(bench):
    """The plugin prints a wrong token the first time, and the right one the second time."""
    token = bench.server.users.add("x")
    seen, plugin = bench.directory / "seen", bench.directory / "plugin"
    plugin.write_text(
        f"#!{sys.executable}\nimport json, os\n"
        f"again = os.path.exists({str(seen)!r})\nopen({str(seen)!r}, 'a').write('x')\n"
        f"print(json.dumps({{'kind': 'ExecCredential', 'status': {{'token': {token!r} if again else 'old'}}}}))"
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    async with bench.client(user=user) as client:
        await objects.list_(client, PODS)
        await objects.list_(client, PODS)
    assert seen.read_text() == "xx"


async def test_a_token_that_stays_wrong_is_renewed_once_and_then_reported(bench):
    seen, plugin = bench.directory / "seen", bench.directory / "plugin"
    plugin.write_text(
        f"#!{sys.executable}\nimport json\nopen({str(seen)!r}, 'a').write('x')\n"
        "print(json.dumps({'kind': 'ExecCredential', 'status': {'token': 'wrong'}}))"
    )
    plugin.chmod(0o700)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    async with bench.client(user=user) as made:
        with pytest.raises(ApiError, match="does not accept"):
            await objects.list_(made, PODS)
        # Once at first, and once more because the first token was refused.
        assert seen.read_text() == "xx"


PATIENT_PLUGIN = """#!{python}
import json, time
time.sleep({seconds})
print(json.dumps({{"kind": "ExecCredential", "status": {{"token": {token!r}}}}}))
"""


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_slow_credential_plugin_is_not_taken_for_a_silent_server(bench, monkeypatch, hangs):
    monkeypatch.setattr(client, "ANSWER_SECONDS", 1.0)
    # One that does not hang needs only end, however long a busy machine takes to start it.
    monkeypatch.setattr(credentials, "CREDENTIAL_SECONDS", 3.0 if hangs else 60.0)
    plugin, token = bench.directory / "plugin", bench.server.users.add("x")
    plugin.write_text(PATIENT_PLUGIN.format(python=sys.executable, seconds=600 if hangs else 1.5, token=token))
    plugin.chmod(0o700)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    async with bench.client(user=user) as made:
        if not hangs:
            await objects.list_(made, PODS)
            return
        with pytest.raises(ClusterError) as raised:
            await objects.list_(made, PODS)
        assert str(raised.value) == f"The credential plugin {plugin} failed: it did not end within 3 s."


async def test_a_server_that_never_answered_is_not_waited_for(bench, unused_port):
    cluster = {"server": f"https://127.0.0.1:{unused_port}"}
    async with bench.client(cluster=cluster, patience=1e6) as client:
        with pytest.raises(Unreachable, match="connection refused") as raised:
            await objects.list_(client, PODS)
    assert "VPN" in raised.value.hint


async def test_a_server_that_resets_the_first_connections_is_tried_again_for_some_seconds(bench):
    attempts = 0
    real = urlsplit(auth.load(str(bench.kubeconfig())).server)

    async def meet(reader, writer):
        nonlocal attempts
        attempts += 1
        if attempts < 4:
            writer.transport.abort()
            return
        behind, before = await asyncio.open_connection(real.hostname, real.port)
        with contextlib.suppress(OSError):
            await asyncio.gather(forward(reader, before), forward(behind, writer))

    async def forward(reader, writer):
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
        writer.close()

    async with await asyncio.start_server(meet, "127.0.0.1", 0) as listener:
        server = {"server": f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}"}
        async with bench.client(cluster=server) as client:
            with pytest.raises(ClusterError):
                await objects.list_(client, PODS)
        async with bench.client(cluster=server, unknown=30.0) as client:
            assert not (await objects.list_(client, PODS)).items
            client.close()
    assert attempts == 4


async def test_an_unknown_host_is_reported_at_once(bench):
    async with bench.client(cluster={"server": "https://no-such-host.invalid"}, unknown=1e6) as client:
        with pytest.raises(Unreachable, match=r"no-such-host.invalid cannot be reached"):
            await objects.list_(client, PODS)


async def test_a_server_with_another_certificate_is_not_trusted(bench, self_signed, tmp_path):
    authority = tmp_path / "other.crt"
    authority.write_text(self_signed)
    async with bench.client(cluster={"certificate-authority": str(authority)}) as client:
        with pytest.raises(Unreachable, match=r"The certificate of .* does not match the kubeconfig") as raised:
            await objects.list_(client, PODS)
    assert "credentials" in raised.value.hint


async def test_a_server_without_tls_is_reported_as_such(bench):
    async def greet(reader, writer):
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    plain = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with plain:
        port = plain.sockets[0].getsockname()[1]
        async with bench.client(cluster={"server": f"https://127.0.0.1:{port}"}) as client:
            with pytest.raises(Unreachable, match="TLS with"):
                await objects.list_(client, PODS)


async def test_requests_go_on_after_the_server_restarted(bench, client):
    await objects.create(client, CONFIG_MAPS, config_map("a"))
    await bench.restart()
    assert await objects.get(client, CONFIG_MAPS, "a", namespace="default")
    await objects.create(client, CONFIG_MAPS, config_map("b"))


async def test_a_request_waits_while_the_server_is_away(bench, client):
    await objects.list_(client, NAMESPACES)
    await bench.server.stop()
    waiting = asyncio.create_task(objects.create(client, CONFIG_MAPS, config_map("a")))
    for _ in range(10):
        await asyncio.sleep(0)
    await bench.server.start()
    async with asyncio.timeout(30):
        assert (await waiting)["metadata"]["uid"]


async def test_a_server_that_stays_away_is_given_up(bench):
    async with bench.client(patience=0.1) as client:
        await objects.list_(client, NAMESPACES)
        await bench.server.stop()
        with pytest.raises(Unreachable):
            await objects.list_(client, NAMESPACES)
        await bench.server.start()


@pytest.mark.parametrize(
    "half",
    [
        b"HTTP/1.1 200 OK\r\nContent-length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{",
        b"HTTP/1.1 200",
        b"SSH-2.0-OpenSSH\r\n\r\n",
    ],
)
async def test_an_answer_that_breaks_off_is_asked_for_again(half):
    async with Scripted(half, ok({"a": 1})) as server:
        assert await server.client.get("/x") == {"a": 1}
        assert server.requests == ["GET", "GET"]


@pytest.mark.parametrize("lost", [1, 4])
async def test_a_create_whose_answer_was_lost_is_not_made_twice(lost):
    """Answers are lost, as of several pooled connections that a network resets; the next is 409: the object is read."""
    conflict = b'{"kind":"Status","reason":"AlreadyExists","message":"exists","code":409}'
    answers = (
        *([None] * lost),
        b"HTTP/1.1 409 Conflict\r\nContent-Length: %d\r\n\r\n%b" % (len(conflict), conflict),
        ok(config_map("a")),
    )
    async with Scripted(*answers) as server:
        made = await objects.create(server.client, CONFIG_MAPS, config_map("a"))
        assert server.requests == [*(["POST"] * lost), "POST", "GET"]
    assert made["metadata"]["name"] == "a"


@pytest.mark.parametrize(
    "there", [{"deletionTimestamp": "2026-01-01T00:00:00Z"}, {"ownerReferences": [{"uid": "other"}]}]
)
async def test_a_create_whose_answer_was_lost_does_not_return_an_older_object(there):
    conflict = b'{"kind":"Status","reason":"AlreadyExists","message":"exists","code":409}'
    older = config_map("a")
    older["metadata"].update(there)
    answers = None, b"HTTP/1.1 409 Conflict\r\nContent-Length: %d\r\n\r\n%b" % (len(conflict), conflict), ok(older)
    async with Scripted(*answers) as server:
        with pytest.raises(ApiError) as raised:
            await objects.create(server.client, CONFIG_MAPS, config_map("a"))
    assert raised.value.status == 409


async def test_a_post_is_not_repeated_by_itself():
    async with Scripted(None) as server:
        with pytest.raises(ConnectionLost):
            await server.client.post("/x", {})
        assert server.requests == ["POST"]


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_server_is_asked_again_when_it_wants_to_be_and_not_by_all_at_once(status, pauses):
    async def stream(client):
        async with client.stream("/x") as chunks:
            assert [chunk async for chunk in chunks] == [b"{}"]

    async def websocket(client):
        with pytest.raises(ApiError, match="not found"):
            await client.websocket("/x", protocols=("p",))

    gone = b'HTTP/1.1 404 Not Found\r\nContent-Length: 24\r\n\r\n{"message": "not found"}'
    for ask, answer in (
        (lambda client: client.get("/x"), ok({})),
        (lambda client: client.post("/x", {}), ok({})),
        (stream, ok({})),
        (websocket, gone),
    ):
        pauses.clear()
        async with Scripted(busy(status, 3), busy(status, 3), answer) as server:
            await ask(server.client)
            assert len(server.requests) == 3
        assert all(seconds > 3 for seconds in pauses)
        assert len(set(pauses)) == 2


async def test_a_server_that_is_busy_for_longer_than_one_waits_is_not_asked_again(pauses):
    async with Scripted(busy(429, 3600)) as server:
        with pytest.raises(ApiError) as raised:
            await server.client.get("/x")
        assert raised.value.retry_after == 3600
        assert server.requests == ["GET"]
    assert pauses == []


async def test_a_retry_after_that_is_no_number_of_seconds_is_ignored(pauses):
    odd = [busy().replace(b"\r\n", b"\r\nRetry-After: %b\r\n" % value, 1) for value in (b"Fri, 1 Jan", b"-3", b"\xb2")]
    async with Scripted(*odd, ok({})) as server:
        assert await server.client.get("/x") == {}
    assert all(seconds < 1 for seconds in pauses)
    assert len(pauses) == 3


def starting():
    """The 403 of an API server that has not read its roles yet."""
    message = (
        'pods is forbidden: User "jane" cannot list resource "pods" in API group "" at the cluster scope: '
        'RBAC: [clusterrole.rbac.authorization.k8s.io "system:discovery" not found, role "users" not found]'
    )
    body = json.dumps({"kind": "Status", "reason": "Forbidden", "code": 403, "message": message}).encode()
    return b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def test_all_answers_are_counted_those_that_do_not_end_by_themselves_too():
    async with Scripted(busy(), ok({}), ok({})) as server:
        await server.client.post("/x", {})
        async with server.client.stream("/x") as chunks:
            assert [each async for each in chunks]
        assert server.client.answered == {("POST", 429): 1, ("POST", 200): 1, ("GET", 200): 1}


async def test_a_server_that_has_just_started_is_asked_again_until_it_knows_its_roles():
    async with Scripted(starting(), starting(), ok({"a": 1}), starting(), ok({})) as server:
        assert await server.client.post("/x", {}) == {"a": 1}
        # Also where nothing else is retried, as in a watch.
        async with server.client.stream("/x", patience=0) as chunks:
            assert [chunk async for chunk in chunks] == [b"{}"]


async def test_a_role_that_never_appears_is_reported(monkeypatch):
    monkeypatch.setattr(retries, "_ROLES_SECONDS", 0.1)
    async with Scripted(*[starting()] * 10) as server:
        with pytest.raises(ApiError, match='role "users" not found'):
            await server.client.get("/x")
        assert 1 < len(server.requests) < 10


@pytest.mark.parametrize("body", [b"<html>Sign in</html>", b"[1]", b"{"])
async def test_an_answer_that_is_no_object_is_reported(body):
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    async with Scripted(answer) as server:
        with pytest.raises(ClusterError, match="not a Kubernetes object"):
            await server.client.get("/x")


async def test_words_of_something_in_between_are_passed_on():
    body = b"<html>Access denied by\n the firewall</html>"
    answer = b"HTTP/1.1 418 No\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    async with Scripted(answer) as server:
        with pytest.raises(ApiError, match="Access denied by the firewall"):
            await server.client.get("/x")


async def test_the_servers_clock_is_used_where_it_differs():
    answer = ok({}).replace(b"\r\n\r\n", b"\r\nDate: Sat, 01 Jan 2050 00:00:00 GMT\r\n\r\n")
    async with Scripted(answer, answer.replace(b"GMT", b"nonsense")) as server:
        await server.client.get("/x")
        ahead = server.client.now()
        await server.client.get("/x")
    assert 2524608000 <= ahead < 2524608000 + 600


async def test_a_cancelled_request_leaves_no_half_used_connection(client):
    await objects.list_(client, NAMESPACES)
    task = asyncio.create_task(objects.list_(client, NAMESPACES))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await objects.get(client, NAMESPACES, "default"))["kind"] == "Namespace"


async def test_the_scheme_of_a_server_may_be_in_capitals(bench):
    shouted = bench.server.url.replace("https://", "HTTPS://")
    async with bench.client(cluster={"server": shouted}) as client:
        assert await objects.get(client, NAMESPACES, "default")


async def test_a_proxy_of_the_environment_is_used(bench):
    """A real CONNECT proxy on loopback."""
    asked = []

    async def relay(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.append(head.split(" ")[1])
        host, port = asked[-1].rsplit(":", 1)
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def pump(source, sink):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
            sink.close()

        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer), return_exceptions=True)

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as proxy:
        url = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        async with bench.client(cluster={"proxy-url": url}) as client:
            assert await objects.get(client, NAMESPACES, "default")
    assert asked == [bench.server.url.removeprefix("https://")]
