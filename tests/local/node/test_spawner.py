from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import timeit
from pathlib import Path

import preloads
import psutil
import pytest
from waits import has_ended, wait_until

from pathways_jupyter.base.errors import LocalClusterError
from pathways_jupyter.local.node import programs
from pathways_jupyter.local.node.spawner import KILLED, Process, Spawner
from pathways_jupyter.local.node.zygote import SpawnRequest, function_name

DEADLINE = 60.0


@pytest.fixture
async def spawner(tmp_path: Path):
    spawner = Spawner(log=tmp_path / "zygote.log")
    spawner.start()
    yield spawner
    await spawner.close()


class Started:
    """A process, and everything that it wrote."""

    def __init__(self, process: Process, output: int) -> None:
        self.process = process
        self._output = output
        self.reader: asyncio.StreamReader

    async def open(self) -> Started:
        self.reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self.reader), os.fdopen(self._output, "rb", buffering=0)
        )
        return self

    async def line(self) -> str:
        return (await asyncio.wait_for(self.reader.readline(), DEADLINE)).decode().strip()

    async def finish(self) -> tuple[int, str]:
        text = await asyncio.wait_for(self.reader.read(), DEADLINE)
        return await asyncio.wait_for(self.process.wait(), DEADLINE), text.decode()


async def start(spawner: Spawner, directory: Path, *argv: str, environment: dict[str, str] | None = None, **more):
    output, write = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    process = await asyncio.wait_for(
        spawner.spawn(
            SpawnRequest(
                list(argv),
                {"PATH": os.environ["PATH"], **(environment or {})},
                str(directory),
                **{"container": "c", **more},
            ),
            (null, write, write),
        ),
        DEADLINE,
    )
    os.close(write)
    os.close(null)
    return await Started(process, output).open()


def fork_server(started: Started) -> int:
    """The process that forked this one."""
    pid: int = psutil.Process(started.process.pid).ppid()
    return pid


async def until_gone(*pids: int) -> None:
    await asyncio.to_thread(wait_until, lambda: all(map(has_ended, pids)), DEADLINE)


async def test_a_command_runs_in_its_directory_with_its_environment_only(spawner, tmp_path):
    started = await start(
        spawner,
        tmp_path,
        sys.executable,
        "-c",
        "import os; print(os.getcwd(), sorted(os.environ), os.getsid(0) == os.getpid(), len(os.listdir('/dev/fd')))",
        environment={"GREETING": "hello"},
    )
    code, text = await started.finish()
    assert code == 0
    assert text.startswith(f"{tmp_path} ")
    assert "'GREETING'" in text
    assert "'HOME'" not in text
    assert text.endswith("True 4\n")


async def test_a_program_runs_in_a_fork_and_its_exit_code_arrives(spawner, tmp_path):
    good = await start(spawner, tmp_path, "-n1", "-r1", "pass", program=function_name(timeit.main))
    code, text = await good.finish()
    assert code == 0
    assert "best of 1" in text
    bad = await start(spawner, tmp_path, "--bogus", program=function_name(timeit.main))
    code, text = await bad.finish()
    assert code == 2
    assert "--bogus" in text


async def test_a_command_that_does_not_exist_says_so(spawner, tmp_path):
    assert await (await start(spawner, tmp_path, "/no/such/command")).finish() == (
        126,
        "/no/such/command: No such file or directory\n",
    )


async def test_the_end_of_the_main_process_ends_all_processes_of_its_container(spawner, tmp_path):
    script = textwrap.dedent("""
        import subprocess, sys
        inside = subprocess.Popen(["sleep", "600"])
        outside = subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=2)
        print(inside.pid, outside.pid, flush=True)
        sys.stdin.read()
    """)
    started = await start(spawner, tmp_path, sys.executable, "-c", script + "\nimport time; time.sleep(600)")
    pids = [int(pid) for pid in (await started.line()).split()]
    execed = await start(spawner, tmp_path, "sleep", "600", main=False)
    other = await start(spawner, tmp_path, "sleep", "600", container="other")
    started.process.send_signal(signal.SIGKILL)
    await asyncio.wait_for(started.process.wait(), DEADLINE)
    await asyncio.wait_for(execed.process.wait(), DEADLINE)
    await until_gone(*pids)
    assert not other.process.ended.done()


