"""A session that is suspended from outside of its kernel, as by the sidebar: at once, or after the cell that runs."""

import pytest

from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.base.events import SessionState
from pathways_jupyter.session import client, registry
from pathways_jupyter.session.protocol import Method

pytestmark = pytest.mark.timeout(180)

CONNECT = """
%load_ext pathways_jupyter
%pathways connect --local --tpu tpuv6e:2x2=1
import jax.numpy as jnp
w = jnp.arange(8.0)
"""
LONG = """
import pathlib, time
print("runs")
while not pathlib.Path({go!r}).exists(): time.sleep(0.05)
print(w.sum(), "after it")
"""
UNSAVABLE = """
import functools
@functools.lru_cache(maxsize=8)
def cached():
    return jnp.ones(3)
assert cached().shape == (3,)
"""


@pytest.fixture
def notebook(cleared_notebook):
    return cleared_notebook


@pytest.fixture
def session(cluster, machine, notebook, monkeypatch):
    """The record of a notebook's session, which has an array."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", machine.environ["JUPYTER_RUNTIME_DIR"])
    assert notebook.run(CONNECT).status == "ok"
    (record,) = registry.sessions()
    return record


def suspend(record):
    return client.request(record, Method.SUSPEND, patience=60)


@pytest.mark.thorough
def test_it_is_suspended_at_once_while_no_cell_runs(notebook, session):
    assert suspend(session) == {"after_cell": False}
    assert "Suspended: 1 array (32 bytes) saved" in notebook.wait_for("saved, the slices are free")
    assert registry.read(session.id).state is SessionState.SUSPENDED
    with pytest.raises(SessionError, match="is suspended since"):
        suspend(session)
    assert "Resumed: 1 array" in notebook.run("%pathways resume").text
    assert "28.0" in notebook.run("print(w.sum())").text


@pytest.mark.thorough
def test_it_is_suspended_after_the_cell_that_runs(notebook, session, tmp_path):
    go = tmp_path / "go"
    running = notebook.begin(LONG.format(go=str(go)))
    notebook.wait_for("runs")
    assert suspend(session) == {"after_cell": True}
    assert registry.read(session.id).state is SessionState.CONNECTED
    go.touch()
    assert "28.0 after it" in notebook.finish(running).text
    notebook.wait_for("saved, the slices are free")
    assert registry.read(session.id).state is SessionState.SUSPENDED
    assert "Resumed: 1 array" in notebook.run("%pathways resume").text


@pytest.mark.thorough
def test_what_cannot_be_saved_keeps_it_and_is_in_its_events(notebook, session):
    assert notebook.run(UNSAVABLE).status == "ok"
    assert suspend(session) == {"after_cell": False}
    assert "float32[3]" in notebook.wait_for("The session is not suspended.")
    assert registry.read(session.id).state is SessionState.CONNECTED
    assert "Not suspended." in notebook.run("%pathways events").text
    assert "28.0" in notebook.run("print(w.sum())").text
