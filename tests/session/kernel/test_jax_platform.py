"""Cost of a connected program that computes nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pathways_jupyter.session.kernel import jax_platform

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems let no thread's timers be late")

DEADLINE = 110.0
WAKES = """
import sys
import time
from pathlib import Path

import pathways_jupyter

def wakes():
    lines = [line for each in Path("/proc/self/task").glob("*/status") for line in each.read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))

with pathways_jupyter.connect(kubeconfig=sys.argv[1], tpu="tpuv6e:2x2=1") as session:
    import jax
    jax.numpy.arange(8.0).sum().block_until_ready()
    before = wakes()
    time.sleep(1)
    print("wakes", wakes() - before)
"""


def slack() -> int:
    return int(Path(f"/proc/{threading.get_native_id()}/timerslack_ns").read_text())


def test_only_threads_that_are_started_inside_keep_late_timers():
    before = slack()
    found = []
    with jax_platform.late_timers():
        thread = threading.Thread(target=lambda: found.append(slack()))
        thread.start()
        thread.join()
    assert slack() == before
    assert found == [5_000_000]


@pytest.mark.thorough
def test_an_idle_connected_program_wakes_up_rarely(cluster):
    script = [sys.executable, "-c", WAKES, str(cluster.kubeconfig)]
    run = subprocess.run(script, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert run.returncode == 0, run.stderr
    (wakes,) = (int(line.split()[1]) for line in run.stdout.splitlines() if line.startswith("wakes"))
    # JAX's client alone wakes up 5,000 times a second otherwise.
    assert wakes < 1000
