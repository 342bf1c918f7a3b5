"""Files that no record names, and records that are none: each is judged alone, and none hides another."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from session_records import bare_record

from pathways_jupyter.actions import doctor
from pathways_jupyter.base.config import ConnectConfig, runtime_dir
from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.session import orphan_files, registry, sweep
from pathways_jupyter.session.kernel import spawn
from pathways_jupyter.session.registry import SessionRecord

DEADLINE = 60.0


@pytest.fixture(autouse=True)
def own_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))


def record(**changes) -> dict:
    session = registry.new_session_id()
    control, tunnel = (str(runtime_dir() / f"{session}.{suffix}") for suffix in ("sock", "tunnel"))
    log = str(registry.log_path(session))
    made = bare_record(id=session, created=1.0, state="connected", socket=control, tunnel=tunnel, log=log)
    return {**made.to_json(), **changes}


def written(**changes) -> str:
    values = record(**changes)
    registry.record_path(values["id"]).write_text(json.dumps(values))
    return values["id"]


def named(session: str) -> list[str]:
    return [path.name for path in runtime_dir().iterdir() if path.name.startswith(session)]


def directory(path: Path) -> None:
    path.mkdir()


def loop(path: Path) -> None:
    path.symlink_to(path)


def dangling(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


BROKEN = {
    "empty": text(""),
    "binary": lambda path: path.write_bytes(bytes(range(256))),
    "a list": text("[1]"),
    "deep": text("[" * 100_000),
    "half of one": text('{"id": "x"}'),
    "a text for a time": lambda path: path.write_text(json.dumps(record(id=path.stem, created="x"))),
    "a time without end": lambda path: path.write_text(json.dumps(record(id=path.stem)).replace("1.0", "1e400")),
    "a number for a path": lambda path: path.write_text(json.dumps(record(id=path.stem, socket=7))),
    "an unknown state": lambda path: path.write_text(json.dumps(record(id=path.stem, state="asleep"))),
    "another's id": lambda path: path.write_text(json.dumps(record())),
    "slices of nothing": lambda path: path.write_text(json.dumps(record(id=path.stem, slices=[1]))),
    "a directory": directory,
    "a loop of links": loop,
    "a dangling link": dangling,
    "a link to what has no end": lambda path: path.symlink_to("/dev/zero"),
    "a pipe that no process writes": os.mkfifo,
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_record_that_is_none_hides_no_other_and_is_swept(kind):
    # They are listed oldest first.
    after, before = written(created=2.0), written(created=1.0)
    broken = registry.new_session_id()
    BROKEN[kind](registry.record_path(broken))
    assert [each.id for each in registry.sessions()] == [before, after]
    assert [each.session for each in orphan_files.find()] == [broken]
    assert sorted(asyncio.run(sweep.sweep_dead())) == sorted([before, after, broken])
    assert list(runtime_dir().iterdir()) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"namespace": "default", "config": {"instances": 5, "kubeconfig": ["x"]}},
        {"namespace": "default", "config": {"proxy_options": 7}},
        {"namespace": "default", "kubeconfigs": "/nowhere", "context": "gone"},
        {"socket": "a\0b"},
        {"log": "/"},
    ],
)
def test_a_record_that_cannot_be_swept_keeps_no_other(changes):
    before, after = written(created=1.0), written(created=3.0)
    written(created=2.0, **changes)
    swept = asyncio.run(sweep.sweep_dead())
    assert {before, after} <= set(swept)


def test_what_lies_beside_them_is_nobodys_business():
    for name in ("broken.json", "notes.log", "local"):
        (runtime_dir() / name).write_text("x")
    assert registry.sessions() == orphan_files.find() == []
    assert asyncio.run(sweep.sweep_dead()) == []
    assert len(list(runtime_dir().iterdir())) == 3


def test_files_of_a_supervisor_that_died_before_it_had_a_record_are_swept():
    link = spawn.supervisor()
    assert named(link.session) == [f"{link.session}.log"]
    # It waits to be asked: nothing of it may be taken.
    assert orphan_files.find() == []
    process = link._process
    # As if the kernel had died with it, so that no one looks after the files.
    link._orphaned = None
    os.kill(process.pid, signal.SIGKILL)
    assert link.close(patience=DEADLINE)
    (runtime_dir() / f"{link.session}.{process.pid}.tmp").write_text("{")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(runtime_dir() / f"{link.session}.sock"))
    (found,) = orphan_files.find()
    assert (found.session, len(found.paths)) == (link.session, 3)
    assert asyncio.run(sweep.sweep_dead()) == [link.session]
    assert list(runtime_dir().iterdir()) == []


def test_a_supervisor_that_was_killed_while_it_began_is_cleaned_up_after_by_its_kernel():
    link = spawn.supervisor()
    (runtime_dir() / f"{link.session}.tmp").write_text("{")
    os.kill(link._process.pid, signal.SIGKILL)
    assert link.close(patience=DEADLINE)
    assert list(runtime_dir().iterdir()) == []


def test_files_that_come_into_use_again_are_left_alone():
    session = registry.new_session_id()
    registry.log_path(session).write_text("")
    (found,) = orphan_files.find()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(runtime_dir() / f"{session}.sock"))
        server.listen()
        orphan_files.remove(found)
        assert orphan_files.find() == []
    assert sorted(named(session)) == [f"{session}.log", f"{session}.sock"]


def test_what_cannot_be_removed_is_named():
    session = registry.new_session_id()
    (registry.record_path(session) / "inside").mkdir(parents=True)
    (found,) = orphan_files.find()
    with pytest.raises(SessionError, match=rf"{session}\.json could not be removed: Directory not empty"):
        orphan_files.remove(found)


def test_a_directory_of_sockets_that_outlived_its_session_is_found_once_it_is_old(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / ("d" * 60) / ("e" * 60)))
    session = registry.new_session_id()
    # A directory of its own: what looks old in /tmp is removed by whatever else cleans up on this machine.
    with tempfile.TemporaryDirectory(prefix="pj-") as own:
        monkeypatch.setattr(tempfile, "tempdir", own)
        outlives_its_session(session)


def outlives_its_session(session: str) -> None:
    control, _ = registry.socket_paths(session)
    assert session not in [each.session for each in orphan_files.find()]
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(control))
        os.utime(control.parent, (1, 1))
        server.listen()
        assert session not in [each.session for each in orphan_files.find()]
    (found,) = [each for each in orphan_files.find() if each.session == session]
    assert found.paths == (control.parent,)
    orphan_files.remove(found)
    assert not control.parent.exists()


def test_clean_and_doctor_see_them(monkeypatch, tmp_path):
    session = registry.new_session_id()
    registry.log_path(session).write_text("")
    environ = {**os.environ, "JUPYTER_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
    clean = [sys.executable, "-m", "pathways_jupyter", "clean", "--json"]
    said = subprocess.run([*clean, "--dry-run"], env=environ, capture_output=True, text=True, timeout=DEADLINE)
    # Beside what others have left in /tmp.
    assert ("files", session) in [(each["what"], each["name"]) for each in json.loads(said.stdout)]
    findings = doctor.examine(ConnectConfig(kubeconfig=str(tmp_path / "none")))
    assert any(session in each.message for each in findings), findings
    assert subprocess.run(clean, env=environ, capture_output=True, timeout=DEADLINE).returncode == 0
    assert named(session) == []


def test_a_record_is_read_back_by_this_version_whatever_is_added_to_it():
    session = written(slices=[{"number": None, "index": 0, "up": True}], tomorrow={"a": 1}, state_since=5.0)
    read = registry.read(session)
    assert isinstance(read, SessionRecord)
    assert (read.slices[0].number, read.state_since) == (None, 5.0)
    assert SessionRecord.from_json(json.loads(json.dumps(read.to_json()))) == read


def test_a_dead_session_that_another_process_cleans_up_meanwhile_leaves_no_log(monkeypatch):
    session = written(created=1.0)
    open_log = spawn._log

    def after_the_other(session: str) -> int:
        registry.remove(registry.read(session))
        return open_log(session)

    monkeypatch.setattr(spawn, "_log", after_the_other)
    spawn.after_supervisor(session)()
    assert list(runtime_dir().iterdir()) == []
