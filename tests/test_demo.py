"""The demo, as a stranger runs it."""

import json
import re
import signal
import subprocess
import sys

import psutil
import pytest
from waits import has_ended, wait_until

STEPS = ["connect", "compute", "all-reduce", "interruption", "slice-lost", "elastic", "disconnect"]


@pytest.mark.timeout(300)
def test_every_step_of_the_demo_holds_and_is_timed(machine):
    demo = machine.cli("demo", timeout=270)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    output = re.findall(r"^✓ (\S+) +[0-9.]+ (?:s|min)", demo.stdout, re.MULTILINE)
    assert output == STEPS
    assert "DATA_LOSS" in demo.stdout
    assert "0 Jobs, 0 Pods, 0 Leases, 0 sockets, 0 session files, 0 supervisors" in demo.stdout
    assert "Left behind: nothing." in demo.stdout
    assert "\x1b" not in demo.stdout


@pytest.mark.soak
def test_the_demo_is_there_for_programs_too(machine):
    demo = machine.cli("demo", "--json")
    assert demo.returncode == 0, demo.stderr
    output = json.loads(demo.stdout)
    assert [each["name"] for each in output["results"] if each["outcome"] == "passed"] == STEPS
    assert output["passed"] is True


def test_interrupting_the_demo_leaves_nothing(machine):
    place = machine.directory / "tmp"
    place.mkdir()
    demo = subprocess.Popen(
        [sys.executable, "-u", "-m", "pathways_jupyter", "demo"],
        env={**machine.environ, "TMPDIR": str(place)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert "Pathways on this machine" in demo.stdout.readline()
    demo.send_signal(signal.SIGINT)
    output, _ = demo.communicate(timeout=100)
    assert demo.returncode == 130
    assert "Traceback" not in output
    assert list(place.iterdir()) == []
    left = [process.pid for process in psutil.process_iter() if str(place) in runtime_of(process)]
    wait_until(lambda: all(map(has_ended, left)))


def runtime_of(process):
    try:
        return process.environ().get("JUPYTER_RUNTIME_DIR", "")
    except psutil.Error:
        return ""
