"""Colocated Python on sidecars: two slices of two hosts, a process and a directory for each host."""

from __future__ import annotations

import pytest

HOSTS = [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.fixture(scope="module")
def service(make_service):
    service = make_service(instance_type="tpuv6e:2x4", slices=2)
    for each in HOSTS:
        service.worker(*each)
    service.sidecars = [service.sidecar(*each) for each in HOSTS]
    service.proxy("proxy", more=["--sidecar_name=external"]).log.wait("All 2 slices are placed")
    return service


@pytest.fixture(scope="module")
def client(service):
    client = service.client("proxy")
    client.run("""
        import os
        import numpy as np
        import jax.numpy as jnp
        from jax.experimental import colocated_python
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

        cpus = colocated_python.colocated_cpu_devices(jax.devices())
        by_device = NamedSharding(Mesh(np.array(cpus), ("x",)), P("x"))

        def on_one_device_a_host():
            return NamedSharding(Mesh(np.array(cpus[::4]), ("x",)), P("x"))
    """)
    return client


def test_each_host_has_its_own_index_process_and_directory(service, client):
    found = client.run("""
        @colocated_python.colocated_python
        def who(x):
            mine = [
                np.array([[jax.process_index(), jax.process_count(), len(jax.local_devices()), os.getpid()]], np.int32)
                for _ in x.addressable_shards
            ]
            arrays = [jax.device_put(each, s.device) for each, s in zip(mine, x.addressable_shards)]
            return jax.make_array_from_single_device_arrays((4, 4), x.sharding, arrays)

        x = jax.device_put(np.zeros((4, 4), np.int32), on_one_device_a_host())
        result = np.asarray(who(x)).tolist(), os.getpid()
    """)
    rows, own_pid = found
    assert [row[:3] for row in rows] == [[each, 4, 4] for each in range(4)]
    assert len({row[3] for row in rows} | {own_pid}) == 5


def test_what_a_function_makes_by_itself_is_on_its_host(client):
    found = client.run("""
        @colocated_python.colocated_python
        def ones(x):
            return jnp.ones(3) * 2

        @colocated_python.colocated_python
        def key(x):
            return jax.random.key_data(jax.random.key(7))

        made = [function(jax.device_put(np.zeros(3, "f4"), cpus[6])) for function in (ones, key)]
        result = [[np.asarray(each).tolist(), [device.id for device in each.devices()]] for each in made]
    """)
    # The first of the four devices of the second host; their numbers follow those of the sixteen chips.
    assert found == [[[2.0, 2.0, 2.0], [20]], [[0, 7], [20]]]


def test_each_host_sees_its_own_shards_and_they_become_one_array_again(client):
    found = client.run("""
        @colocated_python.colocated_python
        def tag(x):
            assert not x.is_fully_addressable
            shards = [
                jax.device_put(s.data * 10 + jax.process_index(), s.device) for s in x.addressable_shards
            ]
            return jax.make_array_from_single_device_arrays(x.shape, x.sharding, shards)

        x = jax.device_put(np.arange(16), by_device)
        tagged = tag(x)
        chips = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P("x"))
        result = np.asarray(tagged).tolist(), np.asarray(jax.device_put(tagged, chips) + 1).tolist()
        assert tagged.sharding == by_device
    """)
    wanted = [10 * each + each // 4 for each in range(16)]
    assert found == [wanted, [each + 1 for each in wanted]]


def test_a_file_lands_in_the_directory_of_the_worker(service, client):
    client.run("""
        @colocated_python.colocated_python
        def write(x):
            with open("my_new_file.txt", "w") as file:
                file.write(f"This is written on TPU worker {jax.process_id()}")
            return x

        jax.block_until_ready(write(jax.device_put(np.zeros(4), on_one_device_a_host())))
    """)
    for number, each in enumerate(HOSTS):
        text = (service.directory(*each) / "my_new_file.txt").read_text()
        assert text == f"This is written on TPU worker {number}"


def test_what_a_function_prints_is_in_the_log_of_its_host(service, client):
    client.run("""
        @colocated_python.colocated_python
        def speak(x):
            print("hello from", jax.process_index())
            return x

        jax.block_until_ready(speak(jax.device_put(np.zeros(4), on_one_device_a_host())))
    """)
    for number, sidecar in enumerate(service.sidecars):
        sidecar.log.wait(f"^hello from {number}$")


def test_arguments_on_chips_are_taken_beside_them(client):
    found = client.run("""
        @colocated_python.colocated_python
        def double(x):
            return x * 2

        result = float(double(jax.device_put(np.float32(21), jax.devices()[5])))
    """)
    assert found == 42.0


def test_a_mesh_of_chips_inside_a_function_is_refused(client):
    with pytest.raises(Exception, match=r"(?s)INVALID_ARGUMENT: colocated_python on host 0: .*Invalid device ID"):
        client.run("""
            chips = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P())

            @colocated_python.colocated_python
            def make_zero():
                return jax.make_array_from_callback((), chips, lambda _: np.array(0))

            jax.block_until_ready(make_zero.specialize(devices=cpus)())
        """)


def test_strings_keys_and_small_floats_travel(client):
    found = client.run("""
        @colocated_python.colocated_python
        def shout(x):
            upper = np.vectorize(lambda text: text.upper(), otypes=[np.dtypes.StringDType()])
            shards = [jax.device_put(upper(np.asarray(s.data)), s.device) for s in x.addressable_shards]
            return jax.make_array_from_single_device_arrays(x.shape, x.sharding, shards)

        words = np.array(["ab", "é", "", "efgh"], dtype=np.dtypes.StringDType())
        shouted = shout(jax.device_put(words, on_one_device_a_host()))

        @colocated_python.colocated_python
        def draw(key, x):
            return jax.random.uniform(key, (3,)), x + x

        key = jax.device_put(jax.random.key(7), cpus[0])
        drawn, doubled = draw(key, jax.device_put(jnp.ones(3, jnp.bfloat16), cpus[0]))
        same = np.array_equal(np.asarray(drawn), np.asarray(jax.random.uniform(jax.random.key(7), (3,))))
        result = np.asarray(shouted).tolist(), bool(same), str(doubled.dtype), float(doubled[0])
    """)
    assert found == [["AB", "É", "", "EFGH"], True, "bfloat16", 2.0]


def test_sixty_four_bits_stay_sixty_four_bits(client):
    found = client.run("""
        with jax.enable_x64(True):
            @colocated_python.colocated_python
            def same(x):
                return x

            big = same(jax.device_put(np.array([2**40 + 1]), cpus[0]))
            result = np.asarray(big).tolist(), str(big.dtype)
    """)
    assert found == [[2**40 + 1], "int64"]


def test_objects_keep_their_state_and_go_when_the_client_lets_go(client):
    found = client.run("""
        @colocated_python.colocated_python_class
        class Counter:
            def __init__(self, start):
                self.value = start
                colocated_python.alive = True

            def __del__(self):
                colocated_python.alive = False

            def add(self, x):
                self.value += int(np.asarray(x)[0])
                return jax.device_put(np.array([self.value], np.int32), x.sharding)

        @colocated_python.colocated_python
        def alive(x):
            return jax.device_put(np.array([colocated_python.alive]), x.sharding)

        one = jax.device_put(np.ones(1, np.int32), cpus[0])
        counter = Counter(10)
        values = [int(counter.add(one)[0]) for _ in range(3)]
        before = bool(alive(one)[0])
        del counter
        result = values, before, bool(alive(one)[0])
    """)
    assert found == [[11, 12, 13], True, False]


def test_an_exception_carries_the_host_and_the_remote_traceback(client):
    with pytest.raises(Exception, match=r"(?s)INTERNAL: colocated_python on host 2: .*in fail_here.*boom from 2"):
        client.run("""
            @colocated_python.colocated_python
            def fail_here(x):
                if jax.process_index() == 2:
                    raise ValueError(f"boom from {jax.process_index()}")
                return x

            fail_here = fail_here.specialize(out_specs_fn=lambda x: x)
            jax.block_until_ready(fail_here(jax.device_put(np.zeros(4), on_one_device_a_host())))
        """)


def test_a_crash_ends_that_call_and_the_next_one_finds_a_new_process(service, client):
    client.run("""
        @colocated_python.colocated_python
        def crash(x):
            import ctypes

            ctypes.string_at(0)  # A signal sent to the process would let this thread go on for a moment.
            return x

        @colocated_python.colocated_python
        def add_one(x):
            return x + 1

        here, elsewhere = (jax.device_put(np.zeros(1), cpus[each]) for each in (4, 12))
        crash, add_one = (each.specialize(out_specs_fn=lambda x: x) for each in (crash, add_one))
        jax.block_until_ready([add_one(here), add_one(elsewhere)])
    """)
    with pytest.raises(Exception, match=r"UNAVAILABLE: the sidecar of host 1 is gone: its process ended"):
        client.run("jax.block_until_ready(crash(here))")
    service.sidecars[1].log.wait("ended by SIGSEGV")
    assert client.run("result = float(add_one(elsewhere)[0]), float(add_one(here)[0])") == [1.0, 1.0]


def test_a_sidecar_that_is_killed_is_found_again_when_it_is_back(service, client):
    client.run("""
        @colocated_python.colocated_python
        def nap(x):
            import time
            time.sleep(600)
            return x

        nap = nap.specialize(out_specs_fn=lambda x: x)
    """)
    client.start("jax.block_until_ready(nap(jax.device_put(np.zeros(1), cpus[12])))")
    service.sidecars[3].kill()
    with pytest.raises(Exception, match="UNAVAILABLE: the sidecar of host 3"):
        client.finish()
    service.sidecars[3] = service.sidecar(1, 1)
    assert client.run("result = float(add_one(elsewhere)[0])") == 1.0


def test_a_function_that_cannot_be_loaded_again_is_refused_as_it_would_have_been_at_first(service, client, tmp_path):
    client.run(f"""
        from pathlib import Path

        needed = Path({str(tmp_path / "needed")!r})
        needed.touch()

        class Needs:
            def __reduce__(self):
                return Path.read_text, (needed,)

        needs = Needs()

        @colocated_python.colocated_python
        def use(x):
            needs
            return x

        use = use.specialize(out_specs_fn=lambda x: x)
        here = jax.device_put(np.zeros(1), cpus[4])
        jax.block_until_ready(use(here))
        needed.unlink()
    """)
    service.sidecars[1].kill()
    service.sidecars[1] = service.sidecar(0, 1)
    with pytest.raises(Exception, match=r"(?s)INVALID_ARGUMENT: colocated_python on host 1: .*FileNotFoundError"):
        client.run("jax.block_until_ready(use(here))")


def test_two_calls_on_different_hosts_run_side_by_side(client):
    found = client.run("""
        import socket

        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]

        @colocated_python.colocated_python
        def meet(x):
            import socket
            with socket.create_connection(("127.0.0.1", port)) as peer:
                peer.recv(1)
            return x

        meet = meet.specialize(out_specs_fn=lambda x: x)
        first, second = (meet(jax.device_put(np.zeros(1), cpus[each])) for each in (0, 8))
        peers = [listener.accept()[0] for _ in range(2)]
        computed = float(jnp.ones(3).sum())
        for peer in peers:
            peer.close()
        jax.block_until_ready([first, second])
        listener.close()
        result = computed
    """)
    assert found == 3.0


def test_the_processes_of_a_proxy_end_with_it(service):
    import psutil

    sidecar = psutil.Process(service.sidecars[0].process.pid)
    (child,) = sidecar.children()
    proxy = next(each for each in service.programs if "All 2 slices are placed" in str(each.log))
    proxy.kill()
    child.wait(60)
    assert sidecar.is_running()
