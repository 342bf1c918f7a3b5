"""While the connection is interrupted, a call with a new shape waits like any other: threads run, Interrupt ends it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from waits import frozen, wait_until

pytestmark = pytest.mark.thorough

BEATS = """
import json, pathlib, threading, time
import jax, numpy as np
from pathways_jupyter.session.kernel import device_puts, session as sessions

def beat():
    while True:
        with open({beats!r}, "a") as file:
            file.write(".")
        time.sleep(0.01)

threading.Thread(target=beat, daemon=True).start()
f = jax.jit(lambda x: x * 2 + 1)
made = jax.device_put(np.arange(5.0))
made.block_until_ready()
print(float(f(jax.device_put(np.arange(3.0))).sum()))
# Who puts data within a round trip of the last answer takes it for a connection: docs/interruptions.md.
while device_puts._is_fresh():
    time.sleep(0.01)
print(json.dumps(sessions.current().record.pid))
"""
CALLS = {
    "an array that is made now": "print('began')\nnp.asarray(f(jax.device_put(np.arange(7.0))))",
    "data of the kernel": "print('began')\nnp.asarray(f(np.arange(9.0)))",
}


@pytest.fixture
def interrupted(cluster, notebook, tmp_path):
    """A connected notebook whose supervisor is stopped: nothing of JAX gets through."""
    notebook.connect(f"--kubeconfig {cluster.kubeconfig} --tpu tpuv6e:2x2=1")
    beats = tmp_path / "beats"
    cell = notebook.run(BEATS.format(beats=str(beats)))
    assert cell.status == "ok", cell.shown
    notebook.beats = beats
    with frozen(json.loads(cell.text.split()[-1])):
        yield notebook
    # The kernel is as good as before, also for what could not be sent.
    assert notebook.run("print(float(f(jax.device_put(np.arange(7.0))).sum()))").text.split() == ["49.0"]
    assert notebook.run("%pathways disconnect").status == "ok"


def beaten(path: Path) -> int:
    return path.stat().st_size


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_with_a_new_shape_stops_no_thread_and_can_be_interrupted(call, interrupted) -> None:
    first = len(interrupted.seen)
    request = interrupted.begin(call)
    interrupted.wait_for("began", since=first)
    before = beaten(interrupted.beats)
    wait_until(lambda: beaten(interrupted.beats) > before + 50)
    interrupted.manager.interrupt_kernel()
    assert interrupted.finish(request).error == "KeyboardInterrupt"


def test_a_call_with_an_array_of_a_shape_that_no_program_has_seen_stops_no_thread(interrupted) -> None:
    first = len(interrupted.seen)
    interrupted.begin("print('began')\nf(made).block_until_ready()")
    interrupted.wait_for("began", since=first)
    before = beaten(interrupted.beats)
    wait_until(lambda: beaten(interrupted.beats) > before + 50)
