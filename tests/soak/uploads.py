"""Loses the proxy again and again while a kernel uploads many arrays at once, and looks whether the kernel lives.

jaxlib's client frees memory twice where several of its uploads fail at the same moment; see
:mod:`pathways_jupyter.tunnel.grpc_connection`, which keeps them apart. Without it a kernel lives for some hundred
rounds.
"""

from __future__ import annotations

from machine import INSTANCE, Kernel, Machine

EACH = 25
"""Rounds of one cell."""

BEGIN = f"""
import threading, time
import jax, numpy as np
import pathways_jupyter
from pathways_jupyter.kube import objects
from pathways_jupyter.session import clusters

session = pathways_jupyter.connect(tpu={{"{INSTANCE}": 2}}, local=True, wait=60, progress=False)
small = np.ones(4096, np.float32)

async def delete(client, namespace):
    await objects.delete(client, objects.PODS, session.record.pod, namespace=namespace, grace_seconds=0)

def lose_while_uploading():
    devices = jax.devices()
    jax.device_put(small, devices[0]).block_until_ready()
    losing = threading.Thread(target=lambda: clusters.ask(session.record, delete))
    losing.start()
    deadline = time.monotonic() + 30
    try:
        while time.monotonic() < deadline:
            jax.block_until_ready([jax.device_put(small, devices[each % len(devices)]) for each in range(32)])
        raise AssertionError("the loss was not noticed")
    except jax.errors.JaxRuntimeError:
        pass
    losing.join()
    while True:
        try:
            return session.reconnect()
        except pathways_jupyter.PathwaysError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
"""
ROUNDS = """
for _ in range({rounds}):
    lose_while_uploading()
print("sound")
"""
END = "session.disconnect()"


def run(machine: Machine, *, rounds: int) -> bool:
    """Lose the proxy `rounds` times; prints how far it came. Whether the kernel lives, and nothing is left."""
    kernel = Kernel()
    done = 0
    try:
        kernel.run(BEGIN)
        while done < rounds:
            now = min(EACH, rounds - done)
            said = kernel.run(ROUNDS.format(rounds=now))
            if "sound" not in said:
                print(said.strip()[-1000:])
                break
            done += now
            print(f"{done:5d} losses", flush=True)
        kernel.run(END)
    except TimeoutError as error:
        print(f"The kernel {'hangs' if kernel.manager.is_alive() else 'is dead'}: {error}")
    finally:
        kernel.close()
    left = machine.wait_until_empty(seconds=60)
    print(f"the kernel survived {done} of {rounds} losses; left: {dict(left) or 'nothing'}")
    return done == rounds and not left
