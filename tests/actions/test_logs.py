"""Logs: of which session's service or supervisor, and what is said where there is none."""

import pytest
from recorded_shell import RecordedShell
from session_records import new_record

from pathways_jupyter.actions import logs as actions
from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.base.events import SessionSlice
from pathways_jupyter.session import registry


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))


def written(**about):
    record = new_record(namespace="research", context="gke", **about)
    registry.write(record)
    return record


def test_a_session_that_is_named_is_the_one_whose_service_is_meant():
    first = written(service="one-pathways-head-0-0.one:29001", slices=(SessionSlice(4, 0, up=True),))
    second = written(service="two-pathways-head-0-0.two:29001", slices=(SessionSlice(7, 0, up=True),))
    for record, number in ((first, "4"), (second, "7")):
        where, which = actions._service(RecordedShell(), {"session": record.id}, actions.WORKER)
        assert (where.service, where.namespace, where.context, which) == (record.service, "research", "gke", number)
    where, _ = actions._service(RecordedShell(), {"session": second.id, "service": "three"}, actions.RESOURCE_MANAGER)
    assert (where.service, where.context) == ("three", "gke")
    with pytest.raises(SessionError, match="There is no session 'none'"):
        actions._service(RecordedShell(), {"session": "none"}, actions.RESOURCE_MANAGER)


def test_the_service_of_a_session_that_is_attached_to_a_job_is_none():
    record = written(pathways_job="lab")
    with pytest.raises(SessionError, match=f"Session {record.id} is attached to job lab") as refused:
        actions._service(RecordedShell(), {"session": record.id}, actions.RESOURCE_MANAGER)
    assert "job logs lab rm" in refused.value.hint


@pytest.mark.parametrize(("host", "why"), [("", "does not exist"), ("elsewhere", "it is on elsewhere")])
def test_a_supervisors_log_that_is_not_here_is_a_sentence(host, why):
    record = written(service="s:29001", host=host)
    with pytest.raises(SessionError, match=f"The log of session {record.id}'s supervisor cannot be read: .*{why}"):
        actions.logs(RecordedShell(), {"program": "supervisor", "session": record.id})
