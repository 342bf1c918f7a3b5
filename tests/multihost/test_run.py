"""A command on real sshd processes: what comes back, how it ends, and that nothing is left running."""

import asyncio
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from runs import DEADLINE

from pathways_jupyter.multihost import hostrun, output, run
from pathways_jupyter.multihost.errors import MultihostError
from pathways_jupyter.multihost.run_events import HostPhase, Output

IGNORES = "trap '' TERM; echo ready; (trap '' TERM; setsid sleep 300) & while true; do sleep 1; done"


async def test_the_command_runs_everywhere_in_the_sent_directory_and_its_output_comes_back(lab):
    (lab.code / "sub").mkdir()
    (lab.code / "sub" / "data.txt").write_text("content")
    done = await lab.run("cat sub/data.txt; echo; echo slice $SLICE worker $WORKER of $WORKERS", 3, name="fan-out")
    assert done.code == 0
    for number in range(3):
        assert done.lines[f"0-{number}"] == ["content", f"slice 0 worker {number} of 3"]
        log = lab.directory / "logs" / "fan-out" / f"output_slice_0000_worker_000{number}.txt"
        assert log.read_text() == f"content\nslice 0 worker {number} of 3\n"
        assert (output.tail(log, 0), output.tail(log, 1)) == ([], [f"slice 0 worker {number} of 3"])
        assert (lab.farm.hosts[number].home / "fan-out" / "sub" / "data.txt").read_text() == "content"


async def test_one_failure_ends_the_others_and_gives_its_exit_code(lab):
    done = await lab.run("echo up; [ $WORKER = 1 ] && exit 7; sleep 300", 3)
    assert done.code == 7
    assert done.status("0-1").code == 7
    assert {done.status("0-0").phase, done.status("0-2").phase} == {HostPhase.STOPPED}
    assert any("failed; the others are ended" in note for note in done.notes)
    assert lab.farm.left() == []


async def test_with_keep_going_the_others_finish_and_the_worst_code_counts(lab):
    command = "case $WORKER in 0) exit 3;; 1) sleep 1; echo finished;; 2) kill -9 $$;; esac"
    done = await lab.run(command, 3, keep_going=True)
    assert done.code == 128 + 9
    assert [each.exit_code for each in done.ended.hosts] == [3, 0, 137]
    assert done.lines["0-1"] == ["finished"]


async def test_a_command_that_ignores_sigterm_is_killed_with_everything_that_it_started(lab):
    done = await lab.run(f"if [ $WORKER = 0 ]; then {IGNORES}; else sleep 1; exit 1; fi")
    assert done.code == 1
    assert done.status("0-0").code == -9
    assert lab.farm.left() == []


async def test_what_a_handler_of_sigterm_starts_is_left_alone_until_the_grace_is_over(lab):
    saves = "trap 'sleep 1 && echo saved; exit 3' TERM; echo up; while true; do sleep 0.1; done"
    # Closing it once it is up ends it.
    seen = await lab.run(saves, 1, until=lambda seen: seen.lines, grace=30.0)
    (host,) = seen.runner.hosts
    assert (host.phase, host.code) == (HostPhase.STOPPED, 3)
    assert seen.log().endswith(b"saved\n")
    assert lab.farm.left() == []


async def test_a_hosts_clock_that_is_set_does_not_end_the_run(lab):
    def set_the_clock(seen):
        # For what runs there, a clock that is set forward makes the client's last sign of life old.
        if seen.lines.get("0-0") == ["up"]:
            on_host = seen.run.on(seen.run.targets[0])
            os.utime(lab.farm.hosts[0].home / ".pathways-jupyter" / "runs" / on_host / "client", (0, 0))

    command = "echo up; for second in 1 2 3; do sleep 1; echo $second; done"
    done = await lab.run(command, 1, until=set_the_clock, lease=60.0)
    assert (done.status("0-0").phase, done.code) == (HostPhase.EXITED, 0)


async def test_a_command_that_ends_leaves_nothing_in_the_background(lab):
    done = await lab.run("(setsid nohup sleep 300 >/dev/null 2>&1 &) ; sleep 300 & echo done", 1)
    assert (done.code, done.lines["0-0"]) == (0, ["done"])
    assert lab.farm.left() == []


async def test_closing_the_run_ends_it_on_the_hosts(lab):
    seen = await lab.run(f"echo up; {IGNORES}", until=lambda seen: len(seen.lines) == 2)
    assert seen.ended is None
    assert lab.farm.left() == []
    assert {each.phase for each in seen.runner.hosts} == {HostPhase.STOPPED}


async def test_binary_output_and_a_last_line_without_end_arrive_unchanged(lab):
    content = os.urandom(1 << 20) + b"\nlast"
    (lab.code / "blob").write_bytes(content)
    done = await lab.run("cat blob", 1)
    assert done.log() == content
    assert done.lines["0-0"][-1] == "last"


