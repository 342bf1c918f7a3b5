import asyncio
import base64
import os
import signal
import stat
import sys
import time

import kubeconfigs
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from waits import has_ended, wait_until

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ClusterError, ConfigError
from pathways_jupyter.kube import auth, credentials
from pathways_jupyter.kube.cluster_access import proxy_of_environment, tls
from pathways_jupyter.kube.credentials import ExecPlugin, Renewable, TokenFile, parse_time

DEADLINE = 60.0
V1 = "client.authentication.k8s.io/v1"


def plugin_script(directory, body):
    """A credential plugin: a real program that appends to `runs` each time it is run."""
    path = directory / "plugin"
    path.write_text(
        f"#!{sys.executable}\nimport json, os, sys, time\nopen({str(directory / 'runs')!r}, 'a').write('x')\n{body}"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def runs(directory):
    return len((directory / "runs").read_text())


def plugin(directory, body, **config):
    script = plugin_script(directory, body)
    entry = {"apiVersion": V1, "command": str(script), "interactiveMode": "IfAvailable", **config}
    return ExecPlugin(entry, directory=directory, cluster={"server": "https://x"}, context=tls())


def prints(status):
    return f"print(json.dumps({{'apiVersion': {V1!r}, 'kind': 'ExecCredential', 'status': {status}}}))"


async def test_a_plugin_is_run_once_for_many_requests(tmp_path):
    source = plugin(tmp_path, prints("{'token': 'abc'}"))
    answers = await asyncio.gather(*(source.authorization() for _ in range(5)))
    assert set(answers) == {"Bearer abc"}
    assert runs(tmp_path) == 1


def test_requests_that_waited_for_a_plugin_that_hangs_fail_with_the_first(tmp_path, monkeypatch):
    """Each would wait as long as the first did; and one that is cancelled while it starts a process never ends."""
    monkeypatch.setattr(credentials, "CREDENTIAL_SECONDS", 0.5)
    source = plugin(tmp_path, "time.sleep(600)")

    async def ask():
        await asyncio.gather(*(source.authorization() for _ in range(3)))

    with pytest.raises(ClusterError, match="did not end"):
        tasks.run(ask())


async def test_a_plugin_that_failed_is_run_again_by_the_next_request(tmp_path):
    answer = prints("{'token': 'abc'}")
    source = plugin(tmp_path, f"os.path.getsize({str(tmp_path / 'runs')!r}) > 1 or sys.exit(1)\n{answer}")
    failed = await asyncio.gather(*(source.authorization() for _ in range(3)), return_exceptions=True)
    assert {type(each) for each in failed} == {ClusterError}
    assert runs(tmp_path) == 1
    assert await source.authorization() == "Bearer abc"


async def test_the_reason_of_a_plugin_that_failed_is_what_it_says_of_the_error(tmp_path):
    wrapped = (
        "print credential failed with error: exit status 1 (err: ERROR: no active account.\\nRun:\\n\\n$ login\\n)"
    )
    source = plugin(tmp_path, f"sys.exit('F1126 22:40:11.123456   12345 cred.go:145] {wrapped}')")
    with pytest.raises(
        ClusterError, match=r"exit code 1: print credential failed .* \(err: ERROR: no active account\.\n"
    ):
        await source.authorization()


async def test_an_expired_token_makes_the_plugin_run_again(tmp_path):
    source = plugin(tmp_path, prints("{'token': 'abc', 'expirationTimestamp': '2020-01-01T00:00:00Z'}"))
    await source.authorization()
    await source.authorization()
    assert runs(tmp_path) == 2


async def test_a_plugin_gets_its_arguments_its_environment_and_the_cluster(tmp_path):
    body = "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
    body += prints("{'token': sys.argv[1] + os.environ['EXTRA'] + info['spec']['cluster']['server']}")
    source = plugin(tmp_path, body, args=["a"], env=[{"name": "EXTRA", "value": "b"}], provideClusterInfo=True)
    assert await source.authorization() == "Bearer abhttps://x"


@pytest.mark.parametrize(
    "body", ["{}['config']", "os.kill(os.getpid(), 11)", "print('hello')", "sys.exit('panic: runtime error')"]
)
async def test_the_advice_for_a_plugin_that_is_broken_is_not_to_log_in(tmp_path, body):
    with pytest.raises(ClusterError, match=r"The credential plugin .* failed") as raised:
        await plugin(tmp_path, body).authorization()
    assert "Log in" not in raised.value.hint
    assert "See whether kubectl fails with this context too" in raised.value.hint


async def test_a_failing_plugin_is_reported_with_its_last_words(tmp_path):
    source = plugin(tmp_path, "sys.exit('you must log in')")
    with pytest.raises(ClusterError, match="exit code 1: you must log in") as raised:
        await source.authorization()
    assert "Log in again" in raised.value.hint


@pytest.mark.parametrize("body", ["print('hello')", "print('{}')", prints("{}")])
async def test_a_plugin_that_prints_something_else_is_reported(tmp_path, body):
    with pytest.raises(ClusterError, match=r"it (did not print|printed neither)"):
        await plugin(tmp_path, body).authorization()


async def test_a_missing_plugin_is_reported_with_how_to_install_it(tmp_path):
    entry = {"apiVersion": V1, "command": "pathways-no-such-plugin", "installHint": "Install   it\nfrom there."}
    source = ExecPlugin(entry, directory=tmp_path, cluster={}, context=None)
    with pytest.raises(ClusterError, match="cannot be run") as raised:
        await source.authorization()
    assert raised.value.hint == "Install it from there."


async def test_a_cancelled_request_does_not_leave_the_plugin_running(tmp_path):
    pid_file = tmp_path / "pid"
    os.mkfifo(pid_file)
    source = plugin(tmp_path, f"open({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)")
    task = asyncio.create_task(source.authorization())
    pid = int(await asyncio.to_thread(pid_file.read_text))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.thorough
async def test_a_plugin_that_hangs_is_named_with_its_timeout(tmp_path, monkeypatch):
    """The process that hangs is a child of the plugin, and keeps the output open after the plugin has ended."""
    monkeypatch.setattr(credentials, "CREDENTIAL_SECONDS", 5)
    pid_file = tmp_path / "pid"
    body = f"import subprocess\nopen({str(pid_file)!r}, 'w').write(str(subprocess.Popen(['sleep', '600']).pid))"
    source = plugin(tmp_path, body)
    with pytest.raises(ClusterError, match=r"plugin .*/plugin failed: it did not end within 5 s"):
        await source.authorization()
    await asyncio.to_thread(wait_until, lambda: has_ended(int(pid_file.read_text())), DEADLINE)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_a_plugin_that_prints_without_end_is_cut(tmp_path, monkeypatch, stream):
    monkeypatch.setattr(credentials, "CREDENTIAL_SECONDS", 2 if stream == "stderr" else DEADLINE)
    source = plugin(tmp_path, f"while True: sys.{stream}.write('x' * 65536)")
    async with asyncio.timeout(DEADLINE):
        problem = "printed more than 1024 KiB" if stream == "stdout" else "did not end within 2 s"
        with pytest.raises(ClusterError, match=problem):
            await source.authorization()


async def test_a_plugin_that_prints_faster_than_is_read_is_cut_too(tmp_path):
    """Asyncio pauses the pipe then, and waits for a process only until it has read all pipes to their ends."""
    body = "import fcntl\nfcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 20)\nwhile True: os.write(1, b'x' * (1 << 20))"
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(ClusterError, match="printed more than 1024 KiB"):
            await plugin(tmp_path, body).authorization()


@pytest.mark.thorough
async def test_a_child_of_the_plugin_in_a_session_of_its_own_is_not_waited_for(tmp_path, monkeypatch):
    """It keeps the output open, and is not killed with the plugin."""
    monkeypatch.setattr(credentials, "CREDENTIAL_SECONDS", 5)
    pid_file = tmp_path / "pid"
    child = "subprocess.Popen(['sleep', '600'], start_new_session=True)"
    source = plugin(tmp_path, f"import subprocess\nopen({str(pid_file)!r}, 'w').write(str({child}.pid))")
    try:
        async with asyncio.timeout(DEADLINE):
            with pytest.raises(ClusterError, match=r"it did not end within 5 s"):
                await source.authorization()
    finally:
        os.kill(int(pid_file.read_text()), signal.SIGKILL)


async def test_much_talk_on_standard_error_does_no_harm(tmp_path):
    source = plugin(tmp_path, "sys.stderr.write('x' * 3_000_000)\n" + prints("{'token': 'abc'}"))
    async with asyncio.timeout(DEADLINE):
        assert await source.authorization() == "Bearer abc"


@pytest.mark.parametrize("token", ["a\\r\\nX: 1", "a\\nb", "\\x00"])
async def test_a_token_that_would_begin_another_header_is_refused_from_every_source(tmp_path, token):
    printed = token.encode().decode("unicode_escape")
    with pytest.raises(ClusterError, match="the token that it printed is not one line"):
        await plugin(tmp_path, prints(f"{{'token': '{token}'}}")).authorization()
    (tmp_path / "token").write_text(printed + "x", newline="")
    with pytest.raises(ClusterError, match=r"token file .* does not hold one line"):
        await TokenFile(tmp_path / "token").authorization()
    with pytest.raises(ConfigError, match="token of user 'u' contains a line break"):
        auth.load(kubeconfig(tmp_path, {"token": printed}))


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe"])
async def test_a_token_file_without_a_token_is_reported(tmp_path, content):
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(ClusterError, match="does not hold one line"):
        await TokenFile(tmp_path / "token").authorization()


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"apiVersion": V1},
        {"apiVersion": "v0", "command": "x"},
        {"apiVersion": V1, "command": "x", "interactiveMode": "Always"},
    ],
)
def test_a_plugin_that_cannot_work_is_refused_before_it_runs(tmp_path, config):
    with pytest.raises(ConfigError):
        ExecPlugin(config, directory=tmp_path, cluster={}, context=None)


