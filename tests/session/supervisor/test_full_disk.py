"""Bookkeeping that fails never keeps a session's proxy in the cluster."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import scripts
from waits import wait_until

from pathways_jupyter.actions import doctor
from pathways_jupyter.base.config import ConnectConfig, runtime_dir
from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.session import protocol, registry, sweep
from pathways_jupyter.session.kernel import spawn
from pathways_jupyter.session.kernel.supervisor_link import SupervisorLink
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.session.registry import SessionRecord

DEADLINE = 60.0
SUPPORT = Path(__file__).parents[2] / "support"


@pytest.fixture
def connect(config) -> Callable[[SupervisorLink], SessionRecord]:
    """Connect a session of one slice, as a kernel would that leaves JAX alone."""

    def ask(link: SupervisorLink) -> SessionRecord:
        asked = {"config": protocol.config_to_json(config(1)), "kernel_pid": os.getpid()}
        return SessionRecord.from_json(link.answer(link.ask(Method.START, **asked), patience=DEADLINE))

    return ask


@dataclass(frozen=True)
class Disk:
    """A runtime directory whose file system can be made useless for the process `pid`."""

    mounted: bool

    def fill(self, pid: int) -> None:
        if not self.mounted:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))
            return
        with contextlib.suppress(OSError), (runtime_dir() / "ballast").open("wb") as ballast:
            while True:
                ballast.write(bytes(4096))
                ballast.flush()

    def freeze(self) -> None:
        if self.mounted:
            # A mount of its own, because files of it are open for writing; and root may write where modes forbid it.
            mount("--bind", str(runtime_dir()), str(runtime_dir()))
            mount("-o", "remount,bind,ro", str(runtime_dir()))
        else:
            runtime_dir().chmod(0o500)

    def thaw(self) -> None:
        if self.mounted:
            subprocess.run(["umount", str(runtime_dir())], check=True, capture_output=True)
        else:
            runtime_dir().chmod(0o700)


def mount(*arguments: str, check: bool = True) -> bool:
    return subprocess.run(["mount", *arguments], check=check, capture_output=True).returncode == 0


@pytest.fixture
def disk(cluster, tmp_path, monkeypatch) -> Iterator[Disk]:
    """A small file system of its own where this process may mount one; else what every user can do."""
    place = tmp_path / "rt"
    place.mkdir()
    options = ("-t", "tmpfs", "-o", "size=128k,mode=0700", "tmpfs", str(place))
    mounted = os.geteuid() == 0 and mount(*options, check=False)
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(place))
    yield Disk(mounted)
    if mounted:
        subprocess.run(["umount", "--lazy", str(place)], check=True, capture_output=True)


def files_of(session: str) -> list[str]:
    return [path.name for path in runtime_dir().iterdir() if session in path.name]


def lowest_free_descriptor(pid: int) -> int:
    """The number that the next descriptor of a process gets; a limit is on numbers, and there may be gaps."""
    used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    return next(number for number in itertools.count() if number not in used)


@pytest.mark.thorough
@pytest.mark.parametrize("chosen", ["the first and the last", pytest.param("any", marks=pytest.mark.soak)])
def test_a_disk_that_is_full_from_a_write_on_leaves_nothing_behind(chosen, connect, gone, monkeypatch, tmp_path):
    writes = tmp_path / "writes"
    monkeypatch.setattr(spawn, "SUPERVISOR", "failing_supervisor")
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    monkeypatch.setenv("WRITES", str(writes))
    monkeypatch.setenv("FAIL_FROM", "0")
    link = spawn.supervisor()
    connect(link)
    assert link.close(patience=DEADLINE)
    total = int(writes.read_text())
    refused: list[str] = []
    for number in range(1, total + 1) if chosen == "any" else (1, 2, 3, total):
        monkeypatch.setenv("FAIL_FROM", str(number))
        link = spawn.supervisor()
        try:
            connect(link)
        except SessionError as error:
            refused.append(f"{error} {error.hint}")
        assert link.close(patience=DEADLINE)
        gone(link.session)
    # Only what a sweep needs has to be on disk before anything is made in the cluster.
    assert len(refused) == 2
    assert total > 3
    for words in refused:
        assert "cannot be written: File too large" in words
        assert "JUPYTER_RUNTIME_DIR" in words


def test_a_full_file_system_does_not_keep_the_proxy(disk, connect, gone):
    link = spawn.supervisor()
    record = connect(link)
    disk.fill(record.pid)
    assert link.close(patience=DEADLINE)
    gone(record.id)
    assert files_of(record.id) == []


def test_a_reconnect_that_cannot_be_recorded_leaves_the_proxy_as_it_was(disk, connect, gone):
    link = spawn.supervisor()
    record = connect(link)
    disk.fill(record.pid)
    with pytest.raises(SessionError, match=r"cannot be written: (No space left|File too large)"):
        link.answer(link.ask(Method.RECONNECT), patience=DEADLINE)
    now = SessionRecord.from_json(link.answer(link.ask(Method.STATUS), patience=DEADLINE))
    assert (now.state, now.pod, now.generation) == (record.state, record.pod, record.generation)
    assert link.close(patience=DEADLINE)
    gone(record.id)


def test_a_directory_that_has_become_read_only_keeps_files_and_nothing_else(disk, connect, counted):
    link = spawn.supervisor()
    record = connect(link)
    disk.freeze()
    try:
        left = link.answer(link.ask(Method.DISCONNECT), patience=DEADLINE)["left"]
        assert link.close(patience=DEADLINE)
        # The cluster ends what the deleted Job owned in its own time.
        wait_until(
            lambda: not any(counted(record.id)[each] for each in ("jobs", "leases", "pods", "processes")), DEADLINE
        )
    finally:
        disk.thaw()
    assert "could not be removed: " in left
    assert files_of(record.id)
    assert asyncio.run(sweep.sweep_dead()) == [record.id]
    assert files_of(record.id) == []


def test_a_supervisor_without_a_free_descriptor_removes_its_proxy(connect, gone):
    link = spawn.supervisor()
    record = connect(link)
    free = lowest_free_descriptor(record.pid)
    resource.prlimit(record.pid, resource.RLIMIT_NOFILE, (free, free))
    assert link.close(patience=DEADLINE)
    gone(record.id)


WITHOUT_DESCRIPTORS = """
import os, resource
from pathways_jupyter.session.kernel import spawn
# The lowest one is free again when the others have been listed, and the log takes it.
used = set(map(int, os.listdir("/proc/self/fd")))
limit = next(number for number in range(1000) if number not in used)
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
spawn.supervisor()
"""


def test_a_supervisor_that_cannot_be_started_leaves_no_log(runtime):
    before = set(runtime.iterdir())
    # A process of its own, in which no other thread opens something meanwhile.
    failed = scripts.run(WITHOUT_DESCRIPTORS)
    assert "SessionError: The session's supervisor could not be started: Too many open files." in failed.stderr
    # Files of a session that has just ended may go meanwhile.
    assert set(runtime.iterdir()) <= before


def test_a_record_that_cannot_be_written_leaves_the_former_one_and_no_temporary_file(disk, connect):
    link = spawn.supervisor()
    record = connect(link)
    before = registry.read(record.id)
    if disk.mounted:
        disk.fill(os.getpid())
        with pytest.raises(OSError, match="No space left"):
            registry.write(record)
        assert registry.read(record.id) == before
        assert [name for name in files_of(record.id) if name.endswith(".tmp")] == []
    assert link.close(patience=DEADLINE)


def test_the_doctor_says_whether_sessions_can_write_their_files(disk, monkeypatch, tmp_path):
    def found():
        findings = doctor.examine(ConnectConfig(kubeconfig=str(tmp_path / "none")))
        return next(each for each in findings if each.name == "files")

    runtime_dir()
    if disk.mounted:
        # 128 kB are enough for a session, and nothing for a disk.
        assert (found().level, "Only " in found().message) == (Tone.WARN, True)
        disk.fill(os.getpid())
        assert found().level is Tone.FAIL
        assert "cannot write their files" in found().message
        assert "JUPYTER_RUNTIME_DIR" in found().hint
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "other"))
    assert found().level is Tone.OK
