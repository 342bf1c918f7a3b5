"""Variables are saved by the hosts of an embedded cluster, and loaded with another proxy; suspended and resumed."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import sys
import threading
import time

import holders
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from sigint_tracer import sigint_at
from waits import wait_until

from pathways_jupyter.base import interrupts
from pathways_jupyter.base.errors import CapacityError, ConfigError, PathwaysError, SessionError
from pathways_jupyter.base.events import Transfer
from pathways_jupyter.base.google import open_bucket
from pathways_jupyter.base.sentences import Face
from pathways_jupyter.colocated import loss
from pathways_jupyter.colocated.errors import CheckError
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.objects import PODS
from pathways_jupyter.saved import arrays as stored
from pathways_jupyter.saved import holders as heap_holders
from pathways_jupyter.saved import saves as module
from pathways_jupyter.saved.heap import LOCALS_CAN_BE_SET
from pathways_jupyter.saved.holders import Holders
from pathways_jupyter.saved.stored_save import StoredSave
from pathways_jupyter.saved.suspension import Suspension
from pathways_jupyter.saved.values import UnsavableError
from pathways_jupyter.session import client, clusters, registry
from pathways_jupyter.session.kernel import process
from pathways_jupyter.session.protocol import Method

DEADLINE = 60.0
TYPE = "tpuv6e:2x2"


def mesh(session):
    return jax.sharding.Mesh(np.array(session.devices()).reshape(2, 4), ("slice", "chip"))


def of_all_kinds(session):
    """Arrays of all kinds on a mesh, on one chip, and committed to none."""
    on = mesh(session)
    parts, whole, one = NamedSharding(on, P("slice", "chip")), NamedSharding(on, P()), session.devices()[5]
    numbers = np.linspace(-3, 3, 64).reshape(8, 8)
    values = {
        name: numbers.astype(name)
        for name in ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4", "int8", "bool")
    }
    found = {name: jax.device_put(value, parts) for name, value in values.items()}
    found["nan"] = jax.device_put(np.array([0x7FC00001, 0x80000000], "uint32").view("float32"), whole)
    found["complex64"] = jax.device_put((numbers * (1 + 2j)).astype("complex64"), parts)
    found["zeros"] = jax.device_put(np.zeros((8, 8), np.float32), parts)
    found["keys"] = jax.device_put(jax.random.split(jax.random.key(7), 8), NamedSharding(on, P("chip")))
    found["key"] = jax.device_put(jax.random.key(3, impl="rbg"), one)
    found["empty"] = jax.device_put(np.zeros((0, 3), "bfloat16"), one)
    found["scalar"] = jax.device_put(np.int32(3), one)
    found["free"] = jnp.arange(5)
    found["weak"], found["weak int"], found["weak complex"] = jnp.asarray(0.5), jnp.asarray(3), jnp.asarray(1j)
    found["weak everywhere"] = jax.device_put(jnp.asarray(2.5), whole)
    explicit = jax.sharding.Mesh(on.devices, on.axis_names, axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    found["explicit"] = jax.device_put(numbers, NamedSharding(explicit, P("slice", "chip")))
    found["explicit int4"] = jax.device_put(numbers.astype("int4"), NamedSharding(explicit, P("chip")))
    found["in hosts"] = jax.device_put(numbers, parts.with_memory_kind("pinned_host"))
    return found


KNOWN = {"shape", "dtype", "weak_type", "sharding", "manual_axis_type", "memory_space"}
"""Attributes of an array's type in JAX 0.10."""
NEWER = {
    # Set only where a program's own types have layouts, which no array outside of it has.
    "layout",
}


def type_of(array):
    """All that JAX knows of an array but its numbers and its devices."""
    place = array.sharding
    named = isinstance(place, NamedSharding)
    # Of a part, which the proxy describes: where the numbers really are.
    memory = place.memory_kind, array.addressable_shards[0].data.sharding.memory_kind
    return array.aval, array.committed, memory, named and (place.spec, place.mesh.abstract_mesh)