async def test_daemons_of_a_command_and_their_own_daemons_end_with_the_container(spawner, tmp_path):
    script = textwrap.dedent("""
        import subprocess, sys, time
        if depth := int(sys.argv[1]):
            subprocess.Popen([sys.executable, "-c", sys.argv[2], str(depth - 1), sys.argv[2]], start_new_session=True)
        else:
            print("all started", flush=True)
        time.sleep(600)
    """)
    started = await start(spawner, tmp_path, "sleep", "600")
    execed = await start(spawner, tmp_path, sys.executable, "-c", script, "3", script, main=False)
    assert await execed.line() == "all started"
    pids = [each.pid for each in psutil.Process(execed.process.pid).children(recursive=True)]
    assert len(pids) == 3
    started.process.send_signal(signal.SIGKILL)
    await asyncio.wait_for(started.process.wait(), DEADLINE)
    # Before its code is reported, as it may be started again then.
    assert [pid for pid in pids if not has_ended(pid)] == []
    assert (await asyncio.wait_for(execed.process.wait(), DEADLINE)) == KILLED


async def test_closing_ends_every_process(tmp_path):
    spawner = Spawner()
    spawner.start()
    stubborn = await start(
        spawner,
        tmp_path,
        sys.executable,
        "-c",
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(600)",
    )
    assert await stubborn.line() == "on"
    server = fork_server(stubborn)
    await asyncio.wait_for(spawner.close(), DEADLINE)
    assert has_ended(server)
    assert has_ended(stubborn.process.pid)


async def test_a_fork_server_that_is_killed_is_started_anew_and_its_processes_count_as_killed(spawner, tmp_path):
    before = await start(spawner, tmp_path, "sleep", "600")
    os.kill(fork_server(before), signal.SIGKILL)
    assert await asyncio.wait_for(before.process.wait(), DEADLINE) == KILLED
    await until_gone(before.process.pid)
    after = await start(spawner, tmp_path, "true")
    assert (await after.finish())[0] == 0


async def test_the_fork_server_for_proxies_has_one_thread_and_jax(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(preloads.__file__).parent))
    spawner = Spawner(programs.preload_jax, log=tmp_path / "zygote.log")
    spawner.start()
    needed = ["jax", "jax.experimental.colocated_python", "jaxlib.mlir.ir"]
    try:
        asleep = await start(spawner, tmp_path, "sleep", "600")
        assert psutil.Process(fork_server(asleep)).num_threads() == 1
        program = await start(spawner, tmp_path, *needed, program=function_name(preloads.names_modules))
        assert await program.finish() == (0, " ".join(needed) + "\n")
    finally:
        await spawner.close()


async def test_nothing_survives_the_owner_of_the_fork_server(tmp_path):
    script = textwrap.dedent("""
        import asyncio, os
        import psutil
        from pathways_jupyter.local.node.spawner import Spawner
        from pathways_jupyter.local.node.zygote import SpawnRequest

        async def main():
            spawner = Spawner()
            spawner.start()
            null = os.open(os.devnull, os.O_RDWR)
            sleep = SpawnRequest(["sleep", "600"], dict(os.environ), "/", "a")
            command = await spawner.spawn(sleep, (null,) * 3)
            pause = SpawnRequest([], dict(os.environ), "/", "b", program="signal:pause")
            program = await spawner.spawn(pause, (null,) * 3)
            print(psutil.Process(command.pid).ppid(), command.pid, program.pid, flush=True)
            await asyncio.Event().wait()

        asyncio.run(main())
    """)
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    pids = [int(pid) for pid in (await asyncio.wait_for(owner.stdout.readline(), DEADLINE)).split()]
    assert len(pids) == 3
    owner.kill()
    await owner.wait()
    await until_gone(*pids)


async def test_a_signal_that_comes_before_the_process_has_begun_is_not_lost(spawner, tmp_path):
    started = [await start(spawner, tmp_path, "sleep", "600", container=str(number)) for number in range(20)]
    for number, each in enumerate(started):
        fresh = await start(spawner, tmp_path, "sleep", "600", container=f"fresh{number}")
        fresh.process.send_signal(signal.SIGTERM if number % 2 else signal.SIGKILL, group=number % 3 == 0)
        each.process.send_signal(signal.SIGTERM)
        assert (await fresh.finish())[0] > 128
        assert (await each.finish())[0] == 128 + signal.SIGTERM


async def test_a_fork_server_that_cannot_start_is_reported_and_not_retried_for_ever(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(preloads.__file__).parent))
    spawner = Spawner(preloads.fails, log=tmp_path / "zygote.log")
    spawner.start()
    early = await start(spawner, tmp_path, "true")
    assert await asyncio.wait_for(early.process.wait(), DEADLINE) == KILLED
    with pytest.raises(LocalClusterError, match=r"reason is in .*zygote\.log"):
        await start(spawner, tmp_path, "true")
    assert "no_such_module" in (tmp_path / "zygote.log").read_text()
    await asyncio.wait_for(spawner.close(), DEADLINE)
