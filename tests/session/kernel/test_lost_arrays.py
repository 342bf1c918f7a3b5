"""Arrays and devices of a proxy that is gone: every use is a clear error, and never another array or a dead process.

In processes of their own, because the worst that could happen is their end.
"""

from __future__ import annotations

import pytest
import scripts
from waits import wait_until

from pathways_jupyter.session import registry

DEADLINE = 90.0

BEFORE = """
import os, signal, weakref, gc
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.session.kernel import session as sessions
made = sessions.connect({config!r})
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
mesh = Mesh(np.array(jax.devices()), ("chip",))
rows = NamedSharding(mesh, PartitionSpec("chip"))
add_one = jax.jit(lambda x: x + 1)
kept = [jnp.full(4, float(each)) for each in range(10)]
fresh = jax.device_put(np.ones(24), rows)
print(np.asarray(add_one(kept[3])))
del_later = {{"kept": kept, "fresh": fresh}}
"""
AFTER = """
def tried(what):
    try:
        return str(np.asarray(what()).sum())
    except RuntimeError as error:
        return str(error).partition(":")[0] if "UNAVAILABLE" in str(error) else "deleted" * ("deleted" in str(error))

others = [jnp.full(4, 1000.0 + each) for each in range(50)] if made.state != "lost" else []
print({tried(lambda: add_one(each)) for each in kept})
print(tried(lambda: fresh * 2))
print(tried(lambda: jax.device_put(np.ones(32), rows) * 2))
print(tried(lambda: jax.device_put(np.ones(5), mesh.devices[0]) * 2))
print(tried(lambda: jax.make_array_from_callback((40,), rows, lambda index: np.ones(5)) * 2))
"""
GONE = ["{'deleted'}", "UNAVAILABLE", "UNAVAILABLE", "UNAVAILABLE", "UNAVAILABLE"]
COMPILE = """
from pathways_jupyter.elastic.compiled import CompiledSteps
from pathways_jupyter.session.kernel import device_puts

device_puts.forbid = lambda client: None
steps = CompiledSteps(lambda state, batch: (state + batch.sum(), {}))
state, batch = jax.device_put(np.ones(3), NamedSharding(mesh, PartitionSpec())), jax.device_put(np.ones(48), rows)
steps.on(mesh, state, batch)
"""
STEP = """
try:
    print(steps.run(mesh, state, batch, moved=True))
except RuntimeError as error:
    print(str(error).partition(":")[0])
"""
LOSE = """
os.kill(made.record.pid, signal.SIGKILL)
for event in made.follow():
    if event.kind == "supervisor-lost":
        break
"""


def run(script: str) -> list[str]:
    before = {each.id for each in registry.sessions()}
    done = scripts.run(script)
    assert done.returncode == 0, done.stderr
    # Where its supervisor was killed, another process removes the rest; it needs the cluster, which may end after this.
    wait_until(lambda: {each.id for each in registry.sessions()} <= before, DEADLINE)
    first, *rest = done.stdout.splitlines()
    assert first == "[4. 4. 4. 4.]"
    return rest


AGAIN = "print(tried(lambda: add_one(np.ones(2))))"


@pytest.mark.thorough
def test_what_was_on_a_proxy_that_was_left_fails_clearly(config):
    assert run(BEFORE.format(config=config(2)) + "made.disconnect()" + AFTER + AGAIN) == [*GONE, "4.0"]


@pytest.mark.thorough
def test_arrays_on_a_proxy_that_was_replaced_fail_clearly_and_meshes_are_those_of_the_new_one(config):
    found = run(BEFORE.format(config=config(2)) + "made.reconnect()" + AFTER + AGAIN)
    assert found == [*GONE[:2], "64.0", "10.0", "80.0", "4.0"]


def test_what_was_on_a_proxy_that_was_lost_fails_clearly_and_is_named_once(config):
    script = BEFORE.format(config=config(2)) + LOSE
    script += "print(len(made.settle(del_later).unusable), made.settle(del_later))"
    script += AFTER + "print(len(made.reconnect(del_later) and made.devices()), tried(lambda: add_one(np.ones(2))))"
    assert run(script) == ["11 None", *GONE, "8 4.0"]


@pytest.mark.thorough
def test_jax_is_left_as_it_was_found_once_no_device_of_a_proxy_is_held(config):
    script = "from jax._src.lib import xla_client\nput = xla_client.batched_device_put\n"
    # Not with a mesh: JAX itself never lets go of one.
    script += BEFORE.partition("mesh =")[0].format(config=config(2)) + "device = jax.devices()[0]\nmade.disconnect()\n"
    script += "print('[4. 4. 4. 4.]')\nprint(xla_client.batched_device_put is put)\n"
    script += "del device\ngc.collect()\nprint(xla_client.batched_device_put is put)"
    assert run(script) == ["False", "True"]


@pytest.mark.thorough
def test_a_training_step_on_a_proxy_that_was_lost_a_moment_ago_fails_clearly(config):
    """The connection is broken, and nothing in this process has noticed it yet."""
    assert run(BEFORE.format(config=config(2)) + COMPILE + LOSE + STEP) == ["UNAVAILABLE"]


RESUME = """
from pathways_jupyter.base.events import Transfer
state = {"key": jax.random.key(5), "w": kept[1] + fresh[0]}
del kept, fresh, mesh, rows, del_later
made.suspend({"state": state}, yes=True)

def lose(what, how_far):
    if isinstance(how_far, Transfer) and how_far.done == how_far.total:
        os.kill(made.record.pid, signal.SIGKILL)

try:
    made.resume(report=lose)
except Exception as error:
    print(type(error).__module__.partition(".")[0])
made.resume()
print(np.asarray(state["w"]).tolist(), jax.random.key_data(state["key"]).tolist())
made.disconnect()
"""


def test_a_proxy_that_is_lost_when_the_last_array_was_read_is_an_error_and_costs_no_array(config):
    said = run(BEFORE.format(config=config(2)) + RESUME)
    assert said == ["pathways_jupyter", "[2.0, 2.0, 2.0, 2.0] [0, 5]"]