async def test_a_flood_of_output_arrives_whole(lab):
    # More than all that may wait to be shown at once.
    size = run._QUEUED_EVENTS * hostrun._SEND_BYTES * 3 // 2
    done = await lab.run(f"yes 0123456789abcde | head -c {size}")
    assert done.code == 0
    for number in range(2):
        log = done.run.log(done.run.targets[number])
        assert log.stat().st_size == size
        assert log.open("rb").read(16) == b"0123456789abcde\n"


async def test_all_hosts_start_only_when_the_slowest_is_ready(lab):
    (lab.code / "large").write_bytes(os.urandom(4 << 20))
    slow = lab.farm.hosts[1]
    # Its Python starts only when the others have been ready for a while.
    gate = lab.directory / "gate"
    (slow.home / "python3").write_text(
        f'#!/bin/sh\nwhile [ ! -e {gate} ]; do sleep 0.05; done\nexec {sys.executable} "$@"\n'
    )
    (slow.home / "python3").chmod(0o755)
    slow.environ["PATH"] = f"{slow.home}:{os.environ['PATH']}"
    slow.stop()
    slow.start()
    early = []

    def release_it(seen):
        if not gate.exists() and all(seen.phases.get(each, [0])[-1] is HostPhase.READY for each in ("0-0", "0-2")):
            early.extend(lab.commands())
            gate.touch()

    try:
        done = await lab.run("wc -c < large", 3, until=release_it)
    finally:
        slow.environ.clear()
        slow.stop()
        slow.start()
    assert done.code == 0
    assert gate.exists()
    assert not early, "a command ran before all hosts were ready"
    assert {tuple(lines) for lines in done.lines.values()} == {(str(4 << 20),)}


async def test_a_dropped_connection_neither_ends_the_command_nor_starts_it_twice(lab):
    release, cut = lab.directory / "release", []

    def break_it(seen):
        if len(seen.lines) == 2 and not cut:
            cut.extend(host.cut() for host in lab.farm.hosts[:2])
        if (
            cut
            and not release.exists()
            and all(HostPhase.RECONNECTING in seen.phases[label] for label in ("0-0", "0-1"))
        ):
            # Only the connections were gone: the commands still run.
            assert len(lab.commands()) == 2
            release.touch()

    command = (
        f"echo started >> count; echo up; while [ ! -e {release} ]; do sleep 0.05; done; echo after; wc -l < count"
    )
    done = await lab.run(command, until=break_it)
    assert all(cut)
    assert done.code == 0
    assert done.lines == {"0-0": ["up", "after", "1"], "0-1": ["up", "after", "1"]}
    assert done.log() == b"up\nafter\n1\n"


@pytest.mark.thorough
async def test_a_host_that_goes_away_for_good_ends_the_others(lab, monkeypatch):
    monkeypatch.setattr("pathways_jupyter.multihost.hostrun.PATIENCE_SECONDS", 1.0)
    host = lab.farm.hosts[1]

    def break_it(seen):
        if len(seen.lines) == 2 and host.process is not None:
            host.stop()

    done = await lab.run("echo up; sleep 300", 2, lease=5.0, until=break_it)
    host.start()
    assert done.code == 255
    assert (done.status("0-0").phase, done.status("0-1").phase) == (HostPhase.STOPPED, HostPhase.LOST)
    assert "cannot be reached" in done.status("0-1").message
    # Without its client the lost host ends the run itself.
    assert lab.farm.left() == []


async def test_a_stop_does_not_wait_long_for_a_host_that_is_out_of_reach(lab, monkeypatch):
    monkeypatch.setattr("pathways_jupyter.multihost.hostrun.PATIENCE_SECONDS", 10 * DEADLINE)
    monkeypatch.setattr("pathways_jupyter.multihost.hostrun._HURRIED_SECONDS", 0.1)
    host = lab.farm.hosts[1]

    def stop(seen):
        if len(seen.lines) == 2 and host.process is not None:
            host.stop()
        if HostPhase.RECONNECTING in seen.phases.get("0-1", ()):
            seen.runner._stopping.set()

    done = await lab.run("echo up; sleep 300", 2, lease=5.0, until=stop)
    host.start()
    assert (done.status("0-0").phase, done.status("0-1").phase) == (HostPhase.STOPPED, HostPhase.LOST)
    assert lab.farm.left() == []


@pytest.mark.thorough
def test_a_run_whose_client_was_killed_ends_on_the_hosts(lab):
    program = """
        import asyncio, sys
        from pathlib import Path
        from pathways_jupyter.multihost import run
        from pathways_jupyter.multihost.targets import Selection
        from pathways_jupyter.multihost.run_events import Output

        async def main():
            selection = Selection(hosts=sys.argv[1], keys=(sys.argv[2],), known_hosts=sys.argv[3])
            request = run.RunRequest("echo up; sleep 300", Path(sys.argv[4]), "killed", lease=5.0)
            async for event in run.start(selection, request):
                if isinstance(event, Output):
                    print("up", flush=True)

        asyncio.run(main())
    """
    selection = lab.selection(2)
    arguments = [selection.hosts, *selection.keys, selection.known_hosts, str(lab.code)]
    client = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *arguments], stdout=subprocess.PIPE, cwd=lab.directory
    )
    assert [client.stdout.readline() for _ in range(2)] == [b"up\n"] * 2
    client.kill()
    client.wait()
    client.stdout.close()
    assert lab.farm.left() == []


