"""The example of elastic training in a job runs as it is written, from the job's start to its end."""

import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "elastic" / "end_to_end.py"


awk = pytest.mark.skipif(shutil.which("awk") is None, reason="awk is not installed")
LOG = """\
step=4 elastic_manager.elastic_down_event_count=0 elastic_manager.good_slice_count=3 loss=1.5
slice 1 lost before step 6 was complete.
step=5 elastic_manager.elastic_down_event_count=1 elastic_manager.good_slice_count=2 loss=1.4
step=6 elastic_manager.elastic_down_event_count=1 elastic_manager.good_slice_count=2 loss=1.3
step=7 elastic_manager.elastic_down_event_count=1 elastic_manager.good_slice_count=3 loss=1.2
"""


@awk
def test_the_script_prints_the_steps_at_which_the_slices_changed():
    script = EXAMPLE.with_name("slice_changes.awk")
    ran = subprocess.run(["awk", "-f", str(script)], input=LOG, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [
        "Step: 5, Old Slice Count: 3, New Slice Count: 2",
        "Step: 7, Old Slice Count: 2, New Slice Count: 3",
    ]


def test_the_job_is_one_that_the_cluster_takes(machine, cluster, tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(runpy.run_path(str(EXAMPLE))["manifest"]("elastic-example", "python:3.12", "gs://b")))
    checked = machine.cli("job", "apply", str(path), "--dry-run", "--local")
    assert checked.returncode == 0, checked.stderr
    refused = machine.cli("elastic", "inject", "slice-down", "0", "--job", "elastic-example", "--local")
    assert refused.returncode == 1
    assert "elastic-example" in refused.stderr


@awk
@pytest.mark.soak
@pytest.mark.timeout(400)
def test_a_job_loses_a_slice_trains_on_two_and_gets_it_back(machine, cluster, tmp_path):
    log = tmp_path / "elastic.log"
    ran = machine.python(str(EXAMPLE), "--local", "--name", "elastic-example", "--log", str(log), timeout=380)
    assert ran.returncode == 0, ran.stdout + ran.stderr + log.read_text(encoding="utf-8")[-3000:]
    # What the script for the log prints, in the words of Pathways' own example.
    changes = re.findall(r"^Step: \d+, Old Slice Count: (\d), New Slice Count: (\d)$", ran.stdout, re.MULTILINE)
    assert changes == [("3", "2"), ("2", "3")]
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("step=")]
    assert all("elastic_manager.elastic_down_event_count=" in line for line in lines)
    assert "elastic-example" not in machine.cli("job", "list", "--local").stdout
