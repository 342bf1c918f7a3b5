"""The place of a kernel: here, beside the chips, or in a lab that a page or a gateway's client reaches, over a link."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import portpicker
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

from benchmarks.link import Link
from benchmarks.measure import Row, Table, median
from pathways_jupyter.local.node import programs

_ROUND_TRIPS_MS = (30, 100)
_UP_MEGABITS, _DOWN_MEGABITS = 20, 100
_HERE, _BESIDE = "here, through the tunnel", "beside the chips"
_LAB, _GATEWAY = "in a lab, its page here", "in a lab, by --gateway-url"
_OWN_POD = "start in a pod of its own"
_SECONDS = 120.0
_PAUSE_SECONDS = 0.1
_TIMES = 5
_IMAGE_BYTES = 375_000
"""As text in a message half a megabyte."""
_CODE = {
    "connect": "import pathways_jupyter\nsession = pathways_jupyter.connect(tpu='tpuv6e:2x2=1', wait=60, "
    "progress=False, **{settings})\nimport jax, jax.numpy as jnp\njnp.ones(8).block_until_ready()",
    "a new operation": "made = jnp.ones((3, 5)).sum(0).block_until_ready()",
    "50 steps, each loss printed": "for _ in range(50): print(float(mean(x)), flush=True)",
    "a progress bar of 50": "from IPython.display import display, update_display\ndisplay('0', display_id='bar')\n"
    "for number in range(50): update_display(str(number), display_id='bar')",
    "an image of 500 KB": f"import os; display({{'image/png': __import__('base64').b64encode(os.urandom({_IMAGE_BYTES}"
    ")).decode()}, raw=True)",
    "a model made eagerly, each loss printed": "from benchmarks import distance_workload\n"
    "distance_workload._train_eagerly()",
}
_QUICK = {"a progress bar of 50", "an image of 500 KB"}


class _Kernel(Protocol):
    """One kernel as a front end has it."""

    async def run(self, code: str, until: str = "") -> None:
        """Run a cell to its end, or until it has printed `until`."""

    async def finish(self) -> None:
        """Wait for the end of the cell that runs."""

    async def complete(self) -> None:
        """Ask for what Tab shows."""

    async def interrupt(self) -> None:
        """Interrupt the cell that runs."""

    async def restart(self) -> None:
        """Restart it, and return when it has answered."""

    async def settle(self) -> None:
        """Wait until its output arrives, too."""


class _Local:
    """A kernel by its kernelspec, over ZMQ."""

    def __init__(self, manager: AsyncKernelManager) -> None:
        self._manager = manager
        self._client: Any = None
        self._request = ""

    @classmethod
    @contextlib.asynccontextmanager
    async def started(cls, name: str, directory: Path) -> AsyncIterator[_Local]:
        specs = KernelSpecManager(kernel_dirs=[str(directory / "kernels")])
        manager = AsyncKernelManager(kernel_name=name, kernel_spec_manager=specs)
        manager.connection_file = str(directory / f"kernel-{uuid.uuid4()}.json")
        folder = directory / "empty"
        folder.mkdir(exist_ok=True)
        await manager.start_kernel(cwd=str(folder))
        kernel = cls(manager)
        kernel._connect()
        try:
            await kernel._answers()
            yield kernel
        finally:
            kernel._client.stop_channels()
            await manager.shutdown_kernel()

    def _connect(self) -> None:
        self._client = self._manager.client()
        self._client.start_channels()

    async def _answers(self) -> None:
        await self._reply(self._client.kernel_info())

    async def settle(self) -> None:
        await self._client.wait_for_ready(timeout=_SECONDS)

    async def run(self, code: str, until: str = "") -> None:
        self._request = self._client.execute(code)
        await self._wait(until)

    async def finish(self) -> None:
        await self._wait("")

    async def _wait(self, until: str) -> None:
        while True:
            message = await self._client.get_iopub_msg(timeout=_SECONDS)
            if message["parent_header"].get("msg_id") != self._request:
                continue
            if until and until in str(message["content"].get("text", "")):
                return
            if message["content"].get("execution_state") == "idle":
                break
        await self._reply(self._request)

    async def _reply(self, request: str) -> None:
        while True:
            message = await self._client.get_shell_msg(timeout=_SECONDS)
            if message["parent_header"].get("msg_id") == request:
                _check(message["content"])
                return

    async def complete(self) -> None:
        await self._reply(self._client.complete("jnp.zer", 7))

    async def interrupt(self) -> None:
        await self._manager.interrupt_kernel()

    async def restart(self) -> None:
        await self._manager.restart_kernel()
        # New sockets, as a front end makes them: the last words of the old kernel would be taken for a sign of life.
        self._client.stop_channels()
        self._connect()
        await self._answers()


class _Page:
    """A kernel of a Jupyter server, over HTTP as a page uses it."""

    def __init__(self, page: aiohttp.ClientSession, kernel: str) -> None:
        self._page, self._kernel = page, kernel
        self._channels: Any = None
        self._request = ""

    @classmethod
    @contextlib.asynccontextmanager
    async def started(cls, url: str) -> AsyncIterator[_Page]:
        base, _, token = url.partition("/lab?token=")
        async with aiohttp.ClientSession(base, headers={"Authorization": f"token {token}"}) as page:
            async with page.post("/api/kernels", json={"name": "python3"}) as answer:
                kernel = cls(page, (await answer.json())["id"])
            await kernel._connect()
            try:
                yield kernel
            finally:
                await kernel._channels.close()
                async with page.delete(f"/api/kernels/{kernel._kernel}"):
                    pass

    async def _connect(self) -> None:
        self._channels = await self._page.ws_connect(f"/api/kernels/{self._kernel}/channels", max_msg_size=0)
        await self._ask("kernel_info_request", {})

    async def _send(self, kind: str, content: dict[str, Any]) -> str:
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": kind,
            "session": self._kernel,
            "username": "",
            "version": "5.3",
        }
        about: dict[str, Any] = {"channel": "shell", "parent_header": {}, "metadata": {}, "buffers": []}
        await self._channels.send_json({"header": header, "content": content, **about})
        return str(header["msg_id"])

    async def _ask(self, kind: str, content: dict[str, Any]) -> None:
        request = await self._send(kind, content)
        while (await self._next(request))["channel"] != "shell":
            pass

    async def _next(self, request: str) -> dict[str, Any]:
        while True:
            message = json.loads((await self._channels.receive(_SECONDS)).data)
            if message["parent_header"].get("msg_id") == request:
                return dict(message)

    async def run(self, code: str, until: str = "") -> None:
        content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False}
        self._request = await self._send("execute_request", content)
        await self._wait(until)

    async def finish(self) -> None:
        await self._wait("")

    async def _wait(self, until: str) -> None:
        left = {"iopub", "shell"}
        while left:
            message = await self._next(self._request)
            if until and until in str(message["content"].get("text", "")):
                return
            if message["channel"] == "shell":
                _check(message["content"])
                left.discard("shell")
            elif message["content"].get("execution_state") == "idle":
                left.discard("iopub")

    async def complete(self) -> None:
        await self._ask("complete_request", {"code": "jnp.zer", "cursor_pos": 7})

    async def interrupt(self) -> None:
        async with self._page.post(f"/api/kernels/{self._kernel}/interrupt"):
            pass

    async def settle(self) -> None:
        pass

    async def restart(self) -> None:
        await self._channels.close()
        async with self._page.post(f"/api/kernels/{self._kernel}/restart"):
            pass
        await self._connect()


def _check(reply: Mapping[str, Any]) -> None:
    if reply.get("status") == "error" and reply.get("ename") != "KeyboardInterrupt":
        raise RuntimeError(f"{reply['ename']}: {reply['evalue']}")


def run(kubeconfig: str, context: str) -> list[Table]:
    """Measure at each distance."""
    return [_table(kubeconfig, context, milliseconds) for milliseconds in _ROUND_TRIPS_MS]


def _table(kubeconfig: str, context: str, milliseconds: int) -> Table:
    delay = milliseconds / 2000
    with tempfile.TemporaryDirectory(prefix="pw-") as directory, Link(Path(kubeconfig), delay=delay) as link:
        link.shape(delay=delay, up=_UP_MEGABITS * 125_000, down=_DOWN_MEGABITS * 125_000)
        far = str(link.write(Path(directory) / "far"))
        place = ["--kubeconfig", far, "--context", context, "--image", programs.reference(programs.LAB_IMAGE)]
        with _prepared(Path(directory), place) as (url, name):
            taken = asyncio.run(_columns(Path(directory), {"kubeconfig": far, "context": context}, url, name))
        with _alone(Path(directory), place) as name:
            taken[_BESIDE][_OWN_POD] = asyncio.run(_start(lambda: _Local.started(name, Path(directory))))
    rows = [row for row in taken[_BESIDE] if row != "connect"]
    rows.insert(rows.index("start of a second kernel") + 1, rows.pop())
    eager = "a model made eagerly, each loss printed"
    quick = [row for row in ("a cell", "Tab", "Interrupt") if taken[_BESIDE][row] > milliseconds / 1000 + 0.02]
    ratio = taken[_BESIDE][eager] / taken[_HERE][eager]
    return Table(
        f"The kernel's place: {milliseconds} ms there and back, {_UP_MEGABITS} Mbit/s up and {_DOWN_MEGABITS} down",
        "s",
        [Row(row, {column: values.get(row) for column, values in taken.items()}) for row in rows],
        goal="beside the chips a cell, Tab and an Interrupt in a round trip and 20 ms, the eager model in a quarter",
        verdict=f"{', '.join(quick) or 'none'} later; {ratio:.2f} of the eager model's time",
        notes=[
            "One run of each, in turn; of what is quick the median of five. The lab runs already.",
            "A start and a restart end when the kernel has answered. A pod here is processes: no node, no image.",
            "The last two are one Jupyter server in the pod: its own WebSocket, and one through a Jupyter server here.",
        ],
    )


@contextlib.contextmanager
def _prepared(directory: Path, place: list[str]) -> Iterator[tuple[str, str]]:
    """Start the lab, and make two kernelspecs in `directory`; yield the lab's address and the name of its own."""
    environ = {**os.environ, "JUPYTER_DATA_DIR": str(directory)}
    command = [sys.executable, "-m", "pathways_jupyter"]
    up = [*command, "lab", "up", *place, "--json"]
    with subprocess.Popen(up, env=environ, stdout=subprocess.PIPE, text=True) as lab:
        try:
            assert lab.stdout is not None
            url = json.loads(lab.stdout.readline())["url"]
            added = subprocess.check_output([*command, "kernel", "add", *place, "--json"], env=environ)
            here = directory / "kernels" / "here"
            here.mkdir()
            argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
            (here / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "here", "language": "python"}))
            yield url, json.loads(added)["name"]
        finally:
            lab.terminate()


