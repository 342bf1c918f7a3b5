"""Programs whose arrays and devices are held elsewhere than in variables: they go on after a suspend, or are named."""

from __future__ import annotations

import ctypes
import dataclasses
import re
import threading
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from small_training import Data, check, first_state, step

from pathways_jupyter import elastic
from pathways_jupyter.saved.heap import LOCALS_CAN_BE_SET
from pathways_jupyter.saved.values import UnsavableError


class Config:
    """As programs keep their constants."""


@dataclasses.dataclass(frozen=True)
class Step:
    function: object
    mesh: jax.sharding.Mesh


def sharded(session):
    mesh = jax.sharding.Mesh(np.array(session.devices()), "d")
    return mesh, NamedSharding(mesh, P("d"))


def suspended_and_resumed(session):
    kept = session.suspend()
    session.resume()
    return kept


@pytest.mark.thorough
def test_jitted_functions_with_shardings_work_after_resume_and_reconnect(session):
    mesh, sharding = sharded(session)
    into = jax.jit(lambda x: x + 1, in_shardings=sharding)
    out = jax.jit(lambda x: x * 2, out_shardings=sharding)
    both = Step(jax.jit(lambda x: x - 1, in_shardings=sharding, out_shardings=sharding), mesh)
    functions = [into, out, both.function]
    data = np.arange(16, dtype=np.float32)
    del mesh, sharding
    expected = [np.asarray(each(data)).tolist() for each in functions]
    for again in (suspended_and_resumed, lambda session: session.reconnect(), suspended_and_resumed):
        again(session)
        found = [each(data) for each in functions]
        assert [np.asarray(each).tolist() for each in found] == expected
        assert found[1].sharding.device_set == set(session.devices())
    if LOCALS_CAN_BE_SET:
        assert set(both.mesh.devices.flat) == set(session.devices())


@pytest.mark.thorough
def test_devices_meshes_and_shardings_are_those_of_the_new_proxy_wherever_they_are(session):
    Config.mesh, Config.sharding = sharded(session)
    Config.devices = np.array(session.devices(), dtype=object).reshape(2, -1)
    Config.by_device = {each: str(each) for each in session.devices()}
    library = types.ModuleType("library")
    library.MESHES = (Config.mesh, [Config.mesh])
    Config.shape = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=Config.sharding)
    suspended_and_resumed(session)
    new = set(session.devices())
    assert set(Config.mesh.devices.flat) == set(Config.devices.flat) == set(Config.by_device) == new
    assert Config.sharding.device_set == Config.shape.sharding.device_set == new
    assert library.MESHES[0] is library.MESHES[1][0] is Config.mesh
    assert jax.device_put(np.ones(8), Config.sharding).sum() == 8
    for name in list(vars(Config)):
        if not name.startswith("__"):
            delattr(Config, name)


def test_arrays_of_classes_modules_and_caches_are_back(session):
    library = types.ModuleType("library")
    library.TABLE = jax.device_put(np.arange(4.0, dtype=np.float32), session.devices()[0])
    Config.W = jax.device_put(np.arange(3.0, dtype=np.float32), session.devices()[1])
    shard = jax.device_put(np.arange(8.0, dtype=np.float32), sharded(session)[1]).addressable_shards[3].data
    holder = {"shard": shard}
    del shard
    assert suspended_and_resumed(session).left == ""
    assert library.TABLE.sum() == 6
    assert Config.W.sum() == 3
    assert holder["shard"].tolist() == [3.0]
    del Config.W


@pytest.mark.thorough
def test_compiled_programs_are_named(session):
    compiled = jax.jit(lambda x: x + 1).lower(jnp.ones(2)).compile()
    kept = {"compiled": compiled}
    with pytest.raises(UnsavableError, match=r"programs that were compiled for this proxy: compiled"):
        session.suspend({"compiled": compiled})
    assert session.status().state == "connected"
    del compiled, kept
    assert session.suspension().unkept == []


@pytest.mark.thorough
def test_the_parts_of_an_array_that_was_looked_at_are_no_arrays_but_where_a_program_holds_them(session):
    mesh, sharding = sharded(session)
    on = {"parts": sharding, "whole": NamedSharding(mesh, P()), "chip": session.devices()[1]}
    arrays = {name: jax.device_put(np.arange(16, dtype=np.float32), place) for name, place in on.items()}
    del mesh, sharding, on
    assert all(each.addressable_shards and str(each) for each in arrays.values())
    assert session.suspension().count == len(arrays)
    assert session.count_arrays()["count"] == len(arrays)
    arrays["part"] = arrays["parts"].addressable_shards[2].data
    shard = arrays["parts"].addressable_shards[3]
    kept = suspended_and_resumed(session)
    assert (kept.count, kept.unkept, kept.left) == (5, [], "")
    assert np.asarray(arrays["parts"]).tolist() == list(range(16))
    assert arrays["part"].tolist() == [4, 5]
    assert shard.data.tolist() == [6, 7]