def test_no_attribute_of_an_arrays_type_is_unknown():
    known = {each for each in jax.core.ShapedArray.__slots__ if not each.startswith("_")}
    assert KNOWN <= known <= KNOWN | NEWER


def bits(array):
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    value = np.asarray(array)
    return value.astype("int8").tobytes() if value.dtype in (ml_dtypes.int4, ml_dtypes.uint4) else value.tobytes()


def described(array, devices):
    """The bits, the type and the place of an array."""
    place = array.sharding
    on = list(place.mesh.devices.flat) if hasattr(place, "mesh") else list(place.device_set)
    return bits(array), type_of(array), getattr(place, "spec", None), [devices.index(each) for each in on]


@pytest.mark.thorough
def test_a_new_proxy_loads_the_same_bits_types_and_places(session):
    arrays = of_all_kinds(session)
    lr, step = jnp.asarray(0.5), jax.jit(lambda x, lr: x * lr)
    assert step(arrays["bfloat16"], lr).dtype == jnp.bfloat16
    arrays["lr"] = lr
    expected = {name: described(each, session.devices()) for name, each in arrays.items()}
    shared = [arrays["float32"], 3, "three"]
    saved = session.save("all", {"arrays": arrays, "alias": arrays["int4"], "lists": (shared, shared)})
    assert saved.nbytes > 0
    assert saved.variables == ("arrays", "alias", "lists")
    session.reconnect({})
    assert "all" in [each.name for each in session.saves.list()]
    found = session.load("all")
    assert {name: described(each, session.devices()) for name, each in found["arrays"].items()} == expected
    assert found["alias"] is found["arrays"]["int4"]
    assert found["lists"][0] is found["lists"][1]
    assert found["lists"][0][0] is found["arrays"]["float32"]
    assert step(found["arrays"]["bfloat16"], found["arrays"]["lr"]).dtype == jnp.bfloat16
    session.saves.delete("all")
    assert "all" not in [each.name for each in session.saves.list()]
    with pytest.raises(PathwaysError, match=r"all cannot be loaded: there is none of that name\."):
        session.load("all")


@contextlib.contextmanager
def saves_cut_short(monkeypatch):
    """Each save meanwhile ends when it has written its arrays, and not yet its index."""
    written = stored.write

    def write(location, arrays, done):
        written(location, arrays, done)
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(stored, "write", write)
        yield


def test_a_save_replaces_the_one_before_only_when_it_is_whole(session, monkeypatch):
    session.save("model", {"n": 1, "x": jax.device_put(np.arange(8.0), session.devices()[0])})
    bucket, place = open_bucket(), session.saves._base + "/model"
    before = bucket.find(place)
    with pytest.raises(UnsavableError, match=r"y is a .*lock"):
        session.save("model", {"y": threading.Lock()})
    with saves_cut_short(monkeypatch), pytest.raises(PathwaysError, match="killed"):
        session.save("model", {"n": 2, "x": jax.device_put(np.arange(9.0), session.devices()[0])})
    assert set(bucket.find(place)) > set(before)
    assert session.load("model")["n"] == 1
    session.save("model", {"n": 3})
    # What was cut short may be that of a save which runs: only a sweep removes it.
    assert set(before).isdisjoint(set(bucket.find(place)) - {f"{place}/index.json"})
    assert session.load("model") == {"n": 3}
    session.saves.delete("model")


def on_chip(session, value):
    return {"n": value, "x": jax.device_put(np.full(8, value, np.float32), session.devices()[0])}


def meanwhile(monkeypatch, act):
    """Have `act` called once, when the next save has written its arrays and not yet its index."""
    written = stored.write

    def write(location, arrays, done):
        written(location, arrays, done)
        monkeypatch.setattr(stored, "write", written)
        act()

    monkeypatch.setattr(stored, "write", write)


