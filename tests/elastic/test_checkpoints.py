"""Snapshots in a directory: whole, the last ones, and on whatever slices there are."""

from __future__ import annotations

import shutil
import sys

import jax
import json_server
import numpy as np
import pytest
import scripts
from gcp_storage_emulator.server import create_server
from small_training import Data, Positioned, check, first_state, step

from pathways_jupyter import elastic
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.elastic.batches import Position
from pathways_jupyter.elastic.checkpoints import Checkpoints
from pathways_jupyter.elastic.record import Kind

BUCKET = """
import jax, numpy as np
from pathways_jupyter.elastic.checkpoints import Checkpoints
from pathways_jupyter.elastic.reshard import Form

first = Checkpoints("gs://runs/one", keep=1)
for number in (1, 2):
    first.write(number, [np.arange(3.0) + number], {"batch": number})
again = Checkpoints("gs://runs/one", keep=1)
form = Form.of([np.arange(3.0)])[0]
again.require(2, form)
(read,) = again.read(2, form, [jax.sharding.SingleDeviceSharding(jax.devices()[0])])
print(again.steps(), again.extra(2), read.tolist())
"""

REFUSED_BUCKET = """
from pathways_jupyter.elastic.checkpoints import Checkpoints
from pathways_jupyter.elastic.errors import ElasticRuntimeError

try:
    Checkpoints("gs://runs/one", keep=1)
except ElasticRuntimeError as error:
    print(error)
    print(error.hint)
"""


def train(path, data, *, steps, **more):
    snapshots = elastic.Snapshots(path=str(path), outside_every=1)
    return elastic.train_loop(step, first_state(), data, steps=steps, snapshots=snapshots, **more)


@pytest.mark.thorough
@pytest.mark.parametrize("source", [Data, Positioned])
def test_another_process_goes_on_from_the_directory(session, tmp_path, source):
    check(train(tmp_path, source(), steps=25), 25)
    # Nothing of the first run is left but its directory: new snapshots, new data.
    result = train(tmp_path, source(), steps=40)
    check(result, 40, since=25)
    assert min(result.metrics) == 25
    assert sorted(int(each.name) for each in tmp_path.iterdir() if each.name.isdecimal()) == [30, 40]


def test_a_run_that_finds_all_of_its_steps_done_is_done(session, tmp_path):
    train(tmp_path, Data(), steps=5)
    record = train(tmp_path, Data(), steps=5).record
    assert (record.phase, record.summary()["step"], record.metrics) == ("done", 5, {})


def test_fewer_slices_than_wrote_it_can_read_it(session, tmp_path):
    check(train(tmp_path, Data(), steps=20), 20)
    two = elastic.Manager([device for index in (0, 2) for device in session.slices()[index]])
    result = train(tmp_path, Data(), steps=30, manager=two)
    check(result, 30, since=20)
    assert {device.slice_index for device in result.state["w"].devices()} == {0, 2}


def test_a_run_that_resumes_without_room_for_its_snapshots_is_refused_too(session, tmp_path):
    train(tmp_path, Data(), steps=5)
    data, snapshots = Data(), elastic.Snapshots(path=str(tmp_path), where="notebook", limit_bytes=100)
    with pytest.raises(elastic.ElasticRuntimeError, match=r"but may take 0\.00 GB"):
        elastic.train_loop(step, first_state(), data, steps=9, snapshots=snapshots)


def test_one_that_is_not_whole_is_not_used(session, tmp_path):
    check(train(tmp_path, Data(), steps=20), 20)
    # What a process leaves behind that is killed while it writes.
    shutil.copytree(tmp_path / "20", tmp_path / "30.orbax-checkpoint-tmp")
    (tmp_path / "30.orbax-checkpoint-tmp" / "commit_success.txt").unlink(missing_ok=True)
    result = train(tmp_path, Data(), steps=21)
    assert min(result.metrics) == 20