@contextlib.contextmanager
def _alone(directory: Path, place: list[str]) -> Iterator[str]:
    """Make a kernelspec whose lab does not run; yield its name."""
    environ = {**os.environ, "JUPYTER_DATA_DIR": str(directory)}
    command = [sys.executable, "-m", "pathways_jupyter"]
    added = subprocess.check_output([*command, "kernel", "add", "--name", "alone", *place, "--json"], env=environ)
    try:
        yield json.loads(added)["name"]
    finally:
        # --image is not for it.
        down = [*command, "lab", "down", "--name", "alone", "--delete-volume", *place[:-2]]
        subprocess.run(down, env=environ, check=True, stdout=subprocess.DEVNULL)


async def _start(start: Any) -> float:
    began = time.perf_counter()
    async with start():
        return time.perf_counter() - began


async def _columns(directory: Path, settings: Mapping[str, str], url: str, name: str) -> dict[str, dict[str, float]]:
    return {
        _HERE: await _measured(lambda: _Local.started("here", directory), settings),
        _BESIDE: await _measured(lambda: _Local.started(name, directory), {}),
        _LAB: await _measured(lambda: _Page.started(url), {}),
        _GATEWAY: await _through_gateway(directory, url),
    }


async def _through_gateway(directory: Path, url: str) -> dict[str, float]:
    """Measure the lab's kernels through a Jupyter server on this machine."""
    gateway, _, token = url.partition("/lab?token=")
    port = portpicker.pick_unused_port()
    options = [f"--gateway-url={gateway}", f"--IdentityProvider.token={token}", f"--ServerApp.port={port}"]
    options += ["--ServerApp.allow_root=True", "--ServerApp.open_browser=False", f"--ServerApp.root_dir={directory}"]
    command = [sys.executable, "-m", "jupyter_server", "--ServerApp.jpserver_extensions={}", *options]
    environ = {**os.environ, "JUPYTER_GATEWAY_AUTH_TOKEN": token}
    server = await asyncio.create_subprocess_exec(*command, env=environ, stderr=subprocess.DEVNULL)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as page:
            for _ in range(round(_SECONDS / _PAUSE_SECONDS)):
                with contextlib.suppress(aiohttp.ClientError):
                    await page.get("/api")
                    break
                await asyncio.sleep(_PAUSE_SECONDS)
        return await _measured(lambda: _Page.started(f"http://127.0.0.1:{port}/lab?token={token}"), {})
    finally:
        server.terminate()
        await server.wait()


