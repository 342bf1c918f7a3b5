import asyncio
import base64
import os
import stat
import sys
import time

import kubeconfigs
import pytest

from pathways_jupyter.errors import ClusterError, ConfigError
from pathways_jupyter.kube import auth
from pathways_jupyter.kube.cluster import tls
from pathways_jupyter.kube.credentials import ExecPlugin, Renewable, TokenFile, parse_time

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


async def test_a_refused_token_makes_the_plugin_run_again(tmp_path):
    source = plugin(tmp_path, prints("{'token': str(os.path.getsize(sys.argv[0][:-6] + 'runs'))}"))
    first = await source.authorization()
    assert await source.renew()
    assert await source.authorization() != first


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


async def test_a_failing_plugin_is_told_with_its_last_words(tmp_path):
    source = plugin(tmp_path, "sys.exit('you must log in')")
    with pytest.raises(ClusterError, match="exit code 1: you must log in") as raised:
        await source.authorization()
    assert "Log in again" in raised.value.hint


@pytest.mark.parametrize("body", ["print('hello')", "print('{}')", prints("{}")])
async def test_a_plugin_that_prints_something_else_is_told(tmp_path, body):
    with pytest.raises(ClusterError, match=r"it (did not print|printed neither)"):
        await plugin(tmp_path, body).authorization()


async def test_a_missing_plugin_is_told_with_how_to_install_it(tmp_path):
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

    def fetch():
        fetched.append(1)
        return f"t{len(fetched)}", next(expiries)

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


def test_impersonation_becomes_headers(tmp_path):
    cluster = auth.load(kubeconfig(tmp_path, {"token": "t", "as": "jane", "as-groups": ["dev"]}))
    assert cluster.headers == {"Impersonate-User": "jane", "Impersonate-Group": "dev"}


@pytest.mark.parametrize(
    ("user", "cluster", "problem"),
    [
        ({}, {"certificate-authority-data": "!!"}, "not base64"),
        ({}, {"certificate-authority-data": base64.b64encode(b"no pem").decode()}, "not a PEM certificate"),
        ({}, {"certificate-authority": "missing.crt"}, "cannot be read"),
        ({"client-certificate-data": base64.b64encode(b"x").decode(), "client-key-data": "eA=="}, {}, "cannot be used"),
        ({}, {"server": "x.example"}, "is not a URL"),
    ],
)
def test_a_kubeconfig_that_cannot_work_is_told_and_what_to_do(tmp_path, user, cluster, problem):
    with pytest.raises(ConfigError, match=problem) as raised:
        auth.load(kubeconfig(tmp_path, user, cluster))
    assert raised.value.hint


def test_no_kubeconfig_at_all_is_told_with_every_way_out(tmp_path):
    with pytest.raises(ConfigError, match="no kubeconfig") as raised:
        auth.load(environ={"HOME": str(tmp_path)})
    assert "--local" in raised.value.hint


def test_inside_a_pod_the_service_account_is_used(tmp_path):
    with pytest.raises(ConfigError, match="not in a pod"):
        auth.in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, directory=tmp_path)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HTTPS_PROXY": "http://p:3128"}, "http://p:3128"),
        ({"https_proxy": "http://p:3128", "NO_PROXY": "other.org"}, "http://p:3128"),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": ".example"}, ""),
        ({"HTTPS_PROXY": "http://p:3128", "no_proxy": "x.example,y"}, ""),
        ({}, ""),
    ],
)
def test_the_environments_proxy_is_used_but_for_exempt_hosts(tmp_path, environ, expected):
    assert auth.load(kubeconfig(tmp_path, {}), environ=environ).proxy == expected


def test_the_kubeconfig_is_never_written(tmp_path):
    path = kubeconfig(tmp_path, {"token": "t"})
    os.chmod(path, 0o400)
    before = os.stat(path).st_mtime_ns
    auth.load(path)
    assert os.stat(path).st_mtime_ns == before
