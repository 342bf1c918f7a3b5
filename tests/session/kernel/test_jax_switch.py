"""The switch of a kernel's JAX, against a proxy of the embedded cluster."""

from __future__ import annotations

import ast
import os
import socket
import textwrap
from pathlib import Path

import pytest
import scripts

from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.session.kernel import interrupted_calls, jax_internals, jax_switch
from pathways_jupyter.session.kernel.jax_switch import INSECURE_CREDENTIALS, JaxSwitch
from pathways_jupyter.session.kernel.user_arrays import NamedArray, all_of, described

DEADLINE = 60.0


@pytest.fixture
def target(hold) -> str:
    """The tunnel of a session that another process, so to speak, has made."""
    link = hold(2)
    answer = link.answer(link.ask("status"), patience=DEADLINE)
    return f"grpc://unix:{answer['tunnel']}"


def snapshot() -> tuple:
    import jax
    from jax._src import xla_bridge

    return (
        dict(os.environ),
        jax.config.jax_platforms,
        jax.config.read("jax_backend_target"),
        {name: id(registration) for name, registration in xla_bridge._backend_factories.items()},
        {name: id(each) for name, each in xla_bridge._backends.items()},
        id(xla_bridge._default_backend),
    )


def test_switching_back_restores_what_was_found_to_the_very_same_objects(target):
    import jax

    jax.devices()
    before = snapshot()
    switch = JaxSwitch()
    switch.activate(target)
    assert switch.active
    assert jax.default_backend() == "tpu"
    assert {index: len(devices) for index, devices in switch.slices().items()} == {0: 4, 1: 4}
    assert dict(os.environ) == before[0]
    assert switch.deactivate().unusable == ()
    assert snapshot() == before
    assert not switch.active
    assert switch.deactivate().unusable == ()


@pytest.mark.thorough
def test_a_jax_that_was_not_used_yet_is_left_so(target):
    code = f"""
        import jax
        from jax._src import xla_bridge
        from pathways_jupyter.session.kernel.jax_switch import JaxSwitch
        switch = JaxSwitch()
        switch.activate({target!r})
        assert len(jax.devices()) == 8 and len(jax.devices("cpu")) == 1
        assert jax.numpy.arange(8.0).sum() == 28
        switch.deactivate()
        assert not xla_bridge.backends_are_initialized()
        assert jax.devices()[0].platform == "cpu"
        print("done")
    """
    done = scripts.run(textwrap.dedent(code))
    assert done.stdout.strip() == "done", done.stderr


@pytest.mark.thorough
def test_arrays_of_the_processor_stay_usable_beside_the_proxy_and_after_it(target):
    import jax
    import numpy as np

    cpu = jax.devices("cpu")
    placed = jax.device_put(np.arange(4.0), cpu[0])
    loose = jax.numpy.arange(4.0)
    switch = JaxSwitch()
    switched = switch.activate(target, namespace={"placed": placed, "loose": loose, "number": 3})
    try:
        assert [(each.name, each.shape, each.nbytes) for each in switched.left] == [("loose", (4,), 16)]
        assert switched.unusable == ()
        assert jax.devices("cpu") == cpu
        assert (placed + placed).sum() == 12
        moved = jax.device_put(loose, jax.devices()[0])
        assert (moved + 1).sum() == 10
        back = jax.device_put(moved, cpu[0])
    finally:
        switch.deactivate()
    assert (back + placed).sum() == 12
    assert (loose + 1).sum() == 10


@pytest.mark.thorough
def test_arrays_that_become_unusable_are_named_wherever_they_are(target):
    import jax
    import jax.numpy as jnp
    import numpy as np

    switch = JaxSwitch()
    switch.activate(target)
    deleted = jnp.ones(2)
    deleted.delete()
    variables = {
        "x": jnp.ones((2, 3), jnp.bfloat16),
        "tree": {"layers": [jnp.ones(4), 1], "key": jax.random.key(0)},
        "cpu": jax.device_put(1.0, jax.devices("cpu")[0]),
        "deleted": deleted,
        "text": "x",
        "module": jax,
    }
    # Counted once: a second variable, and shards that JAX keeps once they were seen, are the same array.
    variables["same"] = variables["x"]
    devices = jax.sharding.Mesh(np.array(jax.devices()), "x")
    rows = jax.sharding.NamedSharding(devices, jax.sharding.PartitionSpec("x"))
    variables["rows"] = jax.device_put(np.ones(8, np.int8), rows)
    assert len(variables["rows"].addressable_shards) == 8
    hidden = [jnp.ones((5,))]
    assert switch.count_arrays() == {"count": 5, "bytes": 12 + 16 + 8 + 8 + 20}
    lost = switch.deactivate(variables).unusable
    assert hidden[0].is_deleted()
    assert sum(each.nbytes for each in lost) == 64
    assert sorted(str(each) for each in lost) == [
        "hidden[0]: float32[5]",
        "rows: int8[8]",
        "tree['key']: key<fry>[]",
        "tree['layers'][0]: float32[4]",
        "x: bfloat16[2,3]",
    ]


