"""The keeper of a run on a host: whatever becomes of the connection that has started it, it keeps output and end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from waits import has_ended, wait_until

from pathways_jupyter.multihost.remote import keeper, processes

STARTER = """
import json, sys
from pathways_jupyter.multihost.remote import keeper
print(keeper.start(sys.argv[1], json.loads(sys.argv[2])))
"""


class Kept:
    """One run, started by a process that ends at once."""

    def __init__(self, directory):
        # The directory is named after the run.
        self.directory = directory / "runs" / f"run.{os.getpid()}"
        self.spec = {"run": self.directory.name, "cwd": str(directory), "env": {"WORKER": "3"}}
        self.spec |= {"grace": 0.5, "lease": 60.0, "limit": 1 << 20}

    def start(self, command, **spec):
        spec = {**self.spec, **spec, "command": command}
        words = [sys.executable, "-c", STARTER, str(self.directory), json.dumps(spec)]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    @property
    def output(self):
        return (self.directory / keeper.OUTPUT).read_bytes()

    def end(self):
        wait_until(lambda: keeper.outcome(str(self.directory)))
        assert not processes.of_run(self.spec["run"])
        return keeper.outcome(str(self.directory))


@pytest.fixture
def kept(tmp_path):
    made = Kept(tmp_path)
    yield made
    keeper.ask_to_stop(str(made.directory))
    wait_until(lambda: not processes.of_run(made.spec["run"]))


def test_output_and_exit_code_outlive_the_process_that_started_it(kept, tmp_path):
    gate = tmp_path / "gate"
    started = kept.start(f"echo $WORKER; while [ ! -e {gate} ]; do sleep 0.05; done; echo end >&2; exit 7")
    assert started.stdout == "True\n", started.stderr
    assert keeper.outcome(str(kept.directory)) is None
    # Started once, however often it is requested.
    assert kept.start("echo twice").stdout == "False\n"
    gate.touch()
    ended = kept.end()
    assert (ended["code"], ended["why"]) == (7, "exited")
    assert 0 < ended["seconds"] < 60
    assert kept.output == b"3\nend\n"


def test_a_command_that_cannot_be_started_leaves_nothing(kept, tmp_path):
    failed = kept.start("true", cwd=str(tmp_path / "nowhere"))
    assert "No such file or directory" in failed.stderr
    assert not kept.directory.exists()
    assert kept.start("true").stdout == "True\n"
    assert kept.end()["code"] == 0


def test_it_ends_what_has_no_mark_in_its_environment_too(kept, tmp_path):
    pid = tmp_path / "pid"
    kept.start(f"env -i setsid sh -c 'echo $$ > {pid}; exec sleep 300' & while true; do sleep 0.1; done")
    wait_until(lambda: pid.exists() and pid.read_text())
    keeper.ask_to_stop(str(kept.directory))
    assert kept.end()["why"] == "stopped"
    assert has_ended(int(pid.read_text()))


def test_on_request_also_what_the_commands_children_have_started_can_clean_up(kept, tmp_path):
    up, saved = tmp_path / "up", tmp_path / "saved"
    script = f"trap 'touch {saved}; exit' TERM; touch {up}; while true; do sleep 0.1; done"
    # Without a mark in its environment, so that it is found only as a descendant.
    kept.start(f'sh -c "env -i sh -c \\"{script}\\"; true"; true', grace=30.0)
    wait_until(up.exists)
    keeper.ask_to_stop(str(kept.directory))
    assert kept.end()["why"] == "stopped"
    assert saved.exists()


def test_without_its_client_it_ends_after_the_lease(kept):
    kept.start("sleep 300", lease=0.3)
    assert kept.end()["why"] == "abandoned"


def test_output_beyond_the_limit_is_dropped_and_does_not_stop_the_command(kept):
    kept.start("head -c 3145728 /dev/zero; exit 4")
    assert kept.end()["code"] == 4
    assert len(kept.output) < (1 << 20) + 200
    assert b"longer than 1 MiB on this host; the rest is dropped" in kept.output


def test_its_files_are_the_users_own(kept):
    kept.start("true")
    kept.end()
    for each in (kept.directory, kept.directory.parent):
        assert Path(each).stat().st_mode & 0o077 == 0