async def test_a_token_file_is_read_again_each_time(tmp_path):
    path = tmp_path / "token"
    path.write_text("one\n")
    source = TokenFile(path)
    assert await source.authorization() == "Bearer one"
    path.write_text("two")
    assert await source.authorization() == "Bearer two"
    path.unlink()
    with pytest.raises(ClusterError, match="cannot be read"):
        await source.authorization()


async def test_a_renewable_token_is_fetched_when_it_is_about_to_expire():
    expiries = iter([time.time() + 10, time.time() + 3600])
    fetched = []

    async def fetch():
        fetched.append(1)
        return f"Bearer t{len(fetched)}", next(expiries)

    source = Renewable(fetch, hint="")
    assert await source.authorization() == "Bearer t1"
    assert await source.authorization() == "Bearer t2"
    assert await source.authorization() == "Bearer t2"


def test_timestamps_with_and_without_fractions_are_read():
    assert parse_time("1970-01-01T00:00:10Z") == 10
    assert parse_time("1970-01-01T00:00:10.500000Z") == 10.5
    with pytest.raises(ClusterError):
        parse_time("yesterday")


def kubeconfig(directory, user, cluster=None):
    return kubeconfigs.write(directory / "config", {"server": "https://x.example/", **(cluster or {})}, user)


