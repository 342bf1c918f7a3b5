"""A network of Flax NNX with batch norm and dropout, trained by Optax over all devices."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


class Model(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(16, 64, rngs=rngs)
        self.norm = nnx.BatchNorm(64, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.last = nnx.Linear(64, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(self.dropout(nnx.gelu(self.norm(self.first(x)))))


mesh = Mesh(np.array(jax.devices()), ("data",))
rows = np.random.default_rng(0).normal(size=(64, 16)).astype("f4")
x = jax.device_put(rows, NamedSharding(mesh, P("data")))
y = jnp.sin(x.sum(1, keepdims=True))
model = Model(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adamw(optax.cosine_decay_schedule(1e-2, 30)), wrt=nnx.Param)


@nnx.jit
def step(model, optimizer, x, y):
    loss, gradients = nnx.value_and_grad(lambda model: jnp.mean((model(x) - y) ** 2))(model)
    optimizer.update(model, gradients)
    return loss


for number in range(20):
    print(number, f"{step(model, optimizer, x, y):.4f}")