@pytest.mark.parametrize("older", [True, False])
def test_of_two_saves_of_one_name_at_the_same_time_one_is_whole(session, monkeypatch, older):
    bucket, place = open_bucket(), session.saves._base + "/race"
    if older:
        session.save("race", on_chip(session, 0))
    meanwhile(monkeypatch, lambda: session.save("race", on_chip(session, 2)))
    with pytest.raises(PathwaysError, match="race was not saved: it was saved or deleted by another kernel"):
        session.save("race", on_chip(session, 1))
    found = session.load("race")
    assert (found["n"], found["x"].tolist()) == (2, [2.0] * 8)
    assert len({each.split("/")[-3] for each in bucket.find(place) if not each.endswith("index.json")}) == 1
    session.saves.delete("race")
    assert not bucket.find(place)


@pytest.mark.parametrize("older", [True, False])
def test_a_save_that_is_deleted_while_it_is_written_fails_and_leaves_nothing(session, monkeypatch, older):
    if older:
        session.save("gone", on_chip(session, 0))
    meanwhile(monkeypatch, lambda: session.saves.delete("gone"))
    with pytest.raises(PathwaysError, match="gone was not saved: its files were changed or deleted meanwhile"):
        session.save("gone", on_chip(session, 1))
    assert not open_bucket().find(session.saves._base + "/gone")


class Bucket:
    """The bucket, with other answers to some of its calls."""

    def __init__(self, **calls):
        self._bucket, self._calls = open_bucket(), calls

    def __getattr__(self, name):
        return self._calls.get(name) or getattr(self._bucket, name)


def test_a_request_that_is_repeated_because_its_answer_was_lost_is_no_other_save(session, monkeypatch):
    bucket = open_bucket()

    def twice(method, *arguments, **options):
        found = bucket.call(method, *arguments, **options)
        return bucket.call(method, *arguments, **options) if method == "POST" else found

    monkeypatch.setattr(module, "open_bucket", lambda: Bucket(call=twice))
    session.save("lost", on_chip(session, 1))
    assert session.load("lost")["n"] == 1
    session.saves.delete("lost")


def test_files_that_vanish_behind_the_index_fail_the_save_without_an_index(session, monkeypatch):
    bucket = open_bucket()

    def late(method, *arguments, **options):
        found = bucket.call(method, *arguments, **options)
        if method == "POST":
            bucket.rm([each for each in bucket.find(session.saves._base + "/late") if each.endswith("/0/0")])
        return found

    with monkeypatch.context() as patch:
        patch.setattr(module, "open_bucket", lambda: Bucket(call=late))
        with pytest.raises(PathwaysError, match="late was not saved: its files were changed or deleted"):
            session.save("late", on_chip(session, 1))
    assert not bucket.find(session.saves._base + "/late")


def test_a_save_that_is_replaced_while_it_is_read_is_read_again(session, monkeypatch):
    session.save("moving", on_chip(session, 1))
    found, read = [], StoredSave.files

    def files(save, content):
        if not found:
            found.append(content)
            session.save("moving", on_chip(session, 2))
        return read(save, content)

    monkeypatch.setattr(StoredSave, "files", files)
    assert session.load("moving")["n"] == 2
    session.saves.delete("moving")


def test_a_bit_that_flips_in_the_bucket_is_an_error(session):
    session.save("bits", on_chip(session, 1))
    place = f"{session.saves._base}/bits"
    chunk = next(each for each in open_bucket().find(place) if each.endswith("/0/0"))
    directory = next(each for each in pathlib.Path(os.environ["HOME"]).rglob("pathways-local") if each.is_dir())
    file = directory / chunk.partition("/")[2]
    with file.open("r+b") as opened:
        first = opened.read(1)
        opened.seek(0)
        opened.write(bytes([first[0] ^ 1]))
    with pytest.raises(PathwaysError, match=r"bits cannot be loaded: .*is damaged"):
        session.load("bits")
    session.saves.delete("bits")


