"""Programs whose session is suspended in the middle go on to the same losses, digit for digit."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

pytestmark = pytest.mark.thorough

optax = pytest.importorskip("optax")
nnx = pytest.importorskip("flax.nnx")

BATCHES, LENGTH, WIDTH, VOCABULARY = 4, 8, 16, 32
ADAMW, ADAM = optax.adamw(1e-2), optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))


class Block(nnx.Module):
    def __init__(self, rngs):
        self.attention = nnx.MultiHeadAttention(2, WIDTH, decode=False, rngs=rngs)
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.out = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.dropout(jax.nn.gelu(self.out(x)))


class Model(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        self.blocks = nnx.List([Block(rngs)])
        self.head = nnx.Linear(WIDTH, VOCABULARY, rngs=rngs)

    def __call__(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@nnx.jit
def made_transformer():
    model = Model(nnx.Rngs(0))
    return model, nnx.Optimizer(model, ADAMW, wrt=nnx.Param)


@nnx.jit
def train_transformer(model, optimizer, tokens):
    def loss_of(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(tokens), jnp.roll(tokens, 1, 1)).mean()

    loss, grads = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, grads)
    return loss


def transformer(session):
    """A Flax NNX transformer with adamw; its state is in the modules."""
    model, optimizer = made_transformer()
    tokens = jax.random.randint(jax.random.key(1), (BATCHES, LENGTH), 0, VOCABULARY)
    variables = {"model": model, "optimizer": optimizer, "tokens": tokens}
    return variables, lambda: train_transformer(variables["model"], variables["optimizer"], variables["tokens"])


@jax.jit
def train_dictionaries(params, state, key, x):
    key, noise = jax.random.split(key)

    def loss_of(params):
        y = jnp.tanh(x @ params["in"]) @ params["out"].astype(jnp.float32)
        return jnp.mean((y + 0.1 * jax.random.normal(noise, y.shape)) ** 2)

    loss, grads = jax.value_and_grad(loss_of)(params)
    updates, state = ADAM.update(grads, state, params)
    return optax.apply_updates(params, updates), state, key, loss


def dictionaries(session):
    """An optax loop on dictionaries whose leaves are on a mesh; the optimizer's state is of named tuples."""
    mesh = jax.sharding.Mesh(np.array(session.devices()).reshape(2, 4), ("data", "model"))
    columns, rows = NamedSharding(mesh, P(None, "model")), NamedSharding(mesh, P("data"))
    key = jax.random.key(2)
    params = {
        "in": jax.device_put(jax.random.normal(key, (WIDTH, 16)), columns),
        "out": jax.device_put(jax.random.normal(key, (16, 4), jnp.bfloat16), columns),
    }
    x = jax.device_put(jax.random.normal(key, (8, WIDTH)), rows)
    kept = {"params": params, "state": ADAM.init(params), "key": key, "x": x, "mesh": mesh}

    def step():
        kept["params"], kept["state"], kept["key"], loss = train_dictionaries(
            kept["params"], kept["state"], kept["key"], kept["x"]
        )
        return loss

    return kept, step


class Layer:
    """A class of a user's own, which JAX does not know."""

    __slots__ = ("bias", "weight")

    def __init__(self, key):
        self.weight, self.bias = jax.random.normal(key, (WIDTH, WIDTH)), jnp.zeros(WIDTH)


@dataclasses.dataclass
class Trainer:
    """Keeps arrays in attributes, and a function that has closed over one."""

    layers: list[Layer]
    velocity: list[tuple[jax.Array, jax.Array]]
    steps: int = 0

    def __post_init__(self):
        target = jax.random.normal(jax.random.key(9), (8, WIDTH))

        @jax.jit
        def grad(weights, x):
            def loss_of(weights):
                y = x
                for weight, bias in weights:
                    y = jnp.sin(y @ weight + bias)
                return jnp.mean((y - target) ** 2)

            return jax.value_and_grad(loss_of)(weights)

        self.grad = grad

    def step(self, x):
        loss, grads = self.grad([(each.weight, each.bias) for each in self.layers], x)
        for number, (layer, (weight, bias)) in enumerate(zip(self.layers, grads, strict=True)):
            before = self.velocity[number]
            self.velocity[number] = after = (0.9 * before[0] + weight, 0.9 * before[1] + bias)
            layer.weight, layer.bias = layer.weight - 0.1 * after[0], layer.bias - 0.1 * after[1]
        self.steps += 1
        return loss


def objects(session):
    keys = jax.random.split(jax.random.key(4), 2)
    layers = [Layer(key) for key in keys]
    trainer = Trainer(layers, [(jnp.zeros_like(each.weight), jnp.zeros_like(each.bias)) for each in layers])
    variables = {"trainer": trainer, "x": jax.random.normal(keys[0], (8, WIDTH))}
    return variables, lambda: variables["trainer"].step(variables["x"])


@pytest.mark.parametrize("program", [transformer, dictionaries, objects])
def test_a_program_goes_on_to_the_same_losses(session, program):
    expected = losses(program(session)[1], 6)
    variables, step = program(session)
    found = losses(step, 3)
    assert session.suspend(variables).count
    session.resume()
    assert found + losses(step, 3) == expected


def losses(step, number):
    """The losses of so many steps, to the last bit."""
    return [float(step()).hex() for _ in range(number)]
