from __future__ import annotations

import sys
import weakref

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from waits import wait_until

from pathways_jupyter import colocated
from pathways_jupyter.colocated.errors import ColocatedError, HostError

pytestmark = pytest.mark.usefixtures("connection")


def test_each_host_loads_its_part_of_a_batch(mesh) -> None:
    sharding = NamedSharding(mesh, P("x"))

    def load(host, count):
        for step in range(3):
            rows = np.arange(4) + 4 * host
            yield {"x": (100 * step + rows).astype(np.float32)[:, None], "host": np.full(4, jax.process_index())}

    batches = list(colocated.iterator(load, sharding=sharding))
    assert len(batches) == 3
    for step, batch in enumerate(batches):
        assert batch["x"].sharding == sharding
        np.testing.assert_array_equal(batch["x"][:, 0], 100 * step + np.arange(16))
        np.testing.assert_array_equal(batch["host"], np.repeat(np.arange(4), 4))


def test_batches_may_be_cut_over_some_of_the_axes_only(connection) -> None:
    devices = np.array(connection.devices()).reshape(2, 8)
    mesh = jax.sharding.Mesh(devices, ("data", "model"))
    sharding = NamedSharding(mesh, P("data"))

    def load(host, count):
        # Both hosts of a slice hold the whole of its part.
        yield np.full((2, 3), host // 2)

    (batch,) = colocated.iterator(load, sharding=sharding)
    np.testing.assert_array_equal(batch[:, 0], [0, 0, 1, 1])


def test_a_smaller_last_batch_is_left_out(mesh) -> None:
    def load(host, count):
        yield np.zeros((4, 2))
        yield np.zeros((3, 2))

    assert len(list(colocated.iterator(load, sharding=NamedSharding(mesh, P("x"))))) == 1


def test_the_shortest_hosts_end_is_the_end(mesh) -> None:
    def load(host, count):
        for _ in range(2 + host):
            yield np.zeros(4)

    assert len(list(colocated.iterator(load, sharding=NamedSharding(mesh, P("x"))))) == 2


def test_an_error_while_loading_names_host_and_line(mesh) -> None:
    def load(host, count):
        yield np.zeros(4)
        if host == 1:
            raise OSError("the disk is gone")
        yield np.zeros(4)

    batches = colocated.iterator(load, sharding=NamedSharding(mesh, P("x")))
    next(batches)
    with pytest.raises(HostError, match=r"host 1.*OSError: the disk is gone"):
        next(batches)
    # A loop that catches it must not take it for the end of the data.
    with pytest.raises(ColocatedError, match=r"ended with an error: .*the disk is gone"):
        next(batches)


ZEROS = """
import jax, numpy as np
from pathways_jupyter import colocated

def zeros(host, count):
    while True:
        yield np.zeros(4)

on = jax.NamedSharding(jax.sharding.Mesh(jax.devices(), "x"), jax.P("x"))
batches = colocated.iterator(zeros, sharding=on)
next(batches)
"""


@pytest.fixture
def program(connection):
    """The variables of a program that has read a batch, where a suspend looks for them."""
    names = vars(sys.modules["__main__"])
    exec(ZEROS, names)
    yield names
    del names["batches"]


@pytest.mark.parametrize("with_suspend", [False, True])
def test_an_iterator_ends_with_its_proxy_and_says_so(with_suspend, program, connection) -> None:
    if with_suspend:
        named = "what batches has on hosts"
        # Looking at objects changes how Python keeps their attributes.
        for _ in range(2):
            assert connection.suspension().unkept == [named]
        connection.suspend(yes=[named])
        with pytest.raises(ColocatedError, match="suspended"):
            next(program["batches"])
        connection.resume()
    else:
        connection.reconnect()
    # It has nothing there any more.
    assert connection.suspension().unkept == []
    for _ in range(2):
        with pytest.raises(ColocatedError, match="another proxy than when it was made") as said:
            next(program["batches"])
        assert "Make it again" in said.value.hint


def test_an_object_on_hosts_ends_with_its_proxy_too(program, connection) -> None:
    del program["batches"]
    code = "@colocated.class_\nclass Counter:\n    def add(self):\n        return 1\nbatches = Counter()\nbatches.add()"
    exec(code, program)
    assert connection.suspension().unkept == ["what batches has on hosts"]


def test_an_iterator_that_nothing_holds_is_gone_here_and_on_hosts(program, connection) -> None:
    gone = weakref.ref(program["batches"])
    program["batches"] = None
    assert gone() is None
    assert connection.suspension().unkept == []


def test_a_batch_that_jax_cannot_hold_is_refused(mesh) -> None:
    def load(host, count):
        yield np.full(4, 7)
        yield np.full(4, 2**40 if host == 1 else 7)

    batches = iter(colocated.iterator(load, sharding=NamedSharding(mesh, P("x"))))
    np.testing.assert_array_equal(next(batches), [7] * 16)
    with pytest.raises(HostError, match=r"host 1.*values of int64 that int32 cannot hold"):
        next(batches)


def test_an_iterator_that_cannot_be_used_ends_on_the_hosts(mesh) -> None:
    def load(host, count):
        import sys

        try:
            while True:
                yield np.zeros(4 * (1 + host))
        finally:
            sys._test_loads_ended = getattr(sys, "_test_loads_ended", 0) + 1

    @colocated.function
    def ended():
        import sys

        return getattr(sys, "_test_loads_ended", 0)

    with pytest.raises(ColocatedError, match=r"different shapes: host 0: float64\[4\]; host 1: float64\[8\]"):
        colocated.iterator(load, sharding=NamedSharding(mesh, P("x")))
    wait_until(lambda: ended.on_each() == {0: 1, 1: 1, 2: 1, 3: 1}, 60)


def test_a_training_loop_runs_on_what_hosts_load(mesh) -> None:
    sharding = NamedSharding(mesh, P("x"))

    def load(host, count):
        rng = np.random.default_rng(host)
        for _ in range(20):
            x = rng.normal(size=(8, 3)).astype(np.float32)
            yield {"x": x, "y": x @ np.array([1.0, -2.0, 0.5], np.float32)}

    @jax.jit
    def step(w, batch):
        loss, grad = jax.value_and_grad(lambda w: ((batch["x"] @ w - batch["y"]) ** 2).mean())(w)
        return w - 0.3 * grad, loss

    w = jax.device_put(np.zeros(3, np.float32), NamedSharding(mesh, P()))
    losses = []
    for batch in colocated.iterator(load, sharding=sharding):
        w, loss = step(w, batch)
        losses.append(float(loss))
    assert len(losses) == 20
    np.testing.assert_allclose(w, [1.0, -2.0, 0.5], atol=0.05)