async def test_kinds_of_users_become_their_authorization(tmp_path):
    for user, expected in [
        ({"token": "t"}, "Bearer t"),
        ({"username": "u", "password": "p"}, "Basic " + base64.b64encode(b"u:p").decode()),
        ({}, ""),
    ]:
        cluster = auth.load(kubeconfig(tmp_path, user))
        assert await cluster.credentials.authorization() == expected
        assert (cluster.server, cluster.namespace, cluster.name) == ("https://x.example", "default", "x")
        assert not await cluster.credentials.renew()


@pytest.mark.parametrize(
    ("user", "cluster", "problem"),
    [
        ({}, {"certificate-authority-data": "!!"}, "not base64"),
        ({}, {"certificate-authority-data": base64.b64encode(b"no pem").decode()}, "not a PEM certificate"),
        # Data may be broken into lines.
        ({}, {"certificate-authority-data": base64.encodebytes(b"no pem" * 99).decode()}, "not a PEM certificate"),
        ({}, {"certificate-authority": "missing.crt"}, "cannot be read"),
        ({"client-certificate-data": base64.b64encode(b"x").decode(), "client-key-data": "eA=="}, {}, "cannot be used"),
        ({}, {"server": "x.example"}, "server of cluster 'c' is 'x.example', which is not a URL"),
        ({}, {"server": "http://["}, "server of cluster 'c' is 'http://\\[', which is not a URL: Invalid IPv6"),
        ({}, {"server": "https://x:99999"}, "server of cluster 'c' is 'https://x:99999', .*: Port out of range"),
        ({}, {"server": "https://x:port"}, "server of cluster 'c' is 'https://x:port', which is not a URL"),
        ({}, {"server": "https://x:0"}, "port 0"),
        ({}, {"server": "https://"}, "server of cluster 'c' is 'https:', .* names no host"),
        ({}, {"server": "https://a b"}, "names no host"),
        ({}, {"server": "https://x\r\nY: 1"}, "server of cluster 'c' contains a line break"),
        ({}, {"server": ["https://x"]}, "server of cluster 'c' must be text, but is a list"),
        ({}, {"proxy-url": "http://["}, "proxy-url of cluster 'c' is"),
        ({}, {"proxy-url": "socks5://p:1080"}, "proxy-url of cluster 'c' is .*, a SOCKS proxy, which is not supported"),
        ({}, {"proxy-url": "ftp://p"}, "does not begin with http:// or https://"),
        ({"token": "t", "as-groups": ["dev"]}, {}, "as of user 'u' is missing"),
        ({"token": "t", "as-uid": "7"}, {}, "as of user 'u' is missing"),
        ({"token": "t", "as": "jane", "as-user-extra": ["a"]}, {}, "as-user-extra of user 'u' must be a mapping"),
        ({"client-certificate-data": "eA=="}, {}, "client-key of user 'u' is missing"),
        ({}, {"insecure-skip-tls-verify": "false"}, "insecure-skip-tls-verify .* must be true or false, but is text"),
        ({"token": 5}, {}, "token of user 'u' must be text, but is a number; put it in quotes"),
        ({"token": ["t"]}, {}, "token of user 'u' must be text, but is a list"),
        ({"token": "t", "as": "jane\nX: 1"}, {}, "as of user 'u' contains a line break"),
        ({"token": "t", "as-groups": "dev"}, {}, "as-groups of user 'u' must be a list, but is text"),
        ({"exec": "plugin"}, {}, "exec of user 'u' must be a mapping, but is text"),
        ({"exec": {"apiVersion": V1, "command": "x", "args": "a"}}, {}, "args of exec of user 'u' must be a list"),
        ({"exec": {"apiVersion": V1, "command": "x", "args": [1]}}, {}, r"args\[0\] of exec of user 'u' must be text"),
        ({"exec": {"apiVersion": V1, "command": "x", "env": [{"name": "A"}]}}, {}, "env of exec of user 'u' must be"),
        ({"exec": {"apiVersion": V1, "command": ["x"]}}, {}, "command of exec of user 'u' must be text"),
    ],
)
def test_a_kubeconfig_that_cannot_work_is_named_with_the_field_and_what_to_do(tmp_path, user, cluster, problem):
    with pytest.raises(ConfigError, match=problem) as raised:
        auth.load(kubeconfig(tmp_path, user, cluster))
    assert str(tmp_path / "config") in str(raised.value)
    assert raised.value.hint