def test_a_directory_with_another_state_is_refused(session, tmp_path):
    train(tmp_path, Data(), steps=5)
    other = {**first_state(), "w": np.zeros((3, 3), np.float32)}
    with pytest.raises(elastic.ElasticRuntimeError, match="not of this state"):
        elastic.train_loop(step, other, Data(), steps=9, snapshots=elastic.Snapshots(path=str(tmp_path)))


def test_a_directory_that_cannot_be_written_is_an_error_before_training(session, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(elastic.ElasticRuntimeError, match="before step 0 was not written"):
        train(tmp_path / "file", Data(), steps=5)


def test_a_slice_that_is_lost_while_the_first_snapshot_is_written_does_not_end_the_run(session, tmp_path, monkeypatch):
    write, lost = Checkpoints.write, []

    def lose(self, step, arrays, extra):
        if not lost:
            lost.append(step)
            raise jax.errors.JaxRuntimeError("DATA_LOSS: slice down")
        return write(self, step, arrays, extra)

    monkeypatch.setattr(Checkpoints, "write", lose)
    result = train(tmp_path, Data(), steps=5)
    check(result, 5)
    assert lost == [0]
    assert result.record.count(Kind.DETECTED) == 1
    assert sorted(int(each.name) for each in tmp_path.iterdir() if each.name.isdecimal()) == [0, 5]


def test_what_an_iterator_says_is_written_as_it_is(tmp_path):
    checkpoints = Checkpoints(str(tmp_path), keep=2)
    position = Position(3, 1, {"a": [1, None, "x"], "b": b"\x00\xff"})
    for number in (1, 2, 3):
        checkpoints.write(number, [np.arange(number)], position)
    assert checkpoints.steps() == [2, 3]
    assert checkpoints.extra(3) == position
    with pytest.raises(elastic.ElasticRuntimeError, match="A set cannot be written"):
        checkpoints.write(4, [np.arange(4)], Position(1, 0, {1, 2}))
    assert checkpoints.steps() == [2, 3]


@pytest.fixture
def bucket():
    """The variables that lead a process to a server with a bucket ``runs``."""
    server = create_server("127.0.0.1", 0, in_memory=True, default_bucket="runs")
    with server:
        address = f"http://127.0.0.1:{server._api._httpd.server_port}"
        yield {
            "STORAGE_EMULATOR_HOST": address,
            "TENSORSTORE_GCS_HTTP_URL": address,
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "token",
            "GOOGLE_CLOUD_PROJECT": "project",
            # Would ask Google what kind of bucket it is.
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        }


@pytest.mark.thorough
def test_a_bucket_keeps_the_last_ones_for_another_process(bucket):
    """In a process of its own, because TensorStore reads the variables once."""
    done = scripts.run(BUCKET, **bucket)
    assert done.stdout == "[2] {'batch': 2} [2.0, 3.0, 4.0]\n", done.stderr


@pytest.fixture
def refusing(bucket):
    """The variables that lead a process to a server that refuses every request."""
    refusal = 403, {"error": {"code": 403, "message": "This account may not do that."}}
    with json_server.serving(lambda request, body: refusal) as address:
        yield {**bucket, "STORAGE_EMULATOR_HOST": address}


@pytest.mark.thorough
def test_an_error_of_a_bucket_names_it_and_one_of_a_directory_is_the_directorys(refusing, tmp_path):
    done = scripts.run(REFUSED_BUCKET, **refusing)
    assert done.stdout.startswith("Snapshots cannot be kept in gs://runs/one: "), done.stderr
    *message, hint = done.stdout.splitlines()
    assert "This account may not do that." in "\n".join(message)
    assert hint.startswith("Check the bucket's name, and that this account may list, read, write and delete")
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        Checkpoints(str(tmp_path / "file" / "runs"), keep=1)


@pytest.mark.parametrize("missing", ["orbax.checkpoint", "gcsfs"])
def test_what_a_bucket_needs_is_named_before_training(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ConfigError, match=rf"snapshots in gs://runs/one needs the package {missing},") as refused:
        elastic.Snapshots(path="gs://runs/one")
    assert "pip install 'pathways_jupyter[elastic]'" in refused.value.hint
