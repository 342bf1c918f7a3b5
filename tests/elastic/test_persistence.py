"""Snapshots in the cluster's bucket: written and read by the hosts where the proxy offers it, else by the notebook.

Each in a process of its own, because TensorStore reads once where the bucket is.
"""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest
import scripts

from pathways_jupyter.local import cluster as local

pytestmark = pytest.mark.thorough

TYPE = "tpuv6e:2x2"
SUPPORT = Path(__file__).parents[1] / "support"

BEGIN = """
import json
import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
from pathways_jupyter import elastic
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.events import EventKind
from pathways_jupyter.elastic import export, faults
from pathways_jupyter.elastic.checkpoints import Checkpoints
from pathways_jupyter.elastic.loop import default_mesh
from pathways_jupyter.elastic.record import Kind, Record
from pathways_jupyter.elastic.reshard import Form
from pathways_jupyter.render import elastic as render
from pathways_jupyter.session.kernel import session as sessions
from small_training import Data, check, first_state, step

session = sessions.connect(ConnectConfig(instances={instances!r}, kubeconfig={kubeconfig!r}, wait=60))
path = f"{{session.bucket}}/{test}"

def mesh(*slices):
    return default_mesh([session.slices()[each] for each in slices])

def through_the_notebook(notes):
    return [each for each in notes if f"Snapshots in {{path}} go through the notebook: " in each]
"""

LOSS = """
data, record = Data(), Record()

def lose():
    (number,) = [each.number for each in session.record.slices if each.index == 1]
    since = session.event_count
    faults.slice_down(session, number, seconds=60)
    # The next snapshots can take less time than the end of a worker.
    next(event for event in session.follow(since) if event.kind is EventKind.SLICE_DOWN)

data.at[27] = lose
# In parts over all slices, with no copy elsewhere: after a loss, only the bucket has all of them.
state = jax.device_put(first_state(), NamedSharding(mesh(0, 1, 2), P()))
state["w"] = jax.device_put(np.zeros((16, 4), np.float32), NamedSharding(mesh(0, 1, 2), P(None, "chip")))
state["v"] = jax.device_put(np.arange(24.0), NamedSharding(mesh(0, 1, 2), P("slice")))

def both(state, batch):
    v = state.pop("v")
    new, metrics = step(state, batch)
    return {**new, "v": v + 1}, metrics

snapshots = elastic.Snapshots(where="hosts", path=path, outside_every=1)
result = elastic.train_loop(both, state, data, steps=50, snapshots=snapshots, record=record)
faults.heal(session)
check(result, 50)
assert np.asarray(result.state["v"]).tolist() == [number + 50.0 for number in range(24)]
messages = [event.message for event in record.events]
assert not through_the_notebook(messages), messages
restored = next(event for event in record.events if event.kind is Kind.RESTORED)
assert set(restored.slices) == {0, 2} and restored.step in (10, 20), restored

costs = result.goodput.snapshots
written = [each for each in costs if each.written is not None]
assert {each.writer for each in written} == {"hosts"}, costs
assert costs[0].step == 0 and written[-1].step == 50
assert {each.nbytes for each in costs} == {Form.of(state)[0].nbytes}
assert all(each.waited >= 0 and each.copied > 0 and each.written > 0 for each in written)
assert 0 < sum(each.waited for each in costs) <= result.goodput.seconds()["UNPRODUCTIVE_CHECKPOINT_SAVE_TIME"]
exported = json.loads(export.to_json(record))["snapshots"]
assert [each["step"] for each in exported] == [each.step for each in costs]
assert [each["writer"] for each in exported] == [each.writer for each in costs]
"""

