"""Arrays and programs when the worker of a slice dies, and when another comes."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def lost(make_service):
    """A client with arrays on both slices, after the worker of slice 1 has died."""
    service = make_service()
    service.worker(0)
    doomed = service.worker(1)
    proxy = service.proxy("proxy")
    proxy.log.wait("All 2 slices are placed")
    client = service.client("proxy")
    client.run("""
        import numpy as np
        import jax.numpy as jnp
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

        both, first, second = (
            NamedSharding(Mesh(np.array(devices), ("x",)), P("x"))
            for devices in (jax.devices(), jax.devices()[:4], jax.devices()[4:])
        )
        double = jax.jit(lambda x: x * 2 + 1)
        on_both, on_first, on_second = (
            jax.device_put(np.arange(16, dtype="f4"), each) for each in (both, first, second)
        )
        result_before = double(on_both).block_until_ready()
        jax.block_until_ready([double(on_first), double(on_second)])

        def error_of(function):
            try:
                jax.block_until_ready(function())
            except jax.errors.JaxRuntimeError as error:
                return str(error)
            return "no error"
    """)
    doomed.kill()
    proxy.log.wait("Slice 1 is down: [1-9][0-9]* arrays are lost")
    return service, proxy, client


def test_the_errors_of_a_dead_slice_are_what_elastic_training_looks_for(lost):
    client = lost[2]
    for what in ("np.asarray(result_before)", "np.asarray(on_second)", "double(on_both)", "double(on_second)"):
        found = client.run(f"result = error_of(lambda: {what})")
        assert found.startswith("DATA_LOSS: slice down"), what


def test_starting_a_program_on_a_dead_slice_raises_nothing_until_it_is_waited_for(lost):
    found = lost[2].run("""
        fresh = jax.device_put(np.ones(16, "f4"), second)
        started = jax.jit(lambda x: x - 3)(fresh)
        result = error_of(lambda: started)
    """)
    assert found.startswith("DATA_LOSS")


def test_programs_and_arrays_on_the_other_slice_go_on(lost):
    found = lost[2].run("""
        kept = np.asarray(double(on_first)).tolist()
        fresh = float(jnp.sum(jax.device_put(np.ones(8, "f4"), first)))
        result = kept, fresh
    """)
    assert found == [[2.0 * each + 1 for each in range(16)], 8.0]


def test_a_new_worker_heals_the_slice_and_lost_data_stays_lost(lost):
    service, proxy, client = lost
    service.worker(1)
    line = proxy.log.wait("placed -> unplaced")
    proxy.log.wait("slice 1 .* unplaced -> placed", after=line)
    found = client.run("""
        again = jax.device_put(np.arange(16, dtype="f4"), both)
        result = np.asarray(double(again)).tolist(), error_of(lambda: np.asarray(on_second))
    """)
    assert found[0] == [2.0 * each + 1 for each in range(16)]
    assert found[1].startswith("DATA_LOSS")


def test_a_wait_for_a_slice_that_dies_fails_at_once(make_service, tmp_path):
    service = make_service()
    service.worker(0)
    doomed = service.worker(1)
    service.sidecar(1)
    proxy = service.proxy("proxy", more=["--sidecar_name=external"])
    proxy.log.wait("All 2 slices are placed")
    client = service.client("proxy")
    gate = tmp_path / "never"
    client.run(f"""
        import os
        import numpy as np
        from jax.experimental import colocated_python

        os.mkfifo({str(gate)!r})

        @colocated_python.colocated_python
        def wait(x):
            open({str(gate)!r}).read()
            return x

        wait = wait.specialize(out_specs_fn=lambda x: x)
        cpus = colocated_python.colocated_cpu_devices(jax.devices())
        hanging = wait(jax.device_put(np.arange(3), cpus[6]))
    """)
    client.start("hanging.block_until_ready()")
    doomed.kill()
    with pytest.raises(Exception, match="DATA_LOSS"):
        client.finish()


def test_functions_on_the_hosts_of_a_slice_that_is_down_fail_as_everything_else_there(make_service, tmp_path):
    service = make_service()
    service.worker(0)
    doomed = service.worker(1)
    sidecars = [service.sidecar(each) for each in range(2)]
    proxy = service.proxy("proxy", more=["--sidecar_name=external"])
    proxy.log.wait("All 2 slices are placed")
    client = service.client("proxy")
    gate = tmp_path / "never"
    client.run(f"""
        import os
        import numpy as np
        from jax.experimental import colocated_python

        os.mkfifo({str(gate)!r})
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

        cpus = colocated_python.colocated_cpu_devices(jax.devices())
        both = NamedSharding(Mesh(np.array([cpus[0], cpus[4]]), ("x",)), P("x"))

        @colocated_python.colocated_python
        def wait(x):
            if jax.process_index() == 1:
                print("begun")
                open({str(gate)!r}).read()
            return x.addressable_shards[0].data

        # The slice that stays has all of the result.
        result_on = SingleDeviceSharding(cpus[0])
        wait = wait.specialize(out_specs_fn=lambda x: jax.ShapeDtypeStruct((1,), x.dtype, sharding=result_on))
        hanging = wait(jax.device_put(np.arange(2), both))
    """)
    client.start("hanging.block_until_ready()")
    sidecars[1].log.wait("begun")
    doomed.kill()
    with pytest.raises(Exception, match="DATA_LOSS: slice down: the worker of slice 1 is gone"):
        client.finish()
    with pytest.raises(Exception, match="DATA_LOSS: slice down: the worker of slice 1 is gone"):
        client.run("""
            @colocated_python.colocated_python
            def ones():
                return jax.numpy.ones(3)

            ones.specialize(devices=[cpus[4]])().block_until_ready()
        """)
    service.worker(1)
    proxy.log.wait("slice 1 .* unplaced -> placed", after=proxy.log.wait("placed -> unplaced"))
    assert client.run("result = np.asarray(ones.specialize(devices=[cpus[4]])()).tolist()") == [1.0, 1.0, 1.0]
