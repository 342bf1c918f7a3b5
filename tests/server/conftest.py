"""A real Jupyter server with the extension, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import holders
import pytest
from pages import DEADLINE

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.kube import auth, objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.service import names

TOKEN = "s3cret"
BASE_URL = "/behind/a-proxy/"
_RUNS = re.compile(r"(http://127\.0\.0\.1:\d+)/")

OTHERS = ("jupyter_lsp", "jupyter_server_terminals", "jupyterlab", "notebook", "notebook_shim")
"""Extensions that are installed beside it, and would take longer to start than all of the rest."""
CONFIG = """
c.ServerApp.allow_root = True
c.ServerApp.open_browser = False
c.ServerApp.port = 0
c.ServerApp.ip = "127.0.0.1"
c.ServerApp.base_url = {base_url!r}
c.ServerApp.root_dir = {root!r}
c.KernelManager.transport = "ipc"
c.ServerApp.jpserver_extensions = {{"pathways_jupyter": True, **dict.fromkeys({others!r}, False)}}
c.IdentityProvider.token = {token!r}

from pathways_jupyter.server import cluster_view, server_state, routes

cluster_view.CHECK_SECONDS = 0.5
server_state.LINGER_SECONDS = 1.0

async def broken(request):
    async def lines():
        yield "a line"
        raise ValueError("a fault after it")

    if request.parameters:
        return lines()
    raise ZeroDivisionError("a fault")

routes.ROUTES += (routes.Route("GET", "broken", broken, ("late",)),)
"""
"""A server for one user, which looks at its files and at its sessions more often than usual. One route has a fault."""
STRICT = """
from jupyter_server.auth import Authorizer

class NotPathways(Authorizer):
    def is_authorized(self, handler, user, action, resource):
        return resource != "pathways"

c.ServerApp.authorizer_class = NotPathways
"""


@dataclass
class Server:
    """Address of a server, and requests to it."""

    url: str
    environ: dict[str, str]

    def http(self, *, token: str = TOKEN) -> aiohttp.ClientSession:
        headers = {"Authorization": f"token {token}"} if token else {}
        return aiohttp.ClientSession(headers=headers)

    def browser(self) -> aiohttp.ClientSession:
        """As a browser comes that is not logged in yet: it keeps cookies, and knows no token."""
        return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))

    async def log_in(self, http: aiohttp.ClientSession) -> str:
        """Logs a browser in, and returns the XSRF token that its pages find in their cookies."""
        async with http.get(f"{self.url}{BASE_URL}login?token={TOKEN}") as answer:
            assert answer.status == 200
        return next(cookie.value for cookie in http.cookie_jar if cookie.key == "_xsrf")

    def route(self, path: str) -> str:
        return f"{self.url}{BASE_URL}pathways-jupyter/{path}"

    def set_up(self, kubeconfig: str) -> None:
        """Make `kubeconfig` that of the server's user; an empty string means no kubeconfig."""
        path = Path(self.environ["HOME"]) / ".kube" / "config"
        path.parent.mkdir(exist_ok=True)
        if kubeconfig:
            # As a whole: the server may be reading it.
            fresh = path.with_suffix(".new")
            fresh.write_text(kubeconfig, encoding="utf-8")
            fresh.replace(path)
        else:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def running(directory: Path, environ: dict[str, str], *, more: str = "") -> Iterator[Server]:
    """Start a server, and end it."""
    root = directory / "files"
    root.mkdir(parents=True, exist_ok=True)
    config = directory / "jupyter_server_config.py"
    config.write_text(
        CONFIG.format(base_url=BASE_URL, root=str(root), token=TOKEN, others=OTHERS) + more, encoding="utf-8"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyter_server", "--config", str(config)],
        env=environ,
        cwd=directory,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = []
    url = ""
    for line in process.stderr:
        said.append(line)
        if match := _RUNS.search(line):
            url = match[1]
            break
    assert url, "".join(said)
    threading.Thread(target=process.stderr.read, daemon=True).start()
    _wait_until_it_listens(url)
    try:
        yield Server(url, environ)
    finally:
        process.terminate()
        process.wait(60)
        process.stderr.close()


def _wait_until_it_listens(url: str) -> None:
    """It says where it is a moment before it is there."""
    address = ("127.0.0.1", int(url.rpartition(":")[2]))
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(address, timeout=5).close()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
        else:
            return


@pytest.fixture(scope="session")
def nothing(machine) -> Iterator[dict[str, str]]:
    """The environment of a user without a kubeconfig or a cluster."""
    with tempfile.TemporaryDirectory(prefix="pj-") as home:
        places = {name: f"{home}/{name[8:]}" for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR")}
        yield {**machine.environ, **places, "HOME": home}


@pytest.fixture(scope="session")
def server(nothing, tmp_path_factory) -> Iterator[Server]:
    """A server whose user has no kubeconfig at all."""
    with running(tmp_path_factory.mktemp("server"), nothing) as made:
        yield made


@pytest.fixture(scope="session")
def strict_server(nothing, tmp_path_factory) -> Iterator[Server]:
    """A server that authorizes its user for everything but Pathways."""
    with running(tmp_path_factory.mktemp("strict"), nothing, more=STRICT) as made:
        yield made


UNREACHABLE = json.dumps(
    {
        "current-context": "gone",
        "contexts": [{"name": "gone", "context": {"cluster": "gone", "user": "u"}}],
        "clusters": [{"name": "gone", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
)
"""The kubeconfig of a cluster that is not there."""


@pytest.fixture
def set_up(server) -> Iterator[Callable[[str], None]]:
    """Gives the server's user a kubeconfig, until the test's end."""
    yield server.set_up
    server.set_up("")


@pytest.fixture
def unreachable(set_up) -> None:
    """The server's user has the kubeconfig of a cluster that is not there."""
    set_up(UNREACHABLE)


async def kill_worker(kubeconfig: Path, number: int) -> None:
    """Delete the worker of a slice of the service; jobs have workers too, and one that was replaced may still end."""
    labels = {
        names.JOBSET_NAME_LABEL: names.DEFAULT_SERVICE,
        names.REPLICATED_JOB_LABEL: names.WORKER_JOB,
        names.JOB_INDEX_LABEL: str(number),
    }
    selector = ",".join(f"{name}={value}" for name, value in labels.items())
    async with Client(auth.load(str(kubeconfig))) as client:
        pods = (await objects.list_(client, objects.PODS, namespace="default", labels=selector)).items
        (name,) = [each["metadata"]["name"] for each in pods if "deletionTimestamp" not in each["metadata"]]
        await objects.delete(client, objects.PODS, name, namespace="default")


@contextlib.contextmanager
def connecting(kubeconfig: Path):
    """A function that starts a session of one slice, with this process for its kernel; at the end they all end."""
    links = []

    def start(**settings):
        given = {"instances": {"tpuv6e:2x2": 1}, "kubeconfig": str(kubeconfig), "wait": DEADLINE, **settings}
        config = ConnectConfig(**given)
        link, record = holders.start(config, notebook="a.ipynb")
        links.append(link)
        return link, record

    try:
        yield start
    finally:
        for link in links:
            assert link.close(patience=DEADLINE)
