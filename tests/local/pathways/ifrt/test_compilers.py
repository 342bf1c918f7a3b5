"""The processes that compile: one that ends takes nothing with it, and none outlives its server."""

from __future__ import annotations

import itertools
import os
import select
import signal
from pathlib import Path

import psutil
import pytest

_DEADLINE = 100.0

_SETUP = """
    import numpy as np
    import jax.numpy as jnp
    kept = jax.device_put(np.arange(8.0), jax.devices()[3])

    def compiled(number):
        return float(jax.jit(lambda x: x * number + 1)(jnp.float32(2)))

    def gated(x):
        for _ in range(1000):
            x = jnp.sin(x)
        return x
    result = compiled(1)
"""


class Gate:
    """A directory into which XLA cannot write the program named ``gated``: its compilation stops there for good."""

    def __init__(self, directory: Path) -> None:
        self._poll = select.poll()
        # XLA numbers the programs of a process.
        for number in range(64):
            path = directory / f"module_{number:04d}.jit_gated.before_optimizations.txt"
            os.mkfifo(path)
            # Not read by the other side: the program's text is longer than what a pipe holds.
            self._poll.register(os.open(path, os.O_RDONLY | os.O_NONBLOCK), select.POLLIN)
        self.code = f"jax.jit(gated, compiler_options={{'xla_dump_to': {str(directory)!r}}})(jnp.float32(2))"

    def wait(self) -> None:
        """Waits until a compiler has come here."""
        assert self._poll.poll(_DEADLINE * 1000)


@pytest.fixture
def gate(tmp_path):
    return Gate(tmp_path)


@pytest.fixture(scope="module")
def own(make_service):
    """A service for tests that break proxies."""
    service = make_service()
    for each in range(2):
        service.worker(each)
    return service


_names = (f"proxy{number}" for number in itertools.count())


@pytest.fixture
def proxy(own):
    name = next(_names)
    proxy = own.proxy(name, slices=2)
    proxy.log.wait("All 2 slices are placed")
    proxy.connect = lambda: own.client(name)
    yield proxy
    proxy.kill()


@pytest.fixture
def client(proxy):
    client = proxy.connect()
    assert client.run(_SETUP) == 3.0
    return client


def _processes(proxy) -> tuple[psutil.Process, list[psutil.Process]]:
    """The template, and the compilers that it has forked."""
    (template,) = psutil.Process(proxy.process.pid).children()
    return template, template.children()


def test_a_compiler_that_crashes_fails_one_program_and_loses_nothing(client, proxy, gate):
    client.start(gate.code)
    gate.wait()
    (compiler,) = _processes(proxy)[1]
    compiler.send_signal(signal.SIGSEGV)
    with pytest.raises(Exception, match="INTERNAL: XLA crashed while it compiled this program; nothing else was lost"):
        client.finish()
    proxy.log.wait(f"Compiler {compiler.pid} was ended by SIGSEGV")
    assert client.run("result = compiled(2), float(kept.sum())") == [5.0, 28.0]


def test_a_compiler_that_ended_while_it_was_idle_is_replaced_unnoticed(client, proxy):
    (compiler,) = _processes(proxy)[1]
    compiler.kill()
    proxy.log.wait(f"Compiler {compiler.pid} was ended by SIGKILL")
    assert client.run("result = compiled(3)") == 7.0


def test_several_programs_are_compiled_at_once(client, proxy, gate):
    client.run(f"""
        import threading
        threading.Thread(target=lambda: {gate.code}, daemon=True).start()
    """)
    gate.wait()
    found = client.run("""
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(8) as pool:
            result = list(pool.map(compiled, range(10, 18)))
    """)
    assert found == [2.0 * each + 1 for each in range(10, 18)]


def test_what_a_client_waits_for_is_not_compiled_any_further_when_it_goes(client, proxy, gate):
    client.start(gate.code)
    gate.wait()
    (compiler,) = _processes(proxy)[1]
    client.process.kill()
    compiler.wait(_DEADLINE)
    assert proxy.connect().run(_SETUP) == 3.0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_the_proxy(client, proxy, gate, number):
    client.start(gate.code)
    gate.wait()
    template, compilers = _processes(proxy)
    proxy.process.send_signal(number)
    proxy.process.wait(_DEADLINE)
    _, alive = psutil.wait_procs([template, *compilers], timeout=_DEADLINE)
    assert not alive