def test_a_sweep_removes_what_was_cut_short_a_day_ago_and_nothing_else(session, monkeypatch):
    x = {"x": jax.device_put(np.arange(8.0), session.devices()[0])}
    session.save("whole", x)
    with saves_cut_short(monkeypatch):
        for name in ("whole", "new"):
            with pytest.raises(PathwaysError, match="killed"):
                session.save(name, x)
    saves, tomorrow = session.saves, time.time() + 25 * 3600
    assert saves.sweep() == ()
    cut_short = saves.sweep(dry_run=True, at=tomorrow)
    assert sorted(each.split("/")[-2] for each in cut_short) == ["new", "whole"]
    assert saves.sweep(at=tomorrow) == cut_short
    assert saves.sweep(at=tomorrow) == ()
    np.testing.assert_array_equal(session.load("whole")["x"], np.arange(8.0))
    assert not open_bucket().find(f"{saves._base}/new")
    monkeypatch.setattr(module, "_LONGEST_SAVE_SECONDS", -1.0)
    with pytest.raises(PathwaysError, match="longer than 12 hours"):
        session.save("late", x)
    assert not open_bucket().find(f"{saves._base}/late")


def test_a_damaged_a_hostile_and_a_newer_save_are_one_sentence(session):
    session.save("odd", {"x": jax.device_put(np.arange(8.0), session.devices()[0])})
    bucket, place = open_bucket(), session.saves._base + "/odd"
    path = f"{place}/index.json"
    index = json.loads(bucket.cat_file(path))

    def refused(match, **changes):
        bucket.pipe_file(path, json.dumps({**index, **changes}).encode())
        with pytest.raises(PathwaysError, match=match) as caught:
            session.load("odd")
        assert "\n" not in str(caught.value)

    refused("saved in format 2, and this version reads 1", format=2)
    refused("index cannot be read", content="../../other")
    refused("index cannot be read", variables={"x y": 1})
    refused("odd is damaged: x cannot be read", variables={"x": {"object": 1}})
    refused("odd is damaged: x cannot be read", variables={"x": {"complex": [10**400, 1]}})
    refused("index cannot be read", saved=10**400)
    (described,) = index["arrays"]
    refused("cannot be loaded", arrays=[{**described, "shape": [1 << 40]}])
    refused(
        "at least 1000 chips, and here are 8", arrays=[{**described, "sharding": {"devices": [999], "memory": None}}]
    )
    bucket.pipe_file(path, b"[" * 100_000)
    with pytest.raises(PathwaysError, match="index cannot be read"):
        session.load("odd")
    session.save("whole", {"n": 1})
    listed, _ = [each for each in session.saves.list() if each.name in ("odd", "whole")]
    session.saves.delete("whole")
    assert "index cannot be read" in listed.unkept[0]
    with pytest.raises(PathwaysError) as caught:
        session.load("odd")
    assert caught.value.advice(Face.NOTEBOOK) == "%pathways saved delete odd removes it."
    bucket.pipe_file(path, json.dumps(index).encode())
    np.testing.assert_array_equal(session.load("odd")["x"], np.arange(8.0))
    chunk = next(each for each in bucket.find(place) if each.endswith("/0/0"))
    bucket.pipe_file(chunk, bucket.cat_file(chunk)[::-1])
    with pytest.raises(PathwaysError, match=r"odd is damaged: its files are not those that were saved\."):
        session.load("odd")


@pytest.mark.thorough
def test_progress_is_in_pieces_and_gives_the_next_estimate(session, monkeypatch):
    monkeypatch.setattr(stored, "_LEAST_PIECE_BYTES", 1 << 20)
    monkeypatch.setattr(stored, "_MOST_PIECES", 3)
    monkeypatch.setattr(stored, "_rates", {})
    arrays = {f"x{n}": jax.device_put(np.full(1 << 18, n, np.float32), session.devices()[n % 3]) for n in range(6)}
    before = session.suspension({"arrays": arrays})
    assert before.seconds is None
    said = []
    session.save("pieces", arrays, report=lambda *what: said.append(what))
    assert session.load("pieces", report=lambda *what: said.append(what)).keys() == arrays.keys()
    for title in (stored.WRITE, stored.READ):
        steps = [str(what) for each, what in said if each == title]
        assert steps[0] == "0 bytes of 6.3 MB"
        assert steps[1].startswith("2.1 MB of 6.3 MB, about ")
        assert steps[-1] == "6.3 MB of 6.3 MB"
        assert len(steps) == 4
    assert session.suspension({"arrays": arrays}).seconds > 0
    session.saves.delete("pieces")