def test_an_encrypted_key_is_refused_and_not_asked_for(tmp_path):
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.BestAvailableEncryption(b"secret"),
    )
    user = {"client-certificate-data": "eA==", "client-key-data": base64.b64encode(key).decode()}
    with pytest.raises(ConfigError, match="cannot be used"):
        auth.load(kubeconfig(tmp_path, user))


def test_no_kubeconfig_at_all_is_reported_with_every_way_out(tmp_path):
    with pytest.raises(ConfigError, match="no kubeconfig") as raised:
        auth.load(environ={"HOME": str(tmp_path)})
    assert "--local" in raised.value.hint


def test_inside_a_pod_the_service_account_is_used(tmp_path):
    with pytest.raises(ConfigError, match="not run in a pod"):
        auth.in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, directory=tmp_path)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HTTPS_PROXY": "http://p:3128"}, "http://p:3128"),
        ({"https_proxy": "http://p:3128", "NO_PROXY": "other.org"}, "http://p:3128"),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": ".example"}, ""),
        ({"HTTPS_PROXY": "http://p:3128", "no_proxy": "x.example,y"}, ""),
        ({"HTTPS_PROXY": "p:3128"}, "http://p:3128"),
        ({}, ""),
    ],
)
def test_the_environments_proxy_is_used_but_for_exempt_hosts(tmp_path, environ, expected):
    assert auth.load(kubeconfig(tmp_path, {}), environ=environ).proxy == expected


