"""The same JAX program on plain CPU devices and through the proxy: dispatch, bandwidth, a training step.

Run as ``python -m benchmarks.workload``, with ``direct`` or ``proxy KUBECONFIG CONTEXT``; prints one line
of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.measure import median

_MEGABYTES = (1, 64, 512)
_DISPATCHES = 1000


def main(arguments: list[str]) -> int:
    """Measure with the JAX that `arguments` choose."""
    with _direct() if arguments[0] == "direct" else _proxy(*arguments[1:]):
        print(json.dumps({**_dispatch(), **_bandwidth(), **_training()}))
    return 0


@contextlib.contextmanager
def _direct() -> Any:
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    jax.config.update("jax_num_cpu_devices", 8)
    yield


def _proxy(kubeconfig: str, context: str) -> Any:
    import pathways_jupyter

    return pathways_jupyter.connect(kubeconfig=kubeconfig, context=context, tpu={"tpuv6e:2x2": 2}, wait=60)


def _dispatch() -> dict[str, float]:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    devices = jax.devices()
    mesh = Mesh(np.array(devices), ("x",))
    add = jax.jit(lambda x: x + 1)
    one = jax.device_put(np.float32(1), devices[0])
    spread = jax.device_put(np.arange(16, dtype=np.float32), NamedSharding(mesh, P("x")))
    total = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))

    def chain(start: Any) -> float:
        value = add(start).block_until_ready()
        began = time.perf_counter()
        for _ in range(_DISPATCHES):
            value = add(value)
        value.block_until_ready()
        return time.perf_counter() - began

    jnp.zeros(()).block_until_ready()
    return {
        "a tiny jit, until ready (ms)": 1e3 * _latency(lambda: add(one).block_until_ready()),
        "psum over 8 devices (ms)": 1e3 * _latency(lambda: total(spread).block_until_ready()),
        "1,000 dispatches on one device (ms)": 1e3 * chain(one),
        "1,000 dispatches over 8 devices (ms)": 1e3 * chain(spread),
    }


def _bandwidth() -> dict[str, float]:
    import jax
    import numpy as np

    device = jax.devices()[0]
    add = jax.jit(lambda x: x + 1)
    measured = {}
    for megabytes in _MEGABYTES:
        host = np.ones(megabytes << 18, np.float32)
        up, down = [], []
        for _ in range(3):
            began = time.perf_counter()
            on_device = jax.device_put(host, device)
            on_device.block_until_ready()
            up.append(time.perf_counter() - began)
            fresh = add(
                on_device
            ).block_until_ready()  # An array that was never on the host, so that reading it moves bytes.
            began = time.perf_counter()
            back = np.asarray(fresh)
            down.append(time.perf_counter() - began)
            if back[0] != 2 or back[-1] != 2:
                raise RuntimeError("The array came back wrong.")
            del on_device, fresh, back
        measured[f"host to device, {megabytes} MB (MB/s)"] = megabytes / median(up)
        measured[f"device to host, {megabytes} MB (MB/s)"] = megabytes / median(down)
    return measured


def _training() -> dict[str, float]:
    import jax
    import jax.numpy as jnp

    first, second = jax.random.split(jax.random.key(0))
    weights = {"in": jax.random.normal(first, (256, 1024)), "out": jax.random.normal(second, (1024, 10))}
    inputs, targets = jnp.ones((128, 256)), jnp.ones((128, 10))

    def loss(weights: Any) -> Any:
        return jnp.mean((jnp.tanh(inputs @ weights["in"]) @ weights["out"] - targets) ** 2)

    def step(weights: Any) -> Any:
        return jax.tree.map(lambda weight, slope: weight - 0.01 * slope, weights, jax.grad(loss)(weights))

    jitted = jax.jit(step, donate_argnums=0)
    weights = jax.block_until_ready(jitted(jitted(weights)))
    steps = 200
    began = time.perf_counter()
    for _ in range(steps):
        weights = jitted(weights)
    jax.block_until_ready(weights)
    return {"a training step of a small MLP (ms)": 1e3 * (time.perf_counter() - began) / steps}


def _latency(run: Callable[[], object], times: int = 200) -> float:
    run()
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return median(taken)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