READ_BY_EITHER = """
import orbax.checkpoint as ocp
from etils import epath

arrays = {
    "sharded": jax.device_put(np.ones((12, 8), np.float32).cumsum(0), NamedSharding(mesh(0, 1), P("slice", "chip"))),
    "half": jax.device_put(np.arange(8).astype("bfloat16"), NamedSharding(mesh(0, 1), P("chip"))),
    "scalar": jax.device_put(np.int32(3), NamedSharding(mesh(0, 1), P())),
}
form, leaves = Form.of(arrays)
hosts, notebook = Checkpoints(path, keep=9), Checkpoints(path, keep=9, by_hosts=False)
assert hosts.write(1, leaves, None) == "hosts"
assert hosts.write(1, leaves, None) is None
assert notebook.write(2, leaves, None) == "notebook"

def check_reading(reader, number):
    reader.require(number, form)
    read = reader.read(number, form, form.shardings(mesh(2, 0, 1)))
    for array, again in zip(leaves, read, strict=True):
        assert again.sharding.mesh == mesh(2, 0, 1)
        np.testing.assert_array_equal(np.asarray(again), np.asarray(array))

for reader in Checkpoints(path, keep=9), Checkpoints(path, keep=9, by_hosts=False):
    check_reading(reader, 1)
    check_reading(reader, 2)
    # The hosts did it, or it would say that they did not.
    assert not reader.notes, reader.notes

# In Orbax's default format, as an earlier version wrote it.
handlers = {"state": ocp.StandardCheckpointHandler(), "extra": ocp.JsonCheckpointHandler()}
with ocp.CheckpointManager(epath.Path(path), item_handlers=handlers) as manager:
    tree = ocp.args.StandardSave({"leaves": list(map(np.asarray, leaves))})
    manager.save(3, args=ocp.args.Composite(state=tree, extra=ocp.args.JsonSave({"extra": None})))
reader = Checkpoints(path, keep=9)
check_reading(reader, 3)
assert len(through_the_notebook(reader.notes)) == 1, reader.notes
"""

BOOL = """
def count(state, batch):
    return {"n": state["n"] + 1, "even": ~state["even"]}, {"n": state["n"]}

record = Record()
state = {"n": np.int32(0), "even": np.bool_(True)}
snapshots = elastic.Snapshots(path=path, outside_every=1)
result = elastic.train_loop(count, state, Data(), steps=15, snapshots=snapshots, record=record)
(said,) = through_the_notebook(event.message for event in record.events if event.kind is Kind.NOTE)
assert Kind.RETRY not in [event.kind for event in record.events]
assert said.endswith("hosts cannot read arrays of bool"), said
assert {each.writer for each in result.goodput.snapshots} == {"notebook"}
again = elastic.Snapshots(path=path)
result = elastic.train_loop(count, state, Data(), steps=16, snapshots=again)
assert list(result.metrics) == [15] and bool(result.state["even"])
assert len(through_the_notebook(event.message for event in result.record.events)) == 1
"""

NOT_OFFERED = """
record = Record()
result = elastic.train_loop(
    step, first_state(), Data(), steps=15, snapshots=elastic.Snapshots(path=path, outside_every=1), record=record
)
check(result, 15)
(said,) = through_the_notebook(event.message for event in record.events)
assert "UNIMPLEMENTED" in said and "needs TensorStore" in said, said
assert {each.writer for each in result.goodput.snapshots} == {"notebook"}
assert "notebook" in render.view(record).text
result = elastic.train_loop(step, first_state(), Data(), steps=16, snapshots=elastic.Snapshots(path=path))
assert list(result.metrics) == [15]
"""


def run(cluster: local.LocalCluster, slices: int, test: str, code: str) -> None:
    begin = BEGIN.format(instances={TYPE: slices}, kubeconfig=str(cluster.kubeconfig), test=test)
    script = begin + textwrap.dedent(code) + "\nsession.disconnect()\nprint('done')\n"
    done = scripts.run(script, PYTHONPATH=os.pathsep.join([str(SUPPORT), *filter(None, sys.path)]))
    assert done.stdout.endswith("done\n"), done.stderr[-6000:]


@pytest.mark.parametrize(
    ("test", "code"),
    [("loss", LOSS), ("either", READ_BY_EITHER), ("bool", BOOL)],
    ids=["a-lost-slice", "read-by-either", "a-type-that-hosts-cannot-read"],
)
def test_the_hosts_write_and_read_what_they_can(cluster, test, code):
    run(cluster, 3, test, code)


@pytest.fixture
def without_persistence(at_home, tmp_path, monkeypatch):
    """A cluster whose programs have no TensorStore."""
    (tmp_path / "tensorstore.py").write_text("raise ImportError('not installed')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    made = local.up({TYPE: 1}, name="without", fast_heal=True)
    monkeypatch.undo()
    with at_home():
        yield made
    local.down("without")


def test_a_proxy_that_does_not_offer_it_is_said(without_persistence):
    run(without_persistence, 1, "none", NOT_OFFERED)
