from __future__ import annotations

import errno
import os
import socket
import stat
import time

import pytest
from session_records import new_record

from pathways_jupyter.base.config import runtime_dir
from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.base.events import SessionState, SuspendedArrays
from pathways_jupyter.service.names import current_user
from pathways_jupyter.session import client, registry, sweep
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.session.registry import SessionRecord


@pytest.fixture(autouse=True)
def empty_runtime_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))


def make(**changes) -> SessionRecord:
    return new_record(user=current_user(), **changes)


def listening(record: SessionRecord) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(record.socket)
    server.listen()
    return server


def test_a_record_is_found_as_it_was_written_and_only_its_owner_may_read_it():
    saved = SuspendedArrays(3, 1200, "gs://bucket/saved/me/suspended-a", 10.5)
    record = make(instances={"tpuv6e:2x2": 2}, state=SessionState.CONNECTED, job="proxy-1", saved=saved)
    registry.write(record)
    assert registry.read(record.id) == record
    assert registry.sessions() == [record]
    assert stat.S_IMODE(registry.record_path(record.id).stat().st_mode) == 0o600
    assert record.target == f"grpc://unix:{record.tunnel}"


@pytest.mark.parametrize(
    ("direct", "credentials", "path"),
    [
        ("", "", "a tunnel through the API server"),
        ("unix:/tmp/proxy", "", "direct, through a unix socket"),
        ("10.0.0.7:29000", "", "direct to 10.0.0.7:29000, unencrypted"),
        ("10.0.0.7:29000", "alts", "direct to 10.0.0.7:29000, encrypted with ALTS"),
    ],
)
def test_a_record_says_what_carries_its_bytes(direct, credentials, path):
    assert make(direct=direct, credentials=credentials).data_path == path


def test_a_session_lives_as_long_as_a_process_listens_on_its_socket():
    record = make()
    assert not registry.is_alive(record)
    with listening(record):
        assert registry.is_alive(record)
    assert os.path.exists(record.socket)
    assert not registry.is_alive(record)


def test_a_supervisor_that_is_too_busy_to_accept_lives():
    record = make()
    waiting = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(record.socket)
        server.listen(0)
        # Until its queue is full, and another one would have to wait.
        full = False
        while not full:
            waiting.append(socket.socket(socket.AF_UNIX))
            waiting[-1].setblocking(False)
            full = waiting[-1].connect_ex(record.socket) == errno.EAGAIN
        assert registry.is_alive(record)
    for each in waiting:
        each.close()
    assert not registry.is_alive(record)


def test_a_living_session_is_found_by_its_kernel_and_then_by_its_notebook():
    by_kernel, by_notebook, dead = make(kernel_id="k1"), make(notebook="a.ipynb"), make(kernel_id="k2")
    for record in (by_kernel, by_notebook, dead):
        registry.write(record)
    with listening(by_kernel), listening(by_notebook):
        assert registry.find(kernel_id="k1", notebook="a.ipynb") == by_kernel
        assert registry.find(kernel_id="gone", notebook="a.ipynb") == by_notebook
        assert registry.find(kernel_id="k2") is None
        assert registry.find() is None


def test_removing_a_session_leaves_no_file_behind():
    record = make()
    registry.write(record)
    registry.log_path(record.id).write_text("log")
    # Of a supervisor that was killed while it wrote.
    registry.record_path(record.id).with_suffix(".4711.tmp").write_text("{")
    with listening(record):
        pass
    registry.remove(record)
    registry.remove(record)
    assert list(runtime_dir().iterdir()) == []


def test_sockets_move_to_a_short_private_directory_when_the_runtime_dir_is_too_deep(tmp_path, monkeypatch):
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(deep))
    record = make()
    directory = os.path.dirname(record.socket)
    assert directory != str(runtime_dir())
    assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
    with listening(record):
        assert registry.is_alive(record)
    registry.write(record)
    registry.remove(record)
    assert not os.path.exists(directory)


def test_a_session_of_another_machine_that_shares_the_home_is_not_judged_from_here():
    theirs, ours = make(host="elsewhere", created=time.time()), make(host=registry.this_host(), created=time.time())
    outlived = make(host="elsewhere", created=time.time() - 1000, config={"max_lifetime": 900.0})
    for record in (theirs, ours, outlived):
        registry.write(record)
    assert {record.id for record in sweep.dead()} == {ours.id, outlived.id}
    with pytest.raises(SessionError, match="runs on another machine, elsewhere"):
        client.request(theirs, Method.STATUS)
