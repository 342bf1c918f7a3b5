"""JAX through a proxy gives what JAX gives on plain CPU devices."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest

_MODULES = ("scenarios", "memory_scenarios", "chip_scenarios")


def _names():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        for module in _MODULES:
            importlib.import_module(module)
    return list(sys.modules["scenarios"].SCENARIOS)


@pytest.fixture(scope="module")
def run(client, plain_client, tmp_path_factory):
    """Runs a scenario on both sides at the same time."""
    directory = tmp_path_factory.mktemp("results")
    load = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import {", ".join(_MODULES)}
    """
    client.run(load)
    plain_client.run(load)

    def run(name):
        files = [directory / f"{name}-{side}.npz" for side in ("proxy", "plain")]
        snippets = [f"result = scenarios.run({name!r}, {str(file)!r})" for file in files]
        plain_client.start(snippets[1])
        try:
            kinds = client.run(snippets[0])
        finally:
            plain_kinds = plain_client.finish()
        return (kinds, plain_kinds), [list(np.load(file).values()) for file in files]

    return run


@pytest.mark.parametrize("name", _names())
def test_a_program_gives_the_same_as_on_plain_devices(run, name):
    (kinds, plain_kinds), (found, wanted) = run(name)
    assert kinds == plain_kinds
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


def test_programs_have_all_that_is_lowered_for_chips_in_a_way_of_its_own(run, plain_client):
    """Also that of a JAX that is newer than this test."""
    calls, text, known, primitives, asynchronous = plain_client.run("""
        from jax._src.interpreters import mlir
        from pathways_jupyter.local.pathways.ifrt import stablehlo

        primitives = [each.name for each in mlir._platform_specific_lowerings["tpu"]]
        asynchronous = hasattr(jax.lax, "psum_scatter_start")
        result = (*chip_scenarios.lowered_for_chips(), sorted(stablehlo._KNOWN), primitives, asynchronous)
    """)
    if not asynchronous:
        # This JAX has them for its own use, and its proxy client cannot send them.
        known = [each for each in known if not each.endswith(("-start", "-done"))]
        primitives = [each for each in primitives if not each.endswith("_start")]
    assert set(known) <= set(calls)
    # All of these are refused, by JAX or by name.
    refused = {"check", "debug_callback", "debug_print"}
    assert [each for each in primitives if each not in refused and not re.search(rf"\b{each}\b", text)] == []


def test_devices_look_like_the_chips_of_the_slices(client):
    found = client.run("""
        result = [
            (d.platform, d.device_kind, d.slice_index, list(d.coords), d.core_on_chip, d.process_index)
            for d in jax.devices()
        ]
    """)
    squares = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]
    assert found == [["tpu", "TPU v6 lite", index, coords, 0, 0] for index in (0, 1) for coords in squares]


def test_colocated_devices_stand_beside_the_chips(client):
    found = client.run("""
        from jax.experimental import colocated_python
        beside = colocated_python.colocated_cpu_devices(jax.devices())
        result = [(d.platform, d.id, d.slice_index) for d in beside]
    """)
    assert found == [["cpu", 8 + each, each // 4] for each in range(8)]


def test_a_colocated_function_is_refused_where_hosts_have_no_sidecars(client):
    with pytest.raises(Exception, match="FAILED_PRECONDITION: the hosts have no colocated Python sidecars"):
        client.run("""
            import numpy as np
            from jax.experimental import colocated_python

            cpus = colocated_python.colocated_cpu_devices(jax.devices())
            same = colocated_python.colocated_python(lambda x: x)
            result = np.asarray(same(jax.device_put(np.zeros(3, "f4"), cpus[6]))).tolist()
        """)


def test_host_callbacks_are_refused_with_a_way_out(client):
    with pytest.raises(Exception, match=r"UNIMPLEMENTED: host callbacks .* use colocated Python, .* EQX_ON_ERROR=nan"):
        client.run("""
            import numpy as np
            import jax.numpy as jnp
            shape = jax.ShapeDtypeStruct((3,), "float32")
            jax.jit(lambda x: jax.pure_callback(lambda a: np.asarray(a) * 2, shape, x))(jnp.ones(3))
        """)


def test_kernels_for_the_chip_itself_are_refused_with_the_reason(client):
    with pytest.raises(Exception, match=r"UNIMPLEMENTED: .*TPU kernels \(Pallas\)"):
        client.run("""
            import jax.numpy as jnp
            from jax.experimental import pallas as pl
            def double(x, out):
                out[...] = x[...] * 2
            pl.pallas_call(double, out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32))(jnp.ones((8, 128)))
        """)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (
            "shard_map(lambda x: jax.lax.ragged_all_to_all(x, x * 0, *[x.astype(int)] * 4, axis_name='x'),"
            " mesh=mesh, in_specs=P('x'), out_specs=P('x'))",
            "ragged_all_to_all cannot run on this cluster's CPUs",
        ),
        ("jit(lambda x: primitives.unpin(primitives.pin(x)))", r"pinned buffers \(jax\.new_ref with pin=True\)"),
    ],
)
def test_what_only_chips_can_do_is_refused_with_the_reason(client, program, reason):
    with pytest.raises(Exception, match=f"UNIMPLEMENTED: .*{reason}"):
        client.run(f"""
            import numpy as np
            from jax._src.state import primitives
            from jax.sharding import Mesh, PartitionSpec as P
            mesh = Mesh(np.array(jax.devices()[:4]), ("x",))
            jax.jit(jax.{program})(jax.numpy.arange(16.0))
        """)


