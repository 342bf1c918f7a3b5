"""Programs with what JAX lowers for a TPU in a way of its own; see ``scenarios.py``.

`lowered_for_chips` finds what they have of that, so that a test can say what is missing here.
"""

import re
from contextlib import contextmanager, nullcontext
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.experimental.layout import Layout, with_layout_constraint
from jax.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from scenarios import SCENARIOS, devices, mesh

PROGRAMS = []
LINE = np.arange(8, dtype="f4")
MATRIX = np.random.default_rng(0).normal(size=(6, 6)).astype("f4")


@contextmanager
def old_partitioner():
    """GSPMD, whose calls are in programs that were exported with an older JAX."""
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", False)
    try:
        yield
    finally:
        jax.config.update("jax_use_shardy_partitioner", before)


def explicit_mesh():
    return jax.set_mesh(Mesh(np.array(devices()), ("x",), axis_types=(AxisType.Explicit,)))


def host_memory():
    return SingleDeviceSharding(devices()[0], memory_kind="pinned_host")


def program(argument, *, within=nullcontext, results=lambda: None):
    """A scenario of one jitted function of one array."""

    def add(function):
        def traced():
            return jax.jit(function, out_shardings=results()).trace(jnp.asarray(argument))

        def run():
            with within():
                return traced().lower().compile()(jnp.asarray(argument))

        PROGRAMS.append((traced, within))
        SCENARIOS[function.__name__] = run
        return function

    return add


def lowered_for_chips():
    """The names of all custom calls, and the text of all traced programs."""
    calls, texts = set(), []
    for traced, within in PROGRAMS:
        with within():
            each = traced()
            calls.update(re.findall(r'custom_call @"?([\w.-]+)', each.lower(lowering_platforms=("tpu",)).as_text()))
            texts.append(str(each.jaxpr))
    return sorted(calls), "\n".join(texts)


def on_all_devices(function, x, results):
    return jax.shard_map(function, mesh=mesh(), in_specs=P("x"), out_specs=results)(x)


def on_explicit_devices(function, x):
    return jax.shard_map(function, in_specs=P("x"), out_specs=P(reduced={"x"}))(jax.reshard(x, P("x")))


@program(LINE)
def arrays_that_are_not_set(x):
    """Make arrays whose elements are zero on both sides."""
    dtypes = ["bool", "int4", "int32", "bfloat16", "float8_e4m3fn", "complex64"]
    keys = jax.random.key_data(jax.lax.empty((2,), jax.random.key(0).dtype))
    filled = jax.lax.fori_loop(0, 8, lambda i, array: array.at[i].set(x[i] * i), jax.lax.empty((8,), jnp.float32))
    return [jax.lax.empty((2, 3), each) for each in dtypes], keys, filled, jnp.empty((2,)), jnp.empty_like(x)


@program(LINE)
def unused_values_that_are_kept(x):
    jax.lax.dce_sink(x * 3, prevent_mlir_dce=True)
    return x + 1


@program(LINE, results=host_memory)
def results_that_are_placed_in_host_memory(x):
    device = SingleDeviceSharding(devices()[0], memory_kind="device")
    return jax.device_put(jax.device_put(x * 2, host_memory()), device) + 1


@program(MATRIX)
def layouts(x):
    return with_layout_constraint(x, Layout(major_to_minor=(1, 0))) * 2


@program(np.arange(100, dtype="f4"))
def approximate_maxima(x):
    return jax.lax.approx_max_k(x, k=3), jax.lax.approx_min_k(x, k=3)


@program(MATRIX)
def decompositions(a):
    q, r = jnp.linalg.qr(a)
    symmetric = a + a.T
    values, vectors = jnp.linalg.eigh(symmetric)
    return (
        q @ r,
        values,
        vectors @ jnp.diag(values) @ vectors.T,
        jax.lax.linalg.lu(a),
        jnp.linalg.eigvalsh(1j * (a - a.T)),
    )


@program(LINE)
def products_and_activations(x):
    rows = x.reshape(4, 2)
    sizes = jnp.array([1, 3], "int32")
    return rows @ rows.T, jax.lax.ragged_dot(rows, jnp.ones((2, 2, 3)), sizes), jax.nn.sigmoid(x)


@program(LINE)
def programs_of_symbolic_shapes(x):
    shape = export.symbolic_shape("2*b,", constraints=["b >= 2"])

    def function(x):
        windows = jax.lax.reduce_window(x, 0.0, jax.lax.add, (2,), (1,), "SAME")
        bits = jax.random.bits(jax.random.key(0, impl="rbg"), x.shape)
        largest = jax.lax.top_k(x, 2), jax.lax.approx_max_k(x, 2)
        return x.reshape(-1, 2).sum(0), windows, bits, largest, jax.lax.empty(x.shape, x.dtype)

    exported = export.export(jax.jit(function), platforms=["cpu", "tpu"])(jax.ShapeDtypeStruct(shape, "float32"))
    return exported.call(x)


@program(LINE)
def gathers(x):
    def gather(to):
        return lambda x: jax.lax.all_gather(x, "x", tiled=True, to=to)

    return on_all_devices(gather("varying"), x, P("x")), on_all_devices(gather("invarying"), x, P())


@program(LINE, within=explicit_mesh)
def gathers_whose_gradient_is_reduced(x):
    gather = partial(jax.lax.all_gather, axis_name="x", tiled=True, to="reduced")
    return on_explicit_devices(gather, x)


@program(LINE, within=old_partitioner)
def shardings_for_the_old_partitioner(x):
    halved = jax.lax.with_sharding_constraint(x / 2, NamedSharding(mesh(), P("x")))
    return on_all_devices(lambda x: jax.lax.psum(x, "x"), halved, P())


if hasattr(jax.lax, "psum_scatter_start"):

    @program(np.arange(64, dtype="f4"))
    def collectives_in_two_steps(x):
        from jax._src.lax import parallel

        ring = [(i, (i + 1) % 8) for i in range(8)]
        starts = {
            "gather": lambda x: parallel.all_gather_start(x, "x", tiled=True),
            "sum": lambda x: parallel.psum_start(x, "x"),
            "scatter": lambda x: jax.lax.psum_scatter_start(x, "x", tiled=True),
            "exchange": lambda x: parallel.all_to_all_start(x, "x", 0, 0, tiled=True),
            "ring": lambda x: parallel.ppermute_start(x, "x", ring),
        }
        return {
            name: on_all_devices(lambda x, start=start: start(x).done(), x, P() if name == "sum" else P("x"))
            for name, start in starts.items()
        }

    @program(LINE, within=explicit_mesh)
    def gathers_in_two_steps_whose_gradient_is_reduced(x):
        from jax._src.lax import parallel

        def gather(x):
            return parallel.all_gather_start(x, "x", tiled=True, to="reduced").done()

        return on_explicit_devices(gather, x)
