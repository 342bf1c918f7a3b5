"""A run of the tests leaves no process: it counts them and fails, and what ends it in another way ends them too."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waits import has_ended, wait_until

TESTS = Path(__file__).parent
HOOKS = f"""
import importlib.util, sys

sys.path[:0] = [{str(TESTS / "support")!r}]
import run_processes

run_processes.GRACE_SECONDS = 0.5
spec = importlib.util.spec_from_file_location("hooks", {str(TESTS / "conftest.py")!r})
hooks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hooks)
pytest_configure, pytest_sessionfinish = hooks.pytest_configure, hooks.pytest_sessionfinish
"""
FORGETFUL = """
import pathlib, subprocess, time

def test_leaves_a_process():
    left = subprocess.Popen(["sleep", "300"], start_new_session=True, stdin=subprocess.DEVNULL)
    there = pathlib.Path(__file__).parent
    (there / "written").write_text(str(left.pid))
    (there / "written").rename(there / "pid")
    time.sleep({seconds})
"""


@pytest.fixture
def nested(tmp_path):
    """Start a run of one test, which leaves a process and then goes on for so many seconds."""

    def start(seconds: float) -> subprocess.Popen:
        (tmp_path / "conftest.py").write_text(HOOKS)
        (tmp_path / "test_it.py").write_text(FORGETFUL.format(seconds=seconds))
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", "-n", "1", "-p", "no:cacheprovider", str(tmp_path)],
            env=environ,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )

    return start


def test_a_run_that_leaves_a_process_names_it_ends_it_and_fails(nested, tmp_path):
    run = nested(0)
    said, _ = run.communicate(timeout=100)
    assert "1 passed" in said
    pid = int((tmp_path / "pid").read_text())
    assert "The tests left 1 process" in said
    assert f"{pid} sleep 300" in said
    assert run.returncode == 1
    wait_until(lambda: has_ended(pid))


@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, *(pytest.param(each, marks=pytest.mark.soak) for each in (signal.SIGINT, signal.SIGTERM))],
)
def test_a_run_that_is_ended_leaves_none_either(nested, tmp_path, number):
    with nested(300) as run:
        wait_until((tmp_path / "pid").exists)
        run.send_signal(number)
        run.communicate(timeout=100)
    wait_until(lambda: has_ended(int((tmp_path / "pid").read_text())))