def test_what_cannot_be_kept_of_all_variables_is_said(session, monkeypatch):
    x = jax.device_put(np.arange(4.0), session.devices()[0])
    local_array = jax.device_put(np.arange(4.0), jax.local_devices(backend="cpu")[0])
    variables = {"x": x, "json": json, "_hidden": x, "here": local_array, "stack": contextlib.ExitStack()}
    monkeypatch.setattr(process, "variables", lambda: variables)
    saved = session.save("everything")
    assert saved.variables == ("x",)
    assert [each.partition(" ")[0] for each in saved.unkept] == ["here", "stack"]
    assert list(session.load("everything")) == ["x"]


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", ".hidden", "x" * 64])
def test_a_name_is_no_path(session, name):
    with pytest.raises(ConfigError, match="cannot be the name of a save"):
        session.load(name)


class Model:
    def __init__(self, w):
        self.w = w


def kinds(variables):
    return {name: (bits(each), type_of(each)) for name, each in variables["arrays"].items()}


@pytest.mark.thorough
def test_every_place_holds_the_same_array_again(session):
    arrays = of_all_kinds(session)
    on = mesh(session)
    w = arrays["float32"]
    variables = {"arrays": arrays, "w": w, "pair": (w, 1), "model": Model(w), "mesh": on}
    total = float(jax.jit(jnp.sum)(w))
    del w, on
    before, model = kinds(variables), variables["model"]
    assert session.suspension(variables).unkept == []
    suspended = session.suspend(variables)
    assert suspended.count == len(arrays)
    assert session.state == "suspended"
    record = session.status()
    assert record.slices == ()
    saved = record.saved
    assert (saved.count, saved.bytes) == (suspended.count, suspended.nbytes)
    assert saved.place.startswith(f"{session.bucket}/saved/")
    assert saved.place.endswith(f"/{suspended.name}")
    assert suspended.name.startswith(f"suspended-{session.id}")
    assert str(saved) in str(record)
    with pytest.raises(Exception, match="deleted"):
        np.asarray(variables["w"])
    with pytest.raises(SessionError, match="is suspended"):
        session.suspend(variables)
    variables["mine"] = 3
    session.resume()
    assert session.state == "connected"
    assert session.status().saved is None
    assert kinds(variables) == before
    assert variables["arrays"] is arrays
    assert variables["model"] is model
    assert variables["w"] is model.w is variables["pair"][0] is arrays["float32"]
    assert set(variables["mesh"].devices.flat) == set(session.devices())
    assert variables["w"].sharding == NamedSharding(variables["mesh"], P("slice", "chip"))
    assert variables["mine"] == 3
    assert float(jax.jit(jnp.sum)(variables["w"])) == total
    assert suspended.name not in [each.name for each in session.saves.list()]


def test_suspending_and_resuming_are_states_with_how_far_it_is(session, monkeypatch):
    monkeypatch.setattr(stored, "_LEAST_PIECE_BYTES", 1 << 10)
    variables = {f"x{n}": jax.device_put(np.full(1 << 10, n, np.float32), session.devices()[n]) for n in range(4)}
    seen = []

    def look(what, how_far):
        # As another process sees it; after the supervisor has read what was sent before.
        record = session.status()
        elsewhere = registry.read(session.id)
        if isinstance(how_far, Transfer):
            seen.append(record.state)
            assert elsewhere.transfer == record.transfer == session.record.transfer == how_far
            assert how_far.total == 4 << 12

    # The notebook's card is drawn then.
    shown = []
    session.suspender.on_transfer = lambda: shown.append(session.record.transfer.done)
    since = session.event_count
    session.suspend(variables, report=look)
    assert set(seen) == {"suspending"}
    assert shown == sorted(shown)
    assert shown[-1] == 4 << 12
    session.suspender.on_transfer = lambda: None
    assert session.record.transfer is session.status().transfer is None
    suspended, seen[:] = session.record.since, []
    session.resume(report=look)
    assert set(seen) == {"resuming"}
    assert session.state == "connected"
    assert session.record.saved is session.record.transfer is None
    happened = [event for event in session.events(since) if "state" in event.data]
    assert [event.data["state"] for event in happened] == [
        *("suspending", "suspended", "starting", "resuming", "connected"),
    ]
    assert happened[-1].message == "Resumed: 4 arrays (16.4 kB) back in place."
    assert suspended == happened[1].data.get("since", happened[1].at)


