"""Programs that must give the same through a proxy as on plain CPU devices; both run this very file.

Each function returns a tree of arrays. Eight devices are there either way, two "slices" of four.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


def devices():
    return jax.devices()[:8]


def mesh(*shape_and_names):
    shape, names = shape_and_names or ((8,), ("x",))
    return Mesh(np.array(devices()).reshape(shape), names)


@scenario
def jit_grad_and_vmap():
    x = jnp.linspace(-2, 2, 12).reshape(3, 4)
    function = jax.jit(lambda x: jnp.sum(jnp.tanh(x) * x))
    return jax.jit(jnp.cumsum)(x), jax.grad(function)(x), jax.jit(jax.vmap(function))(x)


@scenario
def control_flow():
    carry, rows = jax.jit(lambda x: jax.lax.scan(lambda c, _: (c * 1.1, c), x, None, length=10))(1.0)
    steps = jax.jit(lambda n: jax.lax.while_loop(lambda i: i < n, lambda i: i + 3, 0))(20)
    branch = jax.jit(lambda i: jax.lax.switch(i, [lambda: 1.0, lambda: 2.0, lambda: 3.0]))(2)
    return carry, rows, steps, branch


@scenario
def random_numbers():
    @jax.jit
    def draw(key):
        keys = jax.random.split(key, 4)
        draws = jax.vmap(lambda k: jax.random.normal(k, (5,)))(keys)
        return keys, draws, jax.random.permutation(key, 10), jax.random.bernoulli(key, shape=(7,))

    keys, *rest = draw(jax.random.key(3))
    return jax.random.key_data(keys), rest


@scenario
def keys_sharded_over_all_devices():
    keys = jax.device_put(jax.random.split(jax.random.key(0), 8), NamedSharding(mesh(), P("x")))
    return jax.jit(jax.vmap(lambda k: jax.random.uniform(k, (3,))))(keys), jax.random.key_data(keys)


@scenario
def named_sharding_over_all_devices():
    grid = mesh((2, 4), ("slice", "x"))
    x = jax.device_put(np.arange(64.0, dtype="f4").reshape(8, 8), NamedSharding(grid, P("slice", "x")))
    w = jax.device_put(np.ones((8, 4), "f4"), NamedSharding(grid, P()))
    product = jax.jit(lambda x, w: x @ w, out_shardings=NamedSharding(grid, P("slice", "x")))(x, w)
    assert product.sharding.spec == P("slice", "x")
    shards = [shard.data for shard in x.addressable_shards]
    return product, jax.jit(jnp.sum)(x), shards[3], jnp.sort(x, axis=0)[::-1]


@scenario
def shard_map_collectives():
    grid = mesh((2, 4), ("slice", "x"))
    line = mesh()
    x = jnp.arange(16.0)
    total = jax.jit(
        jax.shard_map(lambda x: jax.lax.psum(x, ("slice", "x")), mesh=grid, in_specs=P(("slice", "x")), out_specs=P())
    )
    around = jax.jit(
        jax.shard_map(
            lambda x: jax.lax.ppermute(x, "x", [(i, (i + 1) % 8) for i in range(8)]),
            mesh=line,
            in_specs=P("x"),
            out_specs=P("x"),
        )
    )
    gathered = jax.jit(
        jax.shard_map(
            lambda x: jax.lax.all_gather(x, "x", tiled=True),
            mesh=line,
            in_specs=P("x"),
            out_specs=P(),
            check_vma=False,
        )
    )
    return total(x), around(x), gathered(x)


@scenario
def programs_without_arguments_or_results():
    everywhere = NamedSharding(mesh(), P("x"))
    nothing = jax.jit(jax.shard_map(lambda: (), mesh=mesh(), in_specs=(), out_specs=()))
    dropped = jax.jit(lambda x: None)
    assert nothing() == ()
    assert dropped(jax.device_put(np.arange(8.0), everywhere)) is None
    return jax.jit(lambda: jnp.arange(8.0), out_shardings=everywhere)()


@scenario
def ordered_effects():
    """Tokens go into such programs and come out of them."""
    from jax._src import core, dispatch, effects
    from jax._src.interpreters import mlir
    from jax._src.lax.lax import after_all, create_token
    from jax._src.lib.mlir.dialects import hlo

    class Ordered(effects.Effect):
        pass

    effect = Ordered()
    for kinds in ("lowerable_effects", "ordered_effects", "shardable_ordered_effects"):
        getattr(effects, kinds).add_type(Ordered)
    primitive = core.Primitive("in_order")
    primitive.def_effectful_abstract_eval(lambda x: (x, {effect}))
    primitive.def_impl(partial(dispatch.apply_primitive, primitive))

    def lower(context, x):
        token = hlo.AfterAllOp([context.tokens_in.get(effect)]).result
        context.set_tokens_out(context.tokens_in.update_tokens(mlir.TokenSet({effect: token})))
        return [x]

    mlir.register_lowering(primitive, lower)
    double = jax.jit(lambda x: primitive.bind(x) * 2)
    x = jnp.arange(3.0)
    for _ in range(3):
        x = double(x)
    split = double(jax.device_put(np.arange(8.0), NamedSharding(mesh(), P("x"))))
    token, added = jax.jit(lambda token, x: (after_all(token), x + 1))(create_token(), x)
    jax.block_until_ready(token)
    jax.effects_barrier()
    return x, split, added


@scenario
def pmap():
    return jax.pmap(lambda x: jax.lax.psum(x, "i") + x, axis_name="i", devices=devices())(np.arange(8.0))


@scenario
def donation():
    step = jax.jit(lambda x: x * 2 + 1, donate_argnums=0)
    x = jax.device_put(np.ones((8, 4), "f4"), NamedSharding(mesh(), P("x")))
    y = step(x)
    assert x.is_deleted()
    for _ in range(5):
        y = step(y)
    return y


@scenario
def conditionals_nested_deeply():
    def nest(x, depth):
        if depth == 0:
            return x
        return jax.lax.cond(x.sum() > 0, lambda y: nest(y + 1, depth - 1), lambda y: y, x)

    return [jax.jit(nest, static_argnums=1)(jnp.ones(3), depth) for depth in (33, 60)]


@scenario
def donation_that_cannot_be_used():
    """An array whose memory fits no result stays what it was."""
    product = jax.jit(lambda x: x @ x.T, donate_argnums=0)
    x = jax.device_put(np.ones((8, 4), "f4"), NamedSharding(mesh(), P("x")))
    first = product(x)
    one, other = jnp.ones(4), jnp.ones(4)
    third = jax.jit(lambda x, y: y + 1, donate_argnums=(0, 1))(one, other)
    return first, product(x), third, np.array([each.is_deleted() for each in (x, one, other)])


@scenario
def thousands_of_donated_arguments():
    """So many are passed to XLA as one tuple."""
    arguments = [jnp.float32(each) for each in range(2100)]
    results = jax.jit(lambda *each: [x + 1 for x in each], donate_argnums=range(2000))(*arguments)
    deleted = np.array([each.is_deleted() for each in arguments])
    return jnp.stack(results[-3:]), deleted


@scenario
def moves_between_devices_and_slices():
    first, second = (Mesh(np.array(devices()[each : each + 4]), ("x",)) for each in (0, 4))
    x = jax.device_put(np.arange(64.0).reshape(8, 8), NamedSharding(first, P("x")))
    other_slice = jax.device_put(x, NamedSharding(second, P("x")))
    other_axis = jax.device_put(x, NamedSharding(first, P(None, "x")))
    one = jax.device_put(x, devices()[5])
    assert one.devices() == {devices()[5]}
    return other_slice * 2, other_axis, one, jax.device_put(one, NamedSharding(mesh(), P("x")))


@scenario
def arrays_made_from_their_parts():
    sharding = NamedSharding(mesh(), P("x"))
    parts = [jax.device_put(np.full((1, 2), i, "f4"), device) for i, device in enumerate(devices())]
    joined = jax.make_array_from_single_device_arrays((8, 2), sharding, parts)
    called = jax.make_array_from_callback((8, 2), sharding, lambda index: np.ones((8, 2), "f4")[index])
    return joined, called + 1, joined.addressable_shards[2].data


@scenario
def every_dtype():
    names = ["bool", "int4", "int8", "int16", "int32", "uint4", "uint8", "uint16", "uint32", "float16", "bfloat16"]
    names += ["float32", "complex64", "float8_e4m3fn", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz"]
    names += ["float8_e5m2"]
    there = {name: jax.device_put((np.arange(6).reshape(2, 3) % 2).astype(jnp.dtype(name))) for name in names}
    back = {name: jax.device_put(np.asarray(x)) for name, x in there.items()}
    return back, jax.jit(lambda there: jax.tree.map(lambda x: jnp.concatenate([x, x], axis=1), there))(there)


@scenario
def low_precision_arithmetic():
    @jax.jit
    def multiply(x):
        half = x.astype(jnp.bfloat16)
        eighth = x.astype(jnp.float8_e4m3fn)
        return half @ half, (eighth.astype(jnp.bfloat16) @ half).astype(jnp.float8_e5m2)

    return multiply(np.linspace(-1, 1, 64, dtype="f4").reshape(8, 8))


@scenario
def sixty_four_bits():
    with jax.enable_x64(True):
        return jnp.arange(5, dtype="float64") / 3, jnp.arange(5) + 2**40


@scenario
def odd_shapes_and_layouts():
    fortran = np.asfortranarray(np.arange(24.0, dtype="f4").reshape(4, 6))
    stepped = np.arange(48).reshape(8, 6)[::2, ::3]
    backwards = np.arange(6)[::-1]
    return [jax.device_put(each) for each in (fortran, stepped, backwards, np.zeros((0, 3)), np.float32(3))]


@scenario
def linear_algebra():
    a = np.random.default_rng(0).normal(size=(6, 6)).astype("f4")
    symmetric = a @ a.T + 6 * np.eye(6, dtype="f4")

    @jax.jit
    def everything(a, symmetric):
        q, r = jnp.linalg.qr(a)
        return {
            "solve": jnp.linalg.solve(a, jnp.ones(6)),
            "lu": jax.lax.linalg.lu(jnp.stack([a, symmetric])),
            "det": jnp.linalg.det(symmetric),
            "cholesky": jnp.linalg.cholesky(symmetric),
            "qr": q @ r,
            "eigenvalues": jnp.linalg.eigh(symmetric)[0],
            "fft": jnp.fft.fft(a),
        }

    return everything(a, symmetric)


@scenario
def ragged_dot():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(6, 4)).astype("f4"), rng.normal(size=(3, 4, 5)).astype("f4")
    sizes = np.array([1, 3, 2], "i4")
    grouped = jax.lax.RaggedDotDimensionNumbers(
        dot_dimension_numbers=(((0,), (0,)), ((), ())), lhs_ragged_dimensions=[0], rhs_group_dimensions=[]
    )
    half = jax.jit(jax.lax.ragged_dot)(x.astype(jnp.bfloat16), w.astype(jnp.bfloat16), sizes)
    rows = jax.device_put(np.ones((8, 4), "f4"), NamedSharding(mesh(), P("x")))
    return {
        "groups": jax.jit(jax.lax.ragged_dot)(x, w, sizes),
        "half": half,
        "gradients": jax.jit(jax.grad(lambda x, w: jax.lax.ragged_dot(x, w, sizes).sum(), argnums=(0, 1)))(x, w),
        "outer": jax.jit(lambda x, y: jax.lax.ragged_dot_general(x, y, sizes, grouped))(x, x),
        "batched": jax.jit(jax.vmap(jax.lax.ragged_dot))(np.stack([x, -x]), np.stack([w, w]), np.stack([sizes, sizes])),
        "sharded": jax.jit(jax.lax.ragged_dot)(rows, w, np.array([3, 3, 2], "i4")),
    }


@scenario
def convolution_and_top_k():
    rng = np.random.default_rng(0)
    image, kernel = (rng.normal(size=shape).astype("f4") for shape in ((1, 3, 16, 16), (4, 3, 3, 3)))
    both = jax.jit(lambda x, k: (jax.lax.conv(x, k, (1, 1), "SAME"), jax.lax.top_k(x.ravel(), 5)))
    return both(image, kernel)


@scenario
def memory_kinds():
    host = SingleDeviceSharding(devices()[0], memory_kind="pinned_host")
    device = SingleDeviceSharding(devices()[0], memory_kind="device")
    x = jax.device_put(np.ones(4, "f4"), host)
    assert x.sharding.memory_kind == "pinned_host"
    there_and_back = jax.jit(lambda x: jax.device_put(jax.device_put(x * 2, host), device) + 1)
    return x, jax.device_put(x, device), there_and_back(jnp.ones(4))


@scenario
def exported_programs():
    from jax import export

    exported = export.export(jax.jit(jnp.sin), platforms=("cpu", "tpu"))(jnp.ones(3))
    return exported.call(jnp.arange(3.0))


@scenario
def analyses():
    compiled = jax.jit(lambda x: x @ x).lower(jnp.ones((64, 64))).compile()
    memory = compiled.memory_analysis()
    assert "dot" in compiled.as_text()
    return np.array([compiled.cost_analysis()["flops"], memory.argument_size_in_bytes, memory.output_size_in_bytes])


def trained(optimizer, loss, parameters, steps, **options):
    """The parameters after so many steps, of which each is a program with these options, and the losses."""

    @partial(jax.jit, **options)
    def step(parameters, state):
        value, gradients = jax.value_and_grad(loss)(parameters)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, value

    state, values = jax.jit(optimizer.init)(parameters), []
    for _ in range(steps):
        parameters, state, value = step(parameters, state)
        values.append(value)
    return parameters, values


@scenario
def mlp_training():
    rng = np.random.default_rng(0)
    shapes = {"w1": (8, 32), "w2": (32, 1)}
    parameters = {name: jnp.asarray(rng.normal(size=shape) / 4, "f4") for name, shape in shapes.items()}
    x = jax.device_put(rng.normal(size=(64, 8)).astype("f4"), NamedSharding(mesh(), P("x")))

    def loss(parameters):
        return jnp.mean((jnp.tanh(x @ parameters["w1"]) @ parameters["w2"] - x.sum(1, keepdims=True)) ** 2)

    return trained(optax.adamw(1e-2), loss, parameters, steps=20, donate_argnums=(0, 1))


@scenario
def transformer_training():
    grid = mesh((2, 4), ("data", "model"))
    width, heads, length = 32, 4, 8
    rng = np.random.default_rng(1)
    split = {"qkv": P(None, "model"), "out": P("model"), "up": P(None, "model"), "down": P("model"), "embed": P()}
    shapes = {
        "qkv": (width, 3 * width),
        "out": (width, width),
        "up": (width, 4 * width),
        "down": (4 * width, width),
        "embed": (64, width),
    }
    parameters = {
        name: jax.device_put(rng.normal(size=shape).astype("f4") * 0.1, NamedSharding(grid, split[name]))
        for name, shape in shapes.items()
    }
    tokens = jax.device_put(rng.integers(0, 64, (8, length + 1), dtype="i4"), NamedSharding(grid, P("data")))

    def forward(parameters, tokens):
        x = parameters["embed"][tokens]
        q, k, v = (each.reshape(*each.shape[:2], heads, -1) for each in jnp.split(x @ parameters["qkv"], 3, axis=-1))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(width / heads)
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(x.shape)
        x = x + mixed @ parameters["out"]
        x = x + jax.nn.gelu(x @ parameters["up"]) @ parameters["down"]
        return x @ parameters["embed"].T

    def loss(parameters):
        logits = forward(parameters, tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    parameters, values = trained(optax.sgd(1e-1, momentum=0.9), loss, parameters, steps=5)
    assert parameters["qkv"].sharding.is_equivalent_to(NamedSharding(grid, split["qkv"]), 2)
    return parameters, values


def run(name, path):
    """Runs a scenario, saves what it returned, and returns what each array is and where it lies."""
    results = jax.tree.leaves(SCENARIOS[name]())
    memories = [leaf.sharding.memory_kind if isinstance(leaf, jax.Array) else "numpy" for leaf in results]
    leaves = [np.asarray(leaf) for leaf in results]
    # numpy does not write bfloat16 and the like.
    np.savez(path, *[leaf if leaf.dtype.isbuiltin == 1 else leaf.astype(np.float64) for leaf in leaves])
    return [f"{leaf.dtype}{list(leaf.shape)} in {memory}" for leaf, memory in zip(leaves, memories, strict=True)]
