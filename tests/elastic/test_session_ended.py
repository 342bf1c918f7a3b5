"""The session is suspended, lost or disconnected under a training run, or before it: it ends, and says so."""

from __future__ import annotations

import threading

import pytest
from small_training import Data, first_state, step

from pathways_jupyter import elastic
from pathways_jupyter.base.errors import CapacityError, SessionError
from pathways_jupyter.base.sentences import Face, worded
from pathways_jupyter.elastic import faults
from pathways_jupyter.session.kernel.jax_switch import JaxSwitch
from pathways_jupyter.session.kernel.session import Session

DEADLINE = 20.0


# First, because each has a session of its own, and a process has one at a time.
@pytest.mark.parametrize("moment", ["emptied", "restored", "ended"])
def test_a_run_on_another_thread_ends_with_a_session_that_is_disconnected(connect, monkeypatch, moment):
    """At each moment of it: JAX's arrays are deleted first, then it has this machine's devices, then the proxy goes."""
    data, errors = Data(), []
    trains, goes_on, ended = threading.Event(), threading.Event(), threading.Event()

    def wait():
        trains.set()
        assert goes_on.wait(DEADLINE)

    def reached(this):
        if this == moment:
            goes_on.set()
            assert ended.wait(DEADLINE)

    def train():
        try:
            elastic.train_loop(step, first_state(), data, steps=10**6, snapshots=elastic.Snapshots(where="notebook"))
        except Exception as error:
            errors.append(error)
        finally:
            ended.set()

    retire, deactivate = JaxSwitch._retire, JaxSwitch.deactivate

    def retired(self):
        retired = retire(self)
        reached("emptied")
        return retired

    def deactivated(self, namespace=None):
        result = deactivate(self, namespace)
        reached("restored")
        return result

    data.at[15] = wait
    with connect() as session:
        thread = threading.Thread(target=train)
        thread.start()
        assert trains.wait(DEADLINE)
        monkeypatch.setattr(JaxSwitch, "_retire", retired)
        monkeypatch.setattr(JaxSwitch, "deactivate", deactivated)
        session.disconnect()
    reached("ended")
    thread.join()
    (error,) = errors
    assert isinstance(error, elastic.ElasticRuntimeError), error
    assert f"Session {session.id} has ended." in str(error)
    assert "connect" in error.hint


def test_a_run_that_gets_no_new_proxy_names_the_command_that_gets_one(session, lose, monkeypatch):
    snapshots = elastic.Snapshots(where="notebook")
    elastic.train_loop(step, first_state(), Data(), steps=3, snapshots=snapshots)
    lose(session.record.pod)
    next(event for event in session.follow() if event.data.get("state") == "lost")

    def reconnect(self):
        raise CapacityError("The slices are taken.")

    monkeypatch.setattr(Session, "reconnect", reconnect)
    with pytest.raises(elastic.ElasticRuntimeError, match="no new one: The slices are taken") as said:
        elastic.train_loop(step, first_state(), Data(), steps=9, snapshots=snapshots, timeout=0)
    assert worded(said.value.hint, Face.NOTEBOOK).startswith("%pathways reconnect, then call train_loop again")


def test_a_fault_in_a_session_without_slices_says_why_it_has_none(session, lose):
    session.suspend({}, yes=True)
    with pytest.raises(SessionError, match=f"Session {session.id} is suspended since") as refused:
        faults.slice_down(session, 1)
    assert worded(refused.value.hint, Face.NOTEBOOK).startswith("%pathways resume")
    session.resume()
    since = session.event_count
    lose(session.record.pod)
    next(event for event in session.follow(since) if event.data.get("state") == "lost")
    with pytest.raises(SessionError, match=f"The proxy of session {session.id} is lost since") as refused:
        faults.slice_down(session, 1)
    assert worded(refused.value.hint, Face.NOTEBOOK).startswith("%pathways reconnect")
