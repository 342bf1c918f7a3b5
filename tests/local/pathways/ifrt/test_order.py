"""One slow request never holds up another, and yet everything happens in the order that a client may rely on."""

from __future__ import annotations

import os

import numpy as np
import pytest

ONE, TWO = np.float32([1, 2, 3]), np.float32([4, 5, 6])


def test_an_array_that_waits_for_its_bytes_does_not_hold_up_others(raw):
    session = raw()
    waiting, buffer = session.make_array(ONE, store=False)
    check = session.send("check_value_ready", value_handles=[waiting])
    other, _ = session.make_array(TWO)
    np.testing.assert_array_equal(session.read(other, np.float32), TWO)
    assert not session.answered(check)
    session.store(buffer, ONE.tobytes())
    assert session.answer(check).response_metadata.status.code == 0
    np.testing.assert_array_equal(session.read(waiting, np.float32), ONE)


def test_what_was_asked_of_an_array_before_it_was_deleted_still_happens(raw):
    session = raw()
    waiting, buffer = session.make_array(ONE, store=False)
    copied = session.handle()
    session.call("copy_arrays", array_handles=[waiting], device_ids=[3], copy_semantics=1, result_handles=[copied])
    session.call("delete_array", array_handle=[waiting])
    session.call("destruct_array", array_handle=[waiting])
    session.store(buffer, ONE.tobytes())
    np.testing.assert_array_equal(session.read(copied, np.float32), ONE)


def test_a_long_chain_behind_one_missing_buffer_runs_through(raw):
    session = raw()
    array, buffer = session.make_array(ONE, store=False)
    for device in range(2000):
        copied = session.handle()
        session.send(
            "copy_arrays", array_handles=[array], device_ids=[device % 8], copy_semantics=2, result_handles=[copied]
        )
        array = copied
    session.store(buffer, ONE.tobytes())
    np.testing.assert_array_equal(session.read(array, np.float32), ONE)


def test_a_consumed_array_is_read_in_the_order_of_the_requests(raw):
    session = raw()
    array, _ = session.make_array(ONE)
    waiting, buffer = session.make_array(ONE, store=False)
    joined, moved = session.handle(), session.handle()
    from_both = session.send(
        "remap_arrays",
        lambda message: _swap(message, [array, waiting], joined),
    )
    session.call("copy_arrays", array_handles=[array], device_ids=[5], copy_semantics=3, result_handles=[moved])
    assert session.call("is_array_deleted", array_handle=array).deleted
    session.store(buffer, TWO.tobytes())
    assert session.answer(from_both).response_metadata.status.code == 0
    np.testing.assert_array_equal(session.read(joined, np.float32), ONE)
    np.testing.assert_array_equal(session.read(moved, np.float32), ONE)


def _swap(message, sources, result) -> None:
    """One output that is the first of two inputs."""
    from pathways_jupyter.local.pathways.ifrt import messages

    message.array_handles.extend(sources)
    message.result_handles.append(result)
    spec = message.plan.output_specs.add()
    spec.dtype.kind = 11
    spec.shape.dims.append(3)
    spec.sharding.serialized_sharding.type_name = "xla::ifrt::SingleDeviceSharding"
    spec.sharding.serialized_sharding.data = messages.SingleDeviceSharding(device_id=0).SerializeToString()
    message.plan.mappings.add(
        in_array=0, out_array=0, from_start=[0], from_end=[1], from_step=[1], to_start=[0], to_end=[1], to_step=[1]
    )


@pytest.fixture
def gate(tmp_path):
    """A pipe on which a function far away waits until the test writes to it."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def test_a_slow_colocated_call_does_not_hold_up_anything(client_with_sidecars, gate):
    client_with_sidecars.run(f"""
        import numpy as np
        import jax.numpy as jnp
        from jax.experimental import colocated_python

        cpus = colocated_python.colocated_cpu_devices(jax.devices())

        @colocated_python.colocated_python
        def wait(x):
            open({str(gate)!r}).read()
            return x

        wait = wait.specialize(out_specs_fn=lambda x: x)
        slow = wait(jax.device_put(np.arange(3), cpus[0]))
        result = None
    """)
    found = client_with_sidecars.run("""
        beside = float(jax.jit(jnp.sum)(jax.device_put(np.ones(4), jax.devices()[0])))
        on_the_same_host = np.asarray(jax.device_put(np.arange(2), cpus[0])).tolist()
        result = beside, on_the_same_host, slow.is_ready()
    """)
    assert found == [4.0, [0, 1], False]
    client_with_sidecars.start("result = np.asarray(slow).tolist()")
    gate.write_text("go")
    assert client_with_sidecars.finish() == [0, 1, 2]


def test_a_full_device_does_not_hold_up_another(client):
    found = client.run("""
        import numpy as np
        import jax.numpy as jnp

        long = jax.jit(lambda x: jax.lax.fori_loop(0, 200, lambda i, x: x @ x * 0.001, x))
        busy, free = jax.devices()[0], jax.devices()[5]
        start = jax.device_put(np.ones((192, 192), "f4"), busy)
        long(start).block_until_ready()
        tiny = jax.jit(lambda x: x + 1)
        on_free = tiny(jax.device_put(np.float32(1), free)).block_until_ready()
        # This process may stand still while the device computes: one attempt that overtakes is enough.
        for _ in range(5):
            queued = [long(start) for _ in range(48)]
            result = float(tiny(on_free)), queued[-1].is_ready()
            jax.block_until_ready(queued)
            if not result[1]:
                break
    """)
    assert found == [3.0, False]


def test_a_long_compilation_does_not_hold_up_anything(client):
    found = client.run("""
        import threading
        import jax.numpy as jnp

        def many(x, attempt):
            for each in range(100):
                x = jnp.sin(x) * each + x @ x
            return x + attempt

        tiny = jax.jit(lambda x: x + 1)
        one = tiny(jnp.zeros(())).block_until_ready()
        # This process may stand still while another compiles: one attempt that overtakes is enough.
        for attempt in range(5):
            lowered = jax.jit(many, static_argnums=1).lower(jnp.ones((16, 16)), attempt)
            compiling = threading.Thread(target=lowered.compile)
            compiling.start()
            result = float(tiny(one)), compiling.is_alive()
            compiling.join()
            if result[1]:
                break
    """)
    assert found == [2.0, True]


def test_colocated_calls_of_one_thread_keep_their_order_and_those_of_several_do_not_wait(client_with_sidecars):
    found = client_with_sidecars.run("""
        import threading
        import numpy as np
        from jax.experimental import colocated_python

        cpus = colocated_python.colocated_cpu_devices(jax.devices())
        x = jax.device_put(np.array(1), cpus[0])

        @colocated_python.colocated_python
        def begin(x):
            import time
            time.sleep(0.05)
            colocated_python.seen = ["begin"]
            colocated_python.barrier = threading.Barrier(3)
            return x

        @colocated_python.colocated_python
        def go_on(x):
            colocated_python.seen.append("go on")
            return x

        @colocated_python.colocated_python
        def meet(x):
            colocated_python.barrier.wait(timeout=30)
            return x + len(colocated_python.seen)

        begin, go_on, meet = (each.specialize(out_specs_fn=lambda x: x) for each in (begin, go_on, meet))
        begin(x)
        jax.block_until_ready(go_on(x))
        met = []
        threads = [threading.Thread(target=lambda: met.append(int(meet(x)))) for _ in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        result = met
    """)
    assert found == [3, 3, 3]