@pytest.mark.thorough
def test_clearing_jax_by_hand_meanwhile_finds_the_proxy_again(target):
    import jax

    switch = JaxSwitch()
    switch.activate(target)
    try:
        old = jax.numpy.arange(4.0)
        assert not switch.elsewhere
        jax.extend.backend.clear_backends()
        assert not switch.elsewhere
        assert INSECURE_CREDENTIALS not in os.environ
        assert len(jax.devices()) == 8
        assert jax.numpy.ones(3).sum() == 3
        # The new client numbers its arrays from 1 again: an old one would stand for another.
        with pytest.raises(RuntimeError, match="deleted"):
            _ = old + 1
        (lost,) = [each for each in switch.take_cleared() if each.shape == (4,)]
        assert (lost.dtype, lost.nbytes) == ("float32", 16)
        assert not switch.take_cleared()
        assert switch.slices()[0] == tuple(jax.devices()[:4])
        assert switch.count_arrays()["count"] <= 1
    finally:
        switch.deactivate()
    assert jax.devices()[0].platform == "cpu"


@pytest.mark.thorough
def test_it_knows_where_jax_computes(target):
    import jax

    switch = JaxSwitch()
    assert not switch.elsewhere
    switch.activate(target)
    try:
        (cpu, *_) = jax.devices("cpu")
        for chosen, expected in ((cpu, "cpu"), ("cpu", "cpu"), (jax.devices()[3], ""), (None, "")):
            with jax.default_device(chosen):
                assert switch.elsewhere == expected, chosen
        jax.config.update("jax_platforms", "cpu")
        assert not switch.elsewhere
        jax.extend.backend.clear_backends()
        assert switch.elsewhere == "cpu"
        assert jax.numpy.ones(3).sum() == 3
        assert switch.elsewhere == "cpu"
    finally:
        switch.deactivate()
    assert not switch.elsewhere


@pytest.mark.parametrize("listens", [True, False])
def test_a_proxy_that_does_not_answer_changes_nothing(tmp_path, listens):
    import jax

    jax.devices()
    before = snapshot()
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(path))
        if listens:
            mute.listen()
        with pytest.raises(SessionError, match="could not connect to the proxy"):
            JaxSwitch().activate(f"grpc://unix:{path}", timeout=1.0)
    assert snapshot() == before


def test_a_jax_with_another_inside_is_refused_before_anything_changes(monkeypatch):
    import jax

    jax.devices()
    before = snapshot()
    names = {**jax_internals._NAMES, "dispatch": ("runtime_tokens", "_moved_elsewhere")}
    monkeypatch.setattr(jax_internals, "_NAMES", names)
    jax_internals.load.cache_clear()
    with pytest.raises(SessionError, match=r"it has no jax\._src\.dispatch\._moved_elsewhere\."):
        JaxSwitch().activate("grpc://unix:/nowhere")
    assert snapshot() == before


def test_the_names_that_are_checked_are_those_that_the_sources_touch():
    """Nothing of JAX's inside is reached but through the one module that checks it, and only by names it lists."""
    package = Path(jax_internals.__file__).parent
    colocated = package.parents[1] / "colocated"
    touched = set()
    for path in (*package.glob("*.py"), *colocated.glob("*.py")):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.Import, ast.ImportFrom)) and path.name != "jax_internals.py":
                assert "jax._src" not in ast.unparse(node), path
                assert "jaxlib" not in ast.unparse(node), path
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) in {"bridge", "internals.bridge"}:
                touched.add(node.attr)
    assert touched == set(jax_internals._NAMES["bridge"])


def test_a_jax_without_the_order_of_calls_is_said_after_an_interrupt(monkeypatch):
    import jax
    import jax.experimental.colocated_python

    def fail(_):
        raise KeyboardInterrupt

    monkeypatch.setitem(jax_internals._NAMES, "streams", ("_moved_elsewhere",))
    jax_internals.load.cache_clear()
    with pytest.raises(KeyboardInterrupt) as caught:
        jax.tree.map(fail, 1)
    assert "_moved_elsewhere" in interrupted_calls.leave_behind(caught.value)


def test_an_array_that_nothing_with_a_name_holds_is_counted():
    import jax

    class Model:
        pass

    model, x = Model(), jax.numpy.ones(2)
    model.w = jax.numpy.ones(3)
    only_iterator = iter((jax.numpy.ones(4),))
    found = all_of(x.device.client, {"model": model, "x": x})
    assert {str(each) for each in found} >= {"model.w: float32[3]", "x: float32[2]", "only_iterator[0]: float32[4]"}
    nameless = NamedArray("", (5,), "float32", 20)
    assert described([nameless]) == "1 array that no variable holds"
    del only_iterator


@pytest.mark.parametrize("secure", [True, False])
def test_plaintext_is_allowed_only_where_it_is_meant(monkeypatch, secure):
    monkeypatch.setenv(INSECURE_CREDENTIALS, "set by the user")
    with jax_switch._credentials(secure=secure):
        assert os.environ.get(INSECURE_CREDENTIALS) == (None if secure else "true")
    assert os.environ[INSECURE_CREDENTIALS] == "set by the user"
