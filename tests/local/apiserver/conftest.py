"""A real API server for each module, over pods that are programs of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import kubeconfigs
import pytest

from pathways_jupyter.local.apiserver.app import ApiServer
from pathways_jupyter.local.apiserver.resources import PODS
from pathways_jupyter.local.apiserver.store import Store


@dataclass
class LocalProcess:
    """A program started by exec."""

    process: asyncio.subprocess.Process

    @property
    def stdin(self):
        return self.process.stdin

    @property
    def stdout(self):
        return self.process.stdout

    @property
    def stderr(self):
        return self.process.stderr

    async def wait(self) -> int:
        code = await self.process.wait()
        return code if code >= 0 else 128 - code

    sizes: list[tuple[int, int]] = field(default_factory=list)

    def resize(self, width: int, height: int) -> None:
        self.sizes.append((width, height))

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()


class LocalRuntime:
    """Pods whose logs are lists of lines, whose programs are local ones, and whose ports are this machine's."""

    def __init__(self) -> None:
        self.lines: dict[tuple[str, str], list[bytes]] = {}
        self.ended: set[str] = set()
        self.previous: dict[tuple[str, str], list[bytes]] = {}
        self.changed = asyncio.Condition()
        self.processes: list[LocalProcess] = []
        self.allowed_ports: set[int] = set()

    async def write(self, uid: str, container: str, line: bytes) -> None:
        async with self.changed:
            self.lines.setdefault((uid, container), []).append(line + b"\n")
            self.changed.notify_all()

    async def end(self, uid: str) -> None:
        async with self.changed:
            self.ended.add(uid)
            self.changed.notify_all()

    async def logs(self, uid, container, *, follow, tail, previous, since, timestamps) -> AsyncIterator[bytes]:
        source = self.previous if previous else self.lines
        if (uid, container) not in source:
            raise LookupError("nothing was ever written")
        lines = source[uid, container]
        stamp = datetime.datetime.now(datetime.UTC).isoformat().encode() + b" " if timestamps else b""
        position = 0 if tail is None else max(0, len(lines) - tail)
        while True:
            while position < len(lines):
                yield stamp + lines[position]
                position += 1
            if not follow or uid in self.ended:
                return
            async with self.changed:
                while position == len(lines) and uid not in self.ended:
                    await self.changed.wait()

    async def exec(self, uid, container, command, *, stdin, tty) -> LocalProcess:
        if (uid, container) not in self.lines:
            raise LookupError(container)
        pipe = asyncio.subprocess.PIPE
        process = LocalProcess(
            await asyncio.create_subprocess_exec(
                *command,
                stdin=pipe if stdin else asyncio.subprocess.DEVNULL,
                stdout=pipe,
                stderr=asyncio.subprocess.STDOUT if tty else pipe,
                limit=1 << 20,
            )
        )
        self.processes.append(process)
        return process

    async def dial(self, uid, port):
        return await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)


@dataclass
class Bench:
    """A server and everything to reach it."""

    directory: Path
    store: Store
    runtime: LocalRuntime
    server: ApiServer
    token: str
    kubeconfig: Path
    http: aiohttp.ClientSession

    def request(self, method: str, path: str, *, token: str | None = None, **options):
        """Return a request, to be entered for its response; `headers` are sent beside that of the token."""
        headers = {"Authorization": f"Bearer {token or self.token}", **options.pop("headers", {})}
        return self.http.request(method, self.server.url + path, headers=headers, **options)

    async def call(self, method: str, path: str, body=None, *, token: str | None = None, **options):
        """Send a request; return the status code and the decoded answer."""
        async with self.request(method, path, token=token, json=body, **options) as response:
            kind = response.content_type
            return response.status, await (response.json() if kind == "application/json" else response.text())

    def websocket(self, path: str, *protocols: str):
        """Return a WebSocket, to be entered."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return self.http.ws_connect(self.server.url + path, protocols=protocols, headers=headers)

    async def kubectl(self, *arguments: str, stdin: bytes = b"", code: int | None = 0) -> str:
        """Run the real kubectl and return its output."""
        process = await asyncio.create_subprocess_exec(
            "kubectl",
            "--kubeconfig",
            str(self.kubeconfig),
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "HOME": str(self.directory)},
        )
        out, err = await process.communicate(stdin)
        assert code is None or process.returncode == code, (arguments, process.returncode, out, err)
        return (out + err).decode()

    async def running_pod(self, name: str, *, lines: tuple[bytes, ...] = (b"hello",), **labels: str):
        """A pod with one container called main that says it runs."""
        pod = self.store.create(PODS, make_pod(name, **labels))
        self.store.edit(PODS, "default", name, lambda pod: pod["spec"].update(nodeName="n0"), subresource="binding")
        state = {
            "name": "main",
            "ready": True,
            "restartCount": 0,
            "image": "i",
            "imageID": "i",
            "state": {"running": {}},
        }
        status = {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": [state]}
        pod = self.store.edit(PODS, "default", name, lambda pod: pod["status"].update(status), subresource="status")
        self.runtime.lines[pod["metadata"]["uid"], "main"] = [line + b"\n" for line in lines]
        return pod

    async def restart(self) -> None:
        """Stop the server, and start it again on the same port."""
        await self.server.stop()
        await self.server.start()


def make_pod(name: str, **labels: str):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "registry/thing:1", "ports": [{"containerPort": 80}]}]},
    }


@contextlib.asynccontextmanager
async def make_bench(directory: Path, **settings: Any) -> AsyncIterator[Bench]:
    store, runtime = Store(), LocalRuntime()
    server = ApiServer(store, runtime, directory=directory, **settings)
    await server.start()
    token = server.users.add("admin")
    kubeconfig = directory / "kubeconfig"
    entry = {"server": server.url, "certificate-authority": str(server.ca)}
    kubeconfigs.write(kubeconfig, entry, {"token": token}, namespace="default")
    kubeconfig.chmod(0o600)
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=server.ca))
    async with aiohttp.ClientSession(connector=connector) as http:
        bench = Bench(directory, store, runtime, server, token, kubeconfig, http)
        try:
            yield bench
        finally:
            await bench.server.stop()
            bench.store.close()
            for process in runtime.processes:
                process.kill()
                await process.wait()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with make_bench(tmp_path) as bench:
        yield bench


@pytest.fixture
async def echo() -> AsyncIterator[int]:
    """The port of an echo server."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


@pytest.fixture
def python() -> Callable[[str], list[str]]:
    """A command that runs a line of Python."""
    return lambda text: [sys.executable, "-c", text]


@pytest.fixture
def pod_manifest() -> Callable[..., dict]:
    """Make the manifest of a pod with one container, called main."""
    return make_pod


@pytest.fixture(scope="session")
def open_bench():
    """Open a server on a directory."""
    return make_bench