@pytest.mark.thorough
def test_what_code_outside_python_holds_is_named_however_often_it_was_read(session):
    variables = {"held": jax.device_put(np.arange(3.0, dtype=np.float32), session.devices()[1])}
    str(variables["held"])
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(variables["held"]))
    with pytest.raises(UnsavableError, match=r"held: float32\[3\], held by code outside Python"):
        session.suspend(variables)
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(variables["held"]))
    assert session.suspension(variables).unkept == []


@pytest.mark.thorough
def test_a_thread_that_trains_is_named_and_its_steps_are_not_lost_unsaid(session):
    state = {"w": jax.device_put(np.zeros(4, np.float32), session.devices()[0])}
    step, end, runs = jax.jit(lambda w: w + 1), threading.Event(), threading.Event()

    def train():
        while not end.is_set():
            w = step(state["w"])
            state["w"] = w
            w.block_until_ready()
            runs.set()

    thread = threading.Thread(target=train, name="trainer")
    thread.start()
    runs.wait(60)
    try:
        with pytest.raises(UnsavableError, match=r"thread trainer"):
            session.suspend()
        assert session.status().state == "connected"
    finally:
        end.set()
        thread.join()
    before = np.asarray(state["w"]).tolist()
    suspended_and_resumed(session)
    assert np.asarray(state["w"]).tolist() == before


@pytest.mark.thorough
def test_what_was_made_while_the_arrays_were_written_is_written_too(session):
    state = {"w": jax.device_put(np.zeros(4, np.float32), session.devices()[0])}
    made = []

    def late(what, how_far):
        if not made:
            state["w"] = state["w"] + 1
            state["more"] = jax.device_put(np.full(2, 7, np.float32), session.devices()[1])
            made.append(True)

    session.suspend(report=late)
    session.resume()
    assert made
    assert np.asarray(state["w"]).tolist() == [1, 1, 1, 1]
    assert np.asarray(state["more"]).tolist() == [7, 7]


@pytest.mark.thorough
def test_what_cannot_be_kept_and_was_made_while_the_arrays_were_written_ends_it_without_a_save(session):
    state = {"w": jax.device_put(np.zeros(4, np.float32), session.devices()[0])}

    def late(what, how_far):
        if "program" not in state:
            state["w"] = state["w"] + 1
            state["program"] = jax.jit(lambda x: x + 1).lower(jnp.ones(2)).compile()

    with pytest.raises(UnsavableError, match="programs that were compiled"):
        session.suspend(report=late)
    assert session.status().state == "connected"
    # It would be offered as the last save of the notebook.
    assert session.saves.list() == []
    assert np.asarray(state["w"]).tolist() == [1, 1, 1, 1]


@pytest.mark.thorough
def test_the_result_of_an_elastic_run_is_kept(session):
    place = NamedSharding(jax.sharding.Mesh(np.array(session.devices()).reshape(2, -1), ("slice", "chip")), P())
    result = elastic.train_loop(
        lambda state, batch: ({"w": state["w"] + batch.mean()}, {}),
        {"w": jax.device_put(np.zeros(4, np.float32), place)},
        [np.ones((8, 2), np.float32)] * 3,
        steps=3,
        snapshot_every=1,
    )
    del place
    assert suspended_and_resumed(session).unkept == []
    assert np.asarray(result.state["w"]).tolist() == [3, 3, 3, 3]


@pytest.mark.thorough
def test_an_elastic_run_on_a_thread_is_named_ends_with_a_snapshot_and_goes_on_from_there(session):
    data, snapshots, trains, ended = Data(), elastic.Snapshots(outside_every=0), threading.Event(), []
    data.at[20] = trains.set

    def train():
        try:
            elastic.train_loop(step, first_state(), data, steps=100_000, snapshots=snapshots)
        except elastic.ElasticRuntimeError as error:
            ended.append(str(error))

    thread = threading.Thread(target=train)
    thread.start()
    assert trains.wait(60)
    with pytest.raises(UnsavableError, match=r"the training run at step \d+, which ends: train_loop goes on"):
        session.suspend()
    assert not ended
    suspension = session.suspension()
    session.suspend(suspension=suspension, yes=suspension.unkept)
    thread.join()
    number = int(
        re.fullmatch(r"The run has ended before step (\d+), so that its session can be suspended\.", ended[0])[1]
    )
    assert session.resume().left == ""
    assert snapshots.latest().step == number
    result = elastic.train_loop(step, first_state(), data, steps=number + 5, snapshots=snapshots)
    check(result, number + 5, since=number)


@pytest.mark.thorough
def test_the_save_has_the_names_of_variables_and_plain_values(session):
    variables = {
        "params": {"w": jax.device_put(np.arange(4.0, dtype=np.float32), session.devices()[0])},
        "key": jax.random.key(3),
        "step": 12,
        "name": "run",
        "data": np.ones(4 << 20),
        "open": threading.Lock(),
    }
    name = session.suspend(variables).name
    (save,) = [each for each in session.saves.list() if each.name == name]
    assert set(save.variables) == {"params", "key", "step", "name", "suspended_arrays"}
    session.resume()
    assert name not in [each.name for each in session.saves.list()]
