"""Optimizers of Optax on one small problem, with L-BFGS and its line search."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

matrix = jnp.asarray(np.random.default_rng(0).normal(size=(32, 8)), "float32")
target = jnp.sin(jnp.arange(32.0))


def loss(parameters):
    return jnp.mean((matrix @ parameters["w"] @ parameters["v"] - target) ** 2)


def trained(optimizer, **extra):
    parameters = {"w": jnp.eye(8), "v": jnp.ones(8)}
    state = optimizer.init(parameters)

    @jax.jit
    def step(parameters, state):
        value, gradients = jax.value_and_grad(loss)(parameters)
        known = {"value": value, "grad": gradients, "value_fn": loss} if extra else {}
        updates, state = optimizer.update(gradients, state, parameters, **known)
        return optax.apply_updates(parameters, updates), state

    for _ in range(10):
        parameters, state = step(parameters, state)
    return loss(parameters)


print("adafactor", f"{trained(optax.adafactor(1e-2)):.4f}")
print("lion", f"{trained(optax.lion(1e-2)):.4f}")
print("muon", f"{trained(optax.contrib.muon(1e-2)):.4f}")
print("l-bfgs", f"{trained(optax.lbfgs(), line_search=True):.4f}")
