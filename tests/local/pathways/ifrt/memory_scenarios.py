"""Programs whose arrays are in host memory, or travel between it and the device's; see ``scenarios.py``.

The runner compares the kind of memory of every array that is returned, too.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import compute_on
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from scenarios import devices, mesh, scenario

HOST = "pinned_host"
SPLIT = P("x")
ROWS = np.arange(64, dtype="f4").reshape(8, 8) / 64


def on_device(spec=SPLIT):
    return NamedSharding(mesh(), spec)


def on_host(spec=SPLIT, kind=HOST):
    return NamedSharding(mesh(), spec, memory_kind=kind)


def deleted(*arrays):
    return np.array([each.is_deleted() for each in arrays])


@scenario
def results_in_host_memory():
    one = jax.jit(lambda x: x * 2, out_shardings=SingleDeviceSharding(devices()[0], memory_kind=HOST))(jnp.ones(4))
    many = jax.jit(lambda x: x + 1, out_shardings=on_host())(jax.device_put(ROWS, on_device()))
    same = jax.jit(lambda x: x)(many)
    compiled = jax.jit(lambda x: x * 3, out_shardings=on_host()).lower(many).compile()
    return one, many, same, many.copy(), compiled(many)


@scenario
def put_into_each_memory_and_back():
    kinds = [jax.device_put(ROWS, on_host(kind=kind)) for kind in (HOST, "unpinned_host", "device")]
    back = [jax.device_put(each, on_device()) for each in kinds]
    forth = [jax.device_put(each, on_host()) for each in back]
    return (
        kinds,
        back,
        forth,
        jax.device_put(np.zeros((0, 3), "f4"), SingleDeviceSharding(devices()[1], memory_kind=HOST)),
    )


@scenario
def parts_of_arrays_in_host_memory():
    whole = jax.device_put(ROWS, on_host())
    parts = [
        jax.device_put(ROWS[i : i + 1], SingleDeviceSharding(d, memory_kind=HOST)) for i, d in enumerate(devices())
    ]
    joined = jax.make_array_from_single_device_arrays((8, 8), on_host(), parts)
    called = jax.make_array_from_callback((8, 8), on_host(), lambda index: ROWS[index])
    everywhere = jax.device_put(ROWS, on_host(P()))
    shards = [each.addressable_shards[3].data for each in (whole, joined, called, everywhere)]
    return whole, joined, called, everywhere, shards, jax.jit(lambda x: x)(shards[0])


@scenario
def host_memory_of_other_devices():
    first, second = (Mesh(np.array(devices()[each : each + 4]), ("x",)) for each in (0, 4))
    x = jax.device_put(ROWS, NamedSharding(first, P("x"), memory_kind=HOST))
    other_slice = jax.device_put(x, NamedSharding(second, P("x"), memory_kind=HOST))
    other_axis = jax.device_put(x, NamedSharding(first, P(None, "x"), memory_kind=HOST))
    return other_slice, other_axis, jax.device_put(x, NamedSharding(second, P()))


@scenario
def donation_between_memories():
    """Memory is reused only for a result in the same kind of memory; an array that was not reused stays."""
    found = []
    for source in (on_device(), on_host()):
        for target in (on_device(), on_host()):
            x = jax.device_put(ROWS, source)
            y = jax.jit(lambda x: x, donate_argnums=0, in_shardings=source, out_shardings=target)(x)
            found += [y, deleted(x)]
    x = jax.device_put(ROWS, on_host())
    for _ in range(3):
        y = jax.jit(lambda x: x + x, donate_argnums=0)(x)
        found.append(deleted(x))
        x = y
    return found, x


# In JAX 0.10 `compute_on` is a context manager, and the function is called `compute_on2`.
compute_on_function = getattr(compute_on, "compute_on2", compute_on.compute_on)


@scenario
def computing_on_the_host():
    def doubled_sine(x):
        return jnp.sin(x) * 2

    @jax.jit
    def scaled(x):
        if compute_on_function is compute_on.compute_on:
            y = compute_on_function(
                doubled_sine, compute_type="device_host", out_memory_spaces=jax.memory.Space.Device
            )(x)
        else:
            with compute_on.compute_on("device_host"):
                y = doubled_sine(x)
        return y + 1

    x = jax.device_put(ROWS, on_device())
    return scaled(x), jax.grad(lambda x: scaled(x).sum())(x)


@scenario
def computing_on_the_host_with_donation():
    @compute_on_function(compute_type="device_host", out_memory_spaces=jax.memory.Space.Host)
    @jax.jit
    def double(x):
        return x * 2

    x = jax.device_put(ROWS, on_host())
    y = jax.jit(double, donate_argnums=0, out_shardings=on_host())(x)
    return y, deleted(x)


@scenario
def optimizer_state_in_host_memory():
    """Adam's moments stay on the host between steps, and every step donates them."""
    optimizer = optax.adam(1e-2)
    parameters = jax.device_put(ROWS, on_device())
    count, *_ = state = optimizer.init(parameters)
    placed = count._replace(count=on_device(P()), mu=on_device(), nu=on_device()), *state[1:]
    kept = count._replace(count=on_device(P()), mu=on_host(), nu=on_host()), *state[1:]
    state = jax.device_put(state, kept)

    @jax.jit
    def gradient(parameters):
        return jax.grad(lambda x: jnp.sum(x**2))(parameters)

    def step(parameters, state):
        state = jax.device_put(state, placed)
        updates, state = optimizer.update(gradient(parameters), state, parameters)
        return optax.apply_updates(parameters, updates), state

    step = jax.jit(step, donate_argnums=(0, 1), out_shardings=(on_device(), kept))
    for _ in range(4):
        parameters, state = step(parameters, state)
    return parameters, state


@scenario
def weights_streamed_from_host_memory():
    weights = jax.device_put(np.stack([np.eye(8, dtype="f4") * 1.1] * 3), on_host(P()))

    @jax.jit
    def forward(weights, x):
        return jax.lax.scan(lambda x, weight: (x @ jax.device_put(weight, on_device(P())), None), x, weights)[0]

    return forward(weights, jax.device_put(ROWS, on_device()))


@scenario
def activations_offloaded_between_forward_and_backward():
    from jax.ad_checkpoint import checkpoint_name

    def loss(x):
        y = checkpoint_name(jnp.sin(x @ x), "kept")
        return jnp.sum(jnp.cos(checkpoint_name(jnp.sin(y @ y), "offloaded")))

    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["kept"],
        names_which_can_be_offloaded=["offloaded"],
        offload_src="device",
        offload_dst=HOST,
    )
    return jax.jit(jax.grad(jax.remat(loss, policy=policy)))(ROWS)
