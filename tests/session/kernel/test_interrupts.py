"""An Interrupt at any moment of connecting leaves a connection that works, or nothing at all."""

from __future__ import annotations

import subprocess
import sys

import pytest

DEADLINE = 110.0

SCRIPT = """
import os, random, signal, sys, threading
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.session.kernel import session as sessions
import jax

jax.devices()
random.seed({seed})
for _ in range({rounds}):
    interrupt = threading.Timer(random.uniform(0.001, 0.4), os.kill, (os.getpid(), signal.SIGINT))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interrupt.start()
        try:
            sessions.connect({config!r})
        finally:
            interrupt.cancel()
            interrupt.join()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    current = sessions.current()
    if current is not None:
        # Interrupted when all was done, or not at all.
        assert len(jax.devices()) == 4 and float(jax.numpy.ones(3).sum()) == 3
        current.disconnect()
    assert [device.platform for device in jax.devices()] == ["cpu"]
    assert float(jax.numpy.ones(3).sum()) == 3
print("done")
sys.stdin.readline()
"""


# Which moments these are depends on how fast the machine is, so that this is no test for every run.
@pytest.mark.soak
@pytest.mark.timeout(200)
@pytest.mark.parametrize("rounds", [5, 50])
def test_an_interrupt_at_any_moment_leaves_all_or_nothing(config, runtime, cluster, rounds):
    script = SCRIPT.format(config=config(1), rounds=rounds, seed=rounds)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        said = process.stdout.readline()
        if said:
            # Its kernel lives on, so that nothing of this is owed to its end.
            left_after(runtime, seconds=5.0)
        _, errors = process.communicate("\n", timeout=DEADLINE)
    assert (said, errors) == ("done\n", "")


def left_after(runtime, *, seconds: float) -> None:
    """Fail when a session's files are there for longer than they may be."""
    import os
    import select

    from pathways_jupyter.session import registry

    for record in registry.sessions():
        try:
            descriptor = os.pidfd_open(record.pid)
        except ProcessLookupError:
            continue
        assert select.select([descriptor], [], [], seconds)[0], f"session {record.id} is still there"
        os.close(descriptor)
    assert [path.name for path in runtime.iterdir() if path.name != "local"] == []