@pytest.mark.parametrize("function", ["inspect_array_sharding(x, callback=print)", "visualize_array_sharding(x)"])
def test_looking_at_shardings_inside_a_program_is_refused_with_a_way_out(client, function):
    with pytest.raises(Exception, match=r"UNIMPLEMENTED: .*inspect_array_sharding .* look at its \.sharding"):
        client.run(f"""
            import numpy as np
            from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
            split = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P("x"))
            kept = jax.device_put(np.arange(8.0), split)
            jax.jit(lambda x: (jax.debug.{function}, x * 2)[1])(jax.device_put(np.ones((8, 8)), split))
        """)
    assert client.run("result = float(kept.sum())") == 28.0


def test_custom_partitioning_is_refused_with_a_way_out(client):
    with pytest.raises(Exception, match=r"UNIMPLEMENTED: custom_partitioning cannot .* use jax\.shard_map"):
        client.run("""
            import numpy as np
            from jax.experimental.custom_partitioning import custom_partitioning
            from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

            @custom_partitioning
            def double(x):
                return x * 2

            double.def_partition(
                infer_sharding_from_operands=lambda mesh, arguments, result: arguments[0].sharding,
                partition=lambda mesh, arguments, result: (mesh, lambda x: x * 2, result.sharding, ()),
                sharding_rule="i -> i",
            )
            split = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P("x"))
            jax.jit(double)(jax.device_put(np.arange(8.0), split))
        """)


@pytest.mark.parametrize("target", ["lapack_sgetrf_ffi", "SliceToDynamic", "no_such_call"])
def test_custom_calls_that_jax_does_not_make_for_the_chip_are_refused(client, target):
    with pytest.raises(Exception, match=f"UNIMPLEMENTED: the program has a custom call of {target}, which"):
        client.run(f"""
            import jax.numpy as jnp
            results = [jax.ShapeDtypeStruct((256, 256), "float32"), jax.ShapeDtypeStruct((1,), "int32")]
            jax.jit(jax.ffi.ffi_call({target!r}, results))(jnp.eye(256))
        """)
    assert client.run("result = float(jax.numpy.ones(8).sum())") == 8.0


def test_a_program_that_is_rewritten_keeps_its_source_lines_and_names(client):
    text = client.run("""
        import jax.numpy as jnp

        def solve(a):
            with jax.named_scope("after_the_solver"):
                return jnp.tanh(jnp.linalg.solve(a, a))

        result = jax.jit(solve).lower(jnp.eye(4)).compile().as_text()
    """)
    assert re.search(r'op_name="jit\(solve\)/after_the_solver/tanh" .*(source_file="snippet-|stack_frame_id=)', text)


def test_options_of_the_chips_own_compiler_are_left_out(service, client):
    options = [
        "xla_tpu_scoped_vmem_limit_kib",
        "xla_enable_async_all_gather",
        "xla_latency_hiding_scheduler_rerun",
        "xla_llo_no_such_option",
    ]
    found = client.run(f"""
        import jax.numpy as jnp
        options = dict.fromkeys({options}, 1)
        result = float(jax.jit(lambda x: x + 1, compiler_options=options)(jnp.float32(1)))
    """)
    assert found == 2.0
    proxy = service.programs[-1]
    proxy.log.wait("Left out compiler options that only TPUs have: " + ", ".join(sorted(options)))


def test_a_burst_of_small_arrays_arrives_whole(client):
    found = client.run("""
        import numpy as np
        arrays = [jax.device_put(np.full(3, each), jax.devices()[each % 8]) for each in range(5000)]
        result = int(sum(np.asarray(each).sum() for each in arrays[::50])), len(arrays)
        del arrays
    """)
    assert found == [3 * sum(range(0, 5000, 50)), 5000]


@pytest.mark.parametrize("megabytes", [96, pytest.param(512, marks=pytest.mark.soak)])
def test_a_large_array_goes_there_and_back(client, megabytes):
    found = client.run(f"""
        import numpy as np
        sent = np.arange({megabytes} << 18, dtype=np.float32)
        array = jax.device_put(sent, jax.devices()[6])
        result = bool(np.array_equal(np.asarray(array + 0), sent))
        del sent, array
    """)
    assert found is True


def test_a_program_that_fails_to_compile_says_why(client):
    with pytest.raises(Exception, match=r"xla_no_such_flag"):
        client.run("""
            import jax.numpy as jnp
            jax.jit(lambda x: x, compiler_options={"xla_no_such_flag": True})(jnp.ones(3))
        """)
