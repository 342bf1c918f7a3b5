"""Devices that reach a collective long after the others, where XLA would otherwise end the process."""

from __future__ import annotations

import pytest

# XLA's own limits, lowered from 20 s and 40 s.
LOWERED = (
    "--xla_cpu_collective_call_warn_stuck_timeout_seconds=1 "
    "--xla_cpu_collective_call_terminate_timeout_seconds=1 "
    "--xla_cpu_collective_timeout_seconds=1"
)


@pytest.fixture(scope="module")
def client(make_service):
    service = make_service(slices=1)
    service.worker(0)
    service.sidecar(0, XLA_FLAGS=LOWERED)
    proxy = service.proxy("proxy", slices=1, more=["--sidecar_name=external"], XLA_FLAGS=LOWERED)
    proxy.log.wait("All 1 slices are placed")
    client = service.client("proxy")
    client.run("""
        import numpy as np
        import jax.numpy as jnp
        from jax.experimental import colocated_python
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

        def unbalanced_sum(devices, shards):
            # The first device computes for several seconds, while the others wait.
            def function(x):
                rounds = jnp.where(jax.lax.axis_index("x") == 0, 80_000, 1)
                y = jax.lax.fori_loop(0, rounds, lambda _, z: jnp.tanh(z @ z) * 0.5 + 0.1, x[0])
                return jax.lax.psum(jnp.isfinite(y).all().astype("f4"), "x")[None]

            mesh = Mesh(np.array(devices), ("x",))
            spread = jax.shard_map(function, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)
            return jax.jit(spread)(shards)

        def spread(devices):
            by_device = NamedSharding(Mesh(np.array(devices), ("x",)), P("x"))
            return jax.device_put(np.ones((4, 128, 128), "f4"), by_device)
    """)
    return client


def test_devices_of_a_program_may_be_late(client):
    assert client.run("result = np.asarray(unbalanced_sum(jax.devices(), spread(jax.devices()))).tolist()") == [4.0] * 4


def test_devices_of_a_program_on_a_host_may_be_late(client):
    found = client.run("""
        cpus = colocated_python.colocated_cpu_devices(jax.devices())
        function = colocated_python.colocated_python(lambda x: unbalanced_sum(jax.local_devices(), x))
        result = np.asarray(function(spread(cpus))).tolist()
    """)
    assert found == [4.0] * 4
