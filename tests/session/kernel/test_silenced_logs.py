"""Silence of JAX's C++ side on the standard error of a kernel or script that was connected."""

from __future__ import annotations

import pytest
import scripts
from jupyter_client import KernelManager
from kernel_transport import ipc

DEADLINE = 90.0

CONNECT = """
import gc, os, signal
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.session.kernel import session as sessions
made = sessions.connect({config!r})
import jax, jax.numpy as jnp
"""
COMPUTE = """
x = jnp.arange(8.0)
seen = x * 2
print(float(seen.sum()))
program = jax.jit(lambda x: jnp.tanh(x) @ x)
compiled = program.lower(x).compile()
print(float(compiled(x)) > 0)
spread = jax.device_put(x, jax.devices()[-1])
"""
DROP = """
print(float(jnp.ones(4).sum()))
del x, seen, spread
gc.collect()
print(float(jnp.ones(5).sum()))
del program, compiled
gc.collect()
print(float(jnp.ones(6).sum()))
"""


def parts(config) -> dict[str, str]:
    connect = CONNECT.format(config=config(2))
    return {
        "what was computed is dropped after disconnecting": connect + COMPUTE + "made.disconnect()" + DROP,
        "what was computed is there at the end": connect + COMPUTE + "made.disconnect()",
        "still connected at the end": connect + COMPUTE,
        "a new proxy": connect + COMPUTE + "made.reconnect()" + COMPUTE + "made.disconnect()" + DROP,
        "a new proxy, which is lost": connect
        + COMPUTE
        + "made.reconnect()"
        + COMPUTE
        + "os.kill(made.record.pid, signal.SIGKILL)\nlist(made.follow())\n"
        + "made.disconnect()"
        + DROP,
    }


OFTEN = {"a new proxy, which is lost"}
"""The parts of the default run, which has the others, as far as they are usual, in a kernel; `make soak` has all."""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "part",
    [each if each in OFTEN else pytest.param(each, marks=pytest.mark.soak) for each in parts(lambda slices: None)],
)
def test_a_script_that_was_connected_sees_no_logs_of_it(config, part):
    done = scripts.run(parts(config)[part])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("56.0\nTrue\n")


@pytest.mark.thorough
def test_a_kernel_that_was_connected_sees_no_logs_of_it(config, tmp_path):
    manager = KernelManager(**ipc(tmp_path))
    with (tmp_path / "stderr").open("w+") as errors:
        manager.start_kernel(stderr=errors)
        client = manager.blocking_client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=DEADLINE)
            streams = []

            def output(message) -> None:
                if message["msg_type"] == "stream":
                    streams.append((message["content"]["name"], message["content"]["text"]))

            for cell in (CONNECT.format(config=config(2)), COMPUTE, "made.disconnect()", DROP):
                answer = client.execute_interactive(cell, timeout=DEADLINE, output_hook=output)["content"]
                assert answer["status"] == "ok", answer
        finally:
            client.stop_channels()
            manager.shutdown_kernel()
            manager.cleanup_resources()
        errors.seek(0)
        assert errors.read() == ""
    assert {name for name, _ in streams} == {"stdout"}
    assert "".join(text for _, text in streams).split() == ["56.0", "True", "4.0", "5.0", "6.0"]


# A process of its own: whatever else keeps a program of a proxy keeps the log quiet.
SPEAKS = """
import gc, threading
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.session.kernel import silenced_logs
from pathways_jupyter.session.kernel import session
levels, spoke, really = [], threading.Event(), silenced_logs._set
def noted(level):
    levels.append(level)
    really(level)
    if level < 3:
        spoke.set()
silenced_logs._set = noted
with session.connect({config!r}) as made:
    import jax
    kept = jax.device_put(1.0, made.devices()[0])
    program = jax.jit(lambda x: x * 3).lower(kept).compile() if {holding} else None
    assert levels[-1] == 3
    spoke.clear()
if {holding}:
    assert not spoke.wait(2 * silenced_logs._LATE_LINES_SECONDS)
    del kept, program
    gc.collect()
assert spoke.wait({deadline})
assert levels[-1] == 1
"""


@pytest.mark.thorough
@pytest.mark.parametrize("holding", [pytest.param(False, marks=pytest.mark.soak), True])
def test_the_log_restores_again_once_no_program_of_the_proxy_is_left(config, holding):
    done = scripts.run(SPEAKS.format(config=config(1), holding=holding, deadline=DEADLINE))
    assert (done.returncode, done.stderr) == (0, "")


# Without programs of the proxy the silence of the switch itself ends when JAX has been put back.
REMOVES = """
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.session.kernel import kernel_side, silenced_logs
from pathways_jupyter.session.kernel import session
reasons, finish = [], kernel_side.finish
def finishing(link):
    reasons.append(silenced_logs._reasons)
    return finish(link)
kernel_side.finish = finishing
with session.connect({config!r}) as made:
    client = made.devices()[0].client
assert reasons[0] > 0, reasons
"""


def test_the_log_is_quiet_until_the_proxy_is_removed_however_long_that_takes(config):
    done = scripts.run(REMOVES.format(config=config(1)))
    assert (done.returncode, done.stderr) == (0, "")