@pytest.mark.parametrize(
    ("server", "exempt", "direct"),
    [
        ("https://api.corp.test:6443", "api.corp.test:6443", True),
        ("https://api.corp.test:6443", "api.corp.test:443", False),
        ("https://api.corp.test", "corp.test:443", True),
        ("https://api.corp.test", "*.corp.test", True),
        ("https://corp.test", ".corp.test", False),
        ("https://API.corp.test", "api.CORP.test", True),
        ("https://notcorp.test", "corp.test", False),
        ("https://10.1.2.3:6443", "10.1.2.3:6443", True),
        ("https://10.1.2.3:6443", "10.1.2.3:443", False),
        ("https://[fd00::1]:6443", "fd00::1", True),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", True),
        ("https://[fd00::1]", "fd00::/8", True),
        ("https://[::1]:6443", "", True),
        ("https://10.1.2.3", "localhost, 10.0.0.0/8", True),
        ("https://11.1.2.3", "localhost, 10.0.0.0/8", False),
        ("https://x.example", "localhost, 10.0.0.0/8", False),
        ("https://x.example", "a, *", True),
        ("https://x.example", ",:443,[,a:b:c", False),
    ],
)
def test_exempt_hosts_are_written_as_for_kubectl(server, exempt, direct):
    proxy = proxy_of_environment(server, {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": exempt})
    assert proxy == ("" if direct else "http://p:3128")


def test_a_socks_proxy_of_the_environment_is_named_with_what_to_do():
    with pytest.raises(ConfigError, match="a SOCKS proxy, which is not supported") as caught:
        proxy_of_environment("https://x.example", {"HTTPS_PROXY": "SOCKS5h://p"})
    assert "ssh -L" in caught.value.hint


def test_a_proxy_in_the_environment_that_is_no_url_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"HTTPS_PROXY is 'http://\[', which is not a URL"):
        auth.load(kubeconfig(tmp_path, {}), environ={"HTTPS_PROXY": "http://["})


def test_the_kubeconfig_is_never_written(tmp_path):
    path = kubeconfig(tmp_path, {"token": "t"})
    os.chmod(path, 0o400)
    before = os.stat(path).st_mtime_ns
    auth.load(path)
    assert os.stat(path).st_mtime_ns == before