async def test_a_killed_keeper_is_noticed_and_leaves_nothing(lab):
    killed = []

    def kill(seen):
        if seen.lines and not killed:
            (command,) = lab.commands()
            killed.append(command.parent())
            killed[0].kill()

    done = await lab.run("echo up; sleep 300; true", 1, until=kill)
    assert done.code == 255
    assert "keeper" in done.status("0-0").message
    assert lab.farm.left() == []


async def test_runs_without_a_name_that_begin_in_the_same_second_have_logs_of_their_own(lab, monkeypatch):
    monkeypatch.setattr(run.time, "strftime", lambda *_: "2026-01-02-03-04-05")
    first, second = await lab.run("echo one", 1), await lab.run("echo two", 1)
    assert [first.run.name, second.run.name] == ["2026-01-02-03-04-05", "2026-01-02-03-04-05-2"]
    assert [first.log(), second.log()] == [b"one\n", b"two\n"]


async def test_a_second_run_does_not_write_into_the_logs_of_one_that_goes_on(lab):
    started = lab.events("echo first; sleep 300", 1, name="same")
    async with asyncio.timeout(DEADLINE):
        async for event in started:
            if isinstance(event, Output):
                break
        with pytest.raises(MultihostError, match=r"A run that goes on writes .*output_slice_0000_worker_0000"):
            await lab.run("echo second", 1, name="same")
        assert (lab.directory / "logs" / "same" / "output_slice_0000_worker_0000.txt").read_bytes() == b"first\n"
        await started.aclose()
    assert (await lab.run("echo second", 1, name="same")).log() == b"second\n"


async def test_a_run_leaves_none_of_its_own_files_on_the_hosts(lab):
    ended = await lab.run("echo up; exit 3", 2)
    left = await lab.run("echo up; sleep 300", 2, until=lambda seen: len(seen.lines) == 2)
    assert (ended.code, {each.phase for each in left.runner.hosts}) == (3, {HostPhase.STOPPED})
    for seen in (ended, left):
        for host, target in zip(lab.farm.hosts, seen.run.targets, strict=False):
            assert not (host.home / ".pathways-jupyter" / "runs" / seen.run.on(target)).exists()


async def test_a_log_that_cannot_be_written_any_more_ends_the_run_on_all_hosts(lab):
    filled = []

    def fill_the_disk(seen):
        if len(seen.lines) == 2 and not filled:
            filled.append(True)
            with open("/dev/full", "wb") as full:
                os.dup2(full.fileno(), seen.runner._hosts[1]._log._file.fileno())

    command = "echo up; while [ $WORKER = 1 ]; do sleep 0.2; echo more; done; sleep 300"
    with pytest.raises(MultihostError, match="cannot be written: No space left on device") as error:
        await lab.run(command, 2, until=fill_the_disk)
    assert "--log-dir" in error.value.hint
    assert lab.farm.left() == []


async def test_processes_that_hold_the_chips_are_named_and_ended_on_request(lab, monkeypatch):
    chip = lab.directory / "accel0"
    chip.touch()
    monkeypatch.setattr(run, "CHIPS", (str(chip),))
    program = f"import sys, time; file = open({str(chip)!r}); print(flush=True); time.sleep(300)"
    stale = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    try:
        await stale.stdout.readline()
        left = await lab.run("true", 1)
        (note,) = [each for each in left.notes if "TPU chips" in each]
        assert f"(process {stale.pid}) holds the TPU chips; --free-chips ends it." in note
        assert stale.returncode is None
        ended = await lab.run("true", 1, free_chips=True)
        assert any(f"(process {stale.pid}) held the TPU chips, and was ended." in each for each in ended.notes)
        assert ended.code == 0
        assert await asyncio.wait_for(stale.wait(), DEADLINE) != 0
    finally:
        if stale.returncode is None:
            stale.kill()
            await stale.wait()


@pytest.fixture
def libtpu_lock():
    """The lock of a process that was killed."""
    lock = Path("/tmp/libtpu_lockfile")
    lock.touch()
    yield lock
    lock.unlink(missing_ok=True)


async def test_the_lock_that_a_killed_process_has_left_is_removed_on_request(lab, libtpu_lock):
    assert (await lab.run("true", 1)).code == 0
    assert libtpu_lock.exists()
    assert (await lab.run("true", 1, free_chips=True)).code == 0
    assert not libtpu_lock.exists()