def test_an_array_comes_back_where_a_thread_has_put_it_while_it_was_read(session):
    here, there, main = {"x": jax.device_put(np.arange(8.0), session.devices()[3])}, {}, threading.get_ident()

    def move(what, how_far):
        if isinstance(how_far, Transfer) and here:
            # So that it is not where the search has found it.
            wait_until(lambda: is_in(interrupts.__name__, sys._current_frames()[main]))
            there["x"] = here.pop("x")

    session.suspend({"here": here, "there": there})
    session.resume(report=move)
    assert there["x"].devices() == {session.devices()[3]}
    assert np.array_equal(there["x"], np.arange(8.0))


def is_in(module, frame):
    """Return whether a stack is in a function of this module."""
    while frame is not None and frame.f_globals["__name__"] != module:
        frame = frame.f_back
    return frame is not None


@pytest.fixture
def holder(session):
    """Another session, which takes the slices of one that is suspended."""
    links = []

    def take():
        links.append(holders.start(session.config)[0])

    yield take
    assert links[0].close(patience=DEADLINE)


@pytest.mark.thorough
def test_a_session_is_suspended_since_the_suspend_whatever_was_tried_later(session, holder):
    session.suspend({"x": jax.device_put(np.arange(4.0), session.devices()[1])}, yes=True)
    since = session.record.since
    assert since == session.record.saved.at
    holder()
    with pytest.raises(CapacityError):
        session.resume(wait=0)
    assert session.state == "suspended"
    assert session.record.since == session.status().since == since


@pytest.mark.thorough
def test_a_suspended_session_resumes_once_its_slices_are_free(session):
    session.resume(wait=DEADLINE)
    assert session.state == "connected"


