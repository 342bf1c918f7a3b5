"""Load of many users: the API requests of a session and of pages, and the operator with a thousand jobs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from benchmarks.crowd import RENEWAL_SECONDS, TYPE, count, crowd
from benchmarks.measure import Row, Table
from pathways_jupyter.server.server_state import SWEEP_SECONDS
from pathways_jupyter.service.placement import MOST_LOGS

if TYPE_CHECKING:
    import psutil

SLICES, SESSIONS = 100, (25, 100)
PAGES = (1, 10, 50)
JOBS = (250, 500, 1000)
_SECONDS, _IDLE_SECONDS = 30.0, 60.0
_DEADLINE_SECONDS = 170
_SERVER = (
    "--ServerApp.allow_root=True",
    "--ServerApp.open_browser=False",
    "--ServerApp.port=0",
    "--ServerApp.ip=127.0.0.1",
    "--IdentityProvider.token=bench",
)

Values = dict[str, dict[str, float]]
"""Of each row, the value in each column."""


def run() -> list[Table]:
    """Measure a session, the pages of one Jupyter server, and the operator; each takes two minutes."""
    session, pages, operator = Values(), Values(), Values()
    asyncio.run(_session(session))
    asyncio.run(_servers(pages))
    for jobs in JOBS:
        asyncio.run(_operator(operator, jobs))
    rows = [_rows(values) for values in (session, pages, operator)]
    lease = f"Other users' sessions are objects without a process, and renew their Leases every {RENEWAL_SECONDS} s."
    return [
        Table(
            "Scale: the requests of a session",
            "requests",
            rows[0],
            notes=[
                f"Counted for {_IDLE_SECONDS:.0f} s idle and {_SECONDS:.0f} s of one small computation after another, "
                "and multiplied to an hour.",
                "What stays open begins while connecting: a watch, a log and a port-forward.",
            ],
        ),
        Table(
            "Scale: pages of one Jupyter server",
            "as named",
            rows[1],
            notes=[
                f"Pages are WebSockets that read all they get. There are {SLICES} slices; a pod changes every second. "
                f"{_IDLE_SECONDS:.0f} s, multiplied to an hour.",
                f"The first look has the first sweep of this user's dead sessions; it comes again after "
                f"{SWEEP_SECONDS:.0f} s.",
                lease,
            ],
        ),
        Table(
            "Scale: the operator",
            "as named",
            rows[2],
            notes=[
                "From nothing: no job has a JobSet. After a restart: the state of every job has changed meanwhile.",
                f"Then {_SECONDS:.0f} s, multiplied to an hour, while Prometheus reads the metrics every "
                f"{_SECONDS / 2:.0f} s.",
                lease,
            ],
        ),
    ]


def _rows(values: Values) -> list[Row]:
    columns = list(dict.fromkeys(column for each in values.values() for column in each))
    return [Row(name, {column: each.get(column, 0.0) for column in columns}) for name, each in sorted(values.items())]


async def _session(values: Values) -> None:
    """One real session; its kernel is a process that runs :func:`_kernel`."""
    from pathways_jupyter.local.apiserver.credentials import write_kubeconfig
    from pathways_jupyter.local.node import programs
    from pathways_jupyter.local.node.spawner import Spawner
    from pathways_jupyter.local.running import RunningCluster
    from pathways_jupyter.local.settings import ClusterSettings

    with tempfile.TemporaryDirectory(prefix="pw-") as name:
        cold, warm = (Spawner(each) for each in (programs.preload, programs.preload_jax))
        cold.start()
        warm.start()
        # Named after it, which a temporary directory's name may not be fit for.
        (directory := Path(name) / "bench").mkdir()
        cluster = RunningCluster(directory, ClusterSettings({TYPE: 2}), cold=cold, warm=warm)
        asked, kubeconfig = count(cluster.api), directory / "session"
        await cluster.start()
        try:
            async with asyncio.timeout(_DEADLINE_SECONDS):
                await cluster.until_ready()
                token = cluster.api.users.add("session")
                write_kubeconfig(kubeconfig, cluster.api.url, cluster.api.ca, user="session", token=token)
                phases = {"idle, an hour": 3600 / _IDLE_SECONDS, "in use, an hour": 3600 / _SECONDS, "to disconnect": 1}
                async with _process("benchmarks.scale", str(kubeconfig), ready="(connected)") as (_, _, output):
                    before = _record(values, "to connect", asked["session"])
                    for phase, times in phases.items():
                        await output.readline()
                        before = _record(values, phase, asked["session"], before, times)
        finally:
            await cluster.close()
            await cold.close()
            await warm.close()


def _kernel(kubeconfig: str) -> None:
    """Connect, do nothing, compute, and disconnect; print a line after each."""
    import jax

    import pathways_jupyter

    with pathways_jupyter.connect(kubeconfig=kubeconfig, tpu={TYPE: 1}):
        print(int(jax.numpy.arange(8).sum()), "connected", flush=True)
        time.sleep(_IDLE_SECONDS)
        print("idle", flush=True)
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end:
            int(jax.numpy.arange(8).sum())
        print("used", flush=True)
    print("ended", flush=True)


async def _servers(values: Values) -> None:
    """Measure Jupyter servers beside each other, each with an API server of its own."""
    async with asyncio.TaskGroup() as group:
        for number, sessions in ((PAGES[0], SESSIONS[0]), *((number, SESSIONS[1]) for number in PAGES)):
            group.create_task(_pages(values, number, sessions))


async def _pages(values: Values, number: int, sessions: int) -> None:
    column = f"{number} page{'s' * (number > 1)}, {sessions} sessions"
    # Now, because tasks begin in order and end in any.
    values.setdefault("CPU, % of a core", {})[column] = 0.0
    async with asyncio.timeout(_DEADLINE_SECONDS), crowd() as cluster, asyncio.TaskGroup() as group:
        cluster.add_service(SLICES)
        cluster.add_sessions(sessions)
        environ = {"KUBECONFIG": cluster.kubeconfig("server"), "HOME": str(cluster.directory)}
        ready = r"(http://127\.0\.0\.1:\d+/)"
        async with _process("jupyter_server", *_SERVER, ready=ready, environ=environ) as (process, url, _):
            # It names its address a moment before it listens there.
            await asyncio.sleep(1)
            idle, live = process.memory_full_info().uss, asyncio.Queue[None]()
            open_pages = [group.create_task(_page(url, live)) for _ in range(number)]
            for _ in range(number):
                await live.get()
            asked = cluster.asked["server"]
            # Until it has swept, and follows the logs of proxies.
            while asked["list jobs"] < 2 or asked["get pods"] < min(sessions, MOST_LOGS):  # noqa: ASYNC110 - it counts
                await asyncio.sleep(0.1)
            before = _record(values, column, asked, prefix="first look: ")
            going, cpu = group.create_task(cluster.live()), _cpu(process)
            await asyncio.sleep(_IDLE_SECONDS)
            _record(values, column, asked, before, 3600 / _IDLE_SECONDS, prefix="an hour: ")
            values["CPU, % of a core"][column] = (_cpu(process) - cpu) / _IDLE_SECONDS * 100
            held = process.memory_full_info().uss - idle
            values.setdefault("memory beyond a server without pages, MB", {})[column] = held / 1e6
            for task in (going, *open_pages):
                task.cancel()


async def _page(url: str, live: asyncio.Queue[None]) -> None:
    scope = {"context": "", "namespace": "", "session": "", "local": False}
    async with (
        aiohttp.ClientSession(headers={"Authorization": "token bench"}) as http,
        http.ws_connect(f"{url}pathways-jupyter/updates", max_msg_size=0) as socket,
    ):
        await socket.send_json({"type": "look", "scope": scope})
        async for message in socket:
            if (said := message.json())["type"] == "watch" and said["watch"] == "live":
                live.put_nowait(None)


async def _operator(values: Values, jobs: int) -> None:
    column = f"{jobs:,} jobs, {jobs // 2} sessions"

    def report(name: str, value: float) -> None:
        values.setdefault(name, {})[column] = value

    async with asyncio.timeout(_DEADLINE_SECONDS), crowd() as cluster:
        cluster.add_service(SLICES)
        cluster.add_sessions(jobs // 2)
        cluster.add_jobs(jobs)
        options = ("--kubeconfig", cluster.kubeconfig("operator"), "--metrics-port", "19090")
        command = ("pathways_jupyter.operator.main", *options)
        for name, state in (("from nothing", "Pending"), ("after a restart", "Running")):
            before, began = cluster.asked.get("operator", Counter()).copy(), time.monotonic()
            async with _process(*command, ready=r"metrics: (\S+)") as (process, url, _):
                await cluster.until_jobs(state)
                report(f"all jobs reconciled {name}, s", time.monotonic() - began)
                report(f"all jobs reconciled {name}, CPU s", _cpu(process))
                report(f"all jobs reconciled {name}, requests", (cluster.asked["operator"] - before).total())
                if state == "Running":
                    before, cpu = cluster.asked["operator"].copy(), _cpu(process)
                    going = asyncio.create_task(cluster.live())
                    async with aiohttp.ClientSession() as http:
                        for _ in range(2):
                            await asyncio.sleep(_SECONDS / 2)
                            await (await http.get(url)).read()
                    going.cancel()
                    _record(values, column, cluster.asked["operator"], before, 3600 / _SECONDS, prefix="an hour: ")
                    report("CPU, % of a core", (_cpu(process) - cpu) / _SECONDS * 100)
                    report("memory, MB", process.memory_info().rss / 1e6)
            cluster.start_jobs()


def _record(
    values: Values,
    column: str,
    counted: Counter[str],
    before: Counter[str] | None = None,
    times: float = 1,
    *,
    prefix: str = "",
) -> Counter[str]:
    """Note the requests since `before`; return those until now."""
    for what, number in (counted - (before or Counter())).items():
        values.setdefault(prefix + what, {})[column] = number * times
    return counted.copy()


def _cpu(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system)


@contextlib.asynccontextmanager
async def _process(
    module: str, *arguments: str, ready: str, environ: dict[str, str] | None = None
) -> AsyncIterator[tuple[psutil.Process, str, asyncio.StreamReader]]:
    """Run a module until the block's end; yield its process, what `ready` finds in its output, and the rest of that."""
    import psutil

    pipe, both = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    command = (sys.executable, "-m", module, *arguments)
    started = await asyncio.create_subprocess_exec(
        *command, stdout=pipe, stderr=both, env={**os.environ, **(environ or {})}
    )
    assert started.stdout is not None
    try:
        while not (found := re.search(ready, line := (await started.stdout.readline()).decode())):
            if not line:
                raise RuntimeError(f"{module} has ended")
        yield psutil.Process(started.pid), found[1], started.stdout
        started.terminate()
        # To the end, of which Python's subprocesses say nothing before.
        await started.stdout.read()
        await started.wait()
    finally:
        if started.returncode is None:
            started.kill()
            await started.wait()


if __name__ == "__main__":
    _kernel(sys.argv[1])