async def _measured(start: Any, settings: Mapping[str, str]) -> dict[str, float]:
    """Return the seconds of each row."""
    taken: dict[str, float] = {}

    async def timed(work: Any) -> float:
        began = time.perf_counter()
        await work
        return time.perf_counter() - began

    async with contextlib.AsyncExitStack() as stack:
        began = time.perf_counter()
        kernel: _Kernel = await stack.enter_async_context(start())
        taken["start"] = time.perf_counter() - began
        began = time.perf_counter()
        await stack.enter_async_context(start())
        taken["start of a second kernel"] = time.perf_counter() - began
        taken["restart"] = await timed(kernel.restart())
        await kernel.settle()
        root = str(Path(__file__).parents[1])
        await kernel.run(f"import sys; sys.path.insert(0, {root!r})")
        await kernel.run(_CODE["connect"].replace("{settings}", repr(dict(settings))))
        await kernel.run("mean = jax.jit(lambda x: (x * 0.5).mean()); x = jnp.ones((64, 64)); print(float(mean(x)))")
        taken["a cell"] = median([await timed(kernel.run("1 + 1")) for _ in range(_TIMES)])
        taken["Tab"] = median([await timed(kernel.complete()) for _ in range(_TIMES)])
        interrupts = []
        for _ in range(_TIMES):
            await kernel.run("import time; print('begun', flush=True); time.sleep(60)", until="begun")
            began = time.perf_counter()
            await kernel.interrupt()
            await kernel.finish()
            interrupts.append(time.perf_counter() - began)
        taken["Interrupt"] = median(interrupts)
        for row, code in _CODE.items():
            if row != "connect":
                times = _TIMES if row in _QUICK else 1
                taken[row] = median([await timed(kernel.run(code)) for _ in range(times)])
        await kernel.run("session.disconnect()")
    return taken