@pytest.mark.thorough
def test_an_interrupt_while_arrays_are_put_back_comes_when_all_of_them_are(session, monkeypatch):
    x = jax.device_put(np.arange(4.0), session.devices()[1])
    variables = {"x": x, "others": [jax.device_put(np.full(3, n), session.devices()[n]) for n in range(4)], "same": x}
    del x
    session.suspend(variables)
    session._renew(session.attempt_reconnect({}, session.config, resumes=True))
    replace = Holders.replace

    def interrupted(*arguments):
        signal.raise_signal(signal.SIGINT)
        return replace(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Holders, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.suspender.restore()
    assert variables["x"] is variables["same"]
    assert not any(each.is_deleted() for each in (variables["x"], *variables["others"]))
    session.resume()
    assert not session.is_suspended
    assert np.asarray(variables["same"]).tolist() == [0, 1, 2, 3]


def interrupt_while_places_are_looked_for(session):
    with pytest.raises(KeyboardInterrupt), sigint_at(60, heap_holders):
        session.suspender.restore()


def kill_the_supervisor(session):
    os.kill(session.record.pid, signal.SIGKILL)
    wait_until(lambda: session._side.link.ended)


@pytest.mark.thorough
@pytest.mark.parametrize("disturb", [interrupt_while_places_are_looked_for, kill_the_supervisor])
def test_what_happens_before_the_arrays_are_back_costs_none_of_them(session, disturb):
    variables = {"x": jax.device_put(np.arange(4.0), session.devices()[1])}
    session.suspend(variables)
    session._renew(session.attempt_reconnect({}, session.config, resumes=True))
    disturb(session)
    assert variables["x"].is_deleted()
    session.resume()
    assert not session.is_suspended
    assert np.asarray(variables["x"]).tolist() == [0, 1, 2, 3]
    # Also by a supervisor that was not there when it was suspended.
    messages = [event.message for event in session.events()]
    assert "Not suspended; the arrays are where they were." not in messages
    assert messages[-1] == "Resumed: 1 array (16 bytes) back in place."


def delete_proxy(session):
    record = session.record
    clusters.ask(record, lambda client, namespace: objects.delete(client, PODS, record.pod, namespace=namespace))


@pytest.mark.thorough
def test_a_proxy_that_is_lost_as_the_arrays_are_back_costs_none_of_them(session, monkeypatch):
    variables = {"x": jax.device_put(np.arange(4.0), session.devices()[1])}
    name = session.suspend(variables).name
    restore = Suspension.restore

    def restore_and_lose(*arguments):
        monkeypatch.undo()
        restored = restore(*arguments)
        delete_proxy(session)
        wait_until(lambda: session.state == "suspended")
        return restored

    monkeypatch.setattr(Suspension, "restore", restore_and_lose)
    with pytest.raises(SessionError, match=r"1 array \(16 bytes\).* still saved"):
        session.resume()
    assert (session.is_suspended, session.state) == (True, "suspended")
    assert session.resume().left == ""
    assert np.asarray(variables["x"]).tolist() == [0, 1, 2, 3]
    assert not session.is_suspended
    assert not [each for each in session.saves.list() if each.name == name]


def test_a_report_after_the_end_of_a_transfer_changes_nothing(session):
    transferring = session.suspender._transferring(None)
    report = transferring.__enter__()
    report("write the arrays", Transfer(8, 16))
    assert session.status().state == "suspending"
    transferring.__exit__(None, None, None)
    # A thread that reads or writes outlives an Interrupt for a moment.
    report("write the arrays", Transfer(16, 16))
    record = session.status()
    assert (record.state, record.transfer) == ("connected", None)


@pytest.mark.thorough
def test_what_a_generator_holds_is_kept_or_named_and_asked_for(session):

    def batches():
        array = jax.device_put(np.ones((3, 5), np.float32), session.devices()[0])
        while True:
            yield float(array.sum())

    generator = batches()
    assert next(generator) == 15
    variables = {"x": jax.device_put(np.arange(4.0), session.devices()[1]), "generator": generator}
    if LOCALS_CAN_BE_SET:
        assert session.suspend(variables).count == 2
        session.resume()
        assert next(generator) == 15
        return
    with pytest.raises(UnsavableError, match=r"float32\[3,5\], held by generator .*batches"):
        session.suspend(variables)
    assert session.state == "connected"
    assert session.suspend(variables, yes=True).count == 1
    session.resume()
    assert np.asarray(variables["x"]).tolist() == [0, 1, 2, 3]


@pytest.mark.thorough
def test_a_save_stays_until_each_of_its_arrays_has_found_its_place(session):
    variables = {each: jax.device_put(np.full(3, 7.0, np.float32), session.devices()[1]) for each in "xy"}
    name = session.suspend(variables).name
    del variables["y"]
    resumed = session.resume()
    assert resumed.left == f"y: float32[3], whose place is gone; saved as {name}"
    # The events say what the notebook says.
    assert resumed.outcome.startswith("1 array (12 bytes) back in place. Not restored: y: float32[3]")
    assert session.events()[-1].message == f"Resumed: {resumed.outcome}"
    assert np.asarray(variables["x"]).tolist() == [7, 7, 7]
    # The next suspend replaces no save that stays.
    assert session.suspend(variables).name != name
    session.resume()
    assert np.asarray(session.load(name)["y"]).tolist() == [7, 7, 7]
    session.saves.delete(name)


@pytest.mark.thorough
def test_a_failure_while_writing_leaves_the_session_as_it_was(session, monkeypatch):
    variables = {"x": jax.device_put(np.arange(4.0), session.devices()[1])}
    with pytest.raises(SessionError, match="is not suspended"):
        session.resume()

    def failing(location, arrays, done):
        raise OSError("the bucket is full")

    for error, raised in ((failing, PathwaysError), (interrupted, KeyboardInterrupt)):
        with monkeypatch.context() as patch:
            patch.setattr(stored, "write", error)
            with pytest.raises(raised):
                session.suspend(variables)
        assert session.state == "connected"
        assert np.asarray(variables["x"]).tolist() == [0, 1, 2, 3]


@pytest.mark.thorough
def test_fewer_slices_reshard_what_fits_and_name_the_rest_before(session):
    on = mesh(session)
    w = jax.device_put(np.arange(32.0).reshape(4, 8), NamedSharding(on, P("slice", "chip")))
    odd = jax.device_put(np.arange(6.0), NamedSharding(on, P("slice")))
    chip = jax.device_put(np.arange(3), session.devices()[1])
    far = jax.device_put(np.arange(5), session.devices()[6])
    variables = {"w": w, "odd": odd, "chip": chip, "far": far, "mesh": on}
    del w, odd, chip, far, on
    session.suspend(variables)
    with pytest.raises(ConfigError, match=f"on slices of {TYPE}"):
        session.resume(tpu="tpuv5e:4x4=1")
    with pytest.raises(UnsavableError, match=r"1 array cannot be on 1 slice: far: int32\[5\] with a chip"):
        session.resume(tpu=f"{TYPE}=1")
    assert session.state == "suspended"
    resumed = session.resume(tpu=f"{TYPE}=1", wait=30, yes=True)
    assert len(session.devices()) == 4
    assert session.config.wait == session.status().config["wait"] != 30, "only this once"
    assert variables["mesh"].devices.shape == (1, 4)
    assert variables["w"].sharding == NamedSharding(variables["mesh"], P("slice", "chip"))
    assert np.asarray(variables["w"]).tolist() == np.arange(32.0).reshape(4, 8).tolist()
    assert np.asarray(variables["odd"]).tolist() == list(range(6))
    assert variables["chip"].device == session.devices()[1]
    assert variables["far"].is_deleted()
    assert resumed.outcome.startswith("3 arrays (")
    assert "Not restored: far: int32[5] with a chip of its own" in resumed.outcome
    place = resumed.left.rpartition(" ")[2]
    assert place in [each.name for each in session.saves.list()]
    session.saves.delete(place)
    del variables["far"]
    session.suspend(variables)
    session.resume(tpu=f"{TYPE}=2")
    assert variables["mesh"].devices.shape == (2, 4)
    assert set(variables["w"].sharding.device_set) == set(session.devices())
    assert np.asarray(variables["w"]).tolist() == np.arange(32.0).reshape(4, 8).tolist()


@pytest.mark.thorough
def test_a_suspended_session_is_not_reconnected_without_its_arrays(session):
    variables = {"x": jax.device_put(np.arange(4.0), session.devices()[1])}
    session.suspend(variables)
    for call in (session.reconnect, lambda: session.attempt_reconnect()):
        with pytest.raises(SessionError, match="is suspended since") as caught:
            call()
        assert "resume" in caught.value.hint
    with pytest.raises(CheckError, match="is suspended"):
        loss.require_session()
    # As the sidebar does.
    since = session.event_count
    client.request(session.record, Method.RECONNECT, patience=DEADLINE)
    next(event for event in session.follow(since) if event.data.get("state") == "resuming")
    session.settle({})
    assert session.has_devices
    assert session.is_suspended
    session.resume()
    assert session.state == "connected"
    assert np.asarray(variables["x"]).tolist() == [0, 1, 2, 3]


def interrupted(location, arrays, done):
    raise KeyboardInterrupt


def test_an_interrupt_while_packages_are_imported_leaves_them_whole(session, monkeypatch):
    imported = module.importlib.import_module

    def pressed(name):
        signal.raise_signal(signal.SIGINT)
        return imported(name)

    with monkeypatch.context() as patch:
        patch.setattr(module.importlib, "import_module", pressed)
        with pytest.raises(KeyboardInterrupt):
            session.saves.list()
    assert isinstance(session.saves.list(), list)
