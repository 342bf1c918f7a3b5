"""The documentation's site: its generated pages are complete, and its tutorial runs."""

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pathways_jupyter.base import runtime_files
from pathways_jupyter.service import permissions
from pathways_jupyter.session.clusters import Storage

DOCS = Path(__file__).parents[1] / "docs"
SERVICE = Path(__file__).parents[1] / "pathways_jupyter" / "service"


@pytest.fixture(scope="module")
def generate():
    sys.path.insert(0, str(DOCS))
    yield importlib.import_module("generate")
    sys.path.remove(str(DOCS))


def test_the_tutorial_runs_as_it_is_written(cluster, notebook):
    page = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    here = page.partition("## The same on a real cluster")[0]
    cells = re.findall(r"```python\n(.*?)```", here, re.DOTALL)
    ran = [notebook.run(cell) for cell in cells]
    assert [each.status for each in ran] == ["ok"] * len(cells), [each.shown for each in ran]
    connected, devices, computed, colocated, injected, disconnected = ran
    assert "connected" in connected.text
    assert devices.text.count("TPU_DEVICE") == 8
    # 0*0 + ... + 31*31
    assert "10416" in computed.text
    assert colocated.text.count("(1, 4)") == 8
    assert "slice 1" in injected.text.lower()
    assert "rows" in disconnected.text


@pytest.mark.thorough
def test_the_examples_of_colocated_run_as_they_are_written(cluster, notebook):
    # The tutorial has taken a slice down, which heals.
    notebook.connect("--local --tpu tpuv6e:2x2=2 --wait 60")
    page = (DOCS / "colocated.md").read_text(encoding="utf-8")
    ran = [notebook.run(cell) for cell in re.findall(r"```python\n(.*?)```", page, re.DOTALL)]
    assert [each.status for each in ran] == ["ok"] * 3, [each.shown for each in ran]
    cell, batches, spaces = ran
    assert cell.text.count("this host has") == 2
    # Two hosts with four rows each.
    assert batches.text.count("(8, 8)") == 10
    assert re.search(r"\{0: \d+, 1: \d+\}", spaces.text)


def bash(machine, lines):
    """Run lines of a page in a shell; what they printed."""
    # The embedded cluster has JobSet, and this machine perhaps no network.
    here = "".join(line for line in lines.splitlines(True) if "https://" not in line)
    path = os.pathsep.join([str(Path(sys.executable).parent), machine.environ["PATH"]])
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", here],
        env={**machine.environ, "PATH": path},
        cwd=machine.directory,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@pytest.mark.thorough
def test_the_first_job_of_the_page_about_jobs_runs(cluster, machine):
    lines = re.search(r"```sh\n(.*?)```", (DOCS / "jobs.md").read_text(encoding="utf-8"), re.DOTALL)[1]
    said = bash(machine, lines)
    assert "8 chips" in said
    assert "Job train is deleted." in said


@pytest.fixture
def project(machine, tmp_path):
    """A machine with an embedded cluster that has free nodes, and the file in which its ``gcloud`` is recorded."""
    recorded = tmp_path / "recorded"
    (tmp_path / "gcloud").write_text(f'#!/bin/sh\necho "$*" >> {recorded}\necho 123\n')
    (tmp_path / "gcloud").chmod(0o755)
    with machine.own_cluster("--tpu", "tpuv6e:2x2=1", "--spare", "tpuv6e:2x2=2") as made:
        made.environ["PATH"] = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
        made.environ["KUBECONFIG"] = made.cli("local", "kubeconfig").stdout.strip()
        # The page's bucket is looked for there too, and not at Google's.
        (storage,) = made.runtime.rglob(runtime_files.STORAGE)
        made.environ.update(Storage.read(storage).variables)
        yield made, recorded


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_page_from_an_empty_project_and_back_runs_with_gcloud_recorded(project, open_notebook):
    machine, recorded = project
    page = (DOCS / "clusters.md").read_text(encoding="utf-8").partition("## Try it without a cluster")[0]
    _, names, *blocks = re.findall(r"```(sh|python)\n(.*?)```", page, re.DOTALL)

    machine.environ.update(each.split("=", 1) for each in bash(machine, names[1] + "env -0").split("\0") if "=" in each)
    cells = [code for language, code in blocks if language == "python"]
    first = next(number for number, (language, _) in enumerate(blocks) if language == "python")
    said = bash(machine, "".join(code for _, code in blocks[:first]))
    assert "role.rbac.authorization.k8s.io/pathways-jupyter-user created" in said
    assert "Service team is ready: 2 slices" in said
    notebook = open_notebook(machine)
    connected, devices, disconnected = (notebook.run(cell) for cell in cells)
    assert "connected" in connected.text, connected.shown
    assert devices.text.count("TPU_DEVICE") == 8
    assert disconnected.status == "ok"
    assert "Service team is deleted" in bash(
        machine, "".join(code for language, code in blocks[first:] if language == "sh")
    )
    # What the page creates outside of the cluster, it deletes.
    calls = recorded.read_text(encoding="utf-8").splitlines()
    assert "container node-pools create tpu-1" in "\n".join(calls)
    for create, delete in (
        ("container clusters create tpus", "container clusters delete tpus"),
        ("storage buckets create gs://my-project-pathways", "storage rm --recursive gs://my-project-pathways"),
        *(
            (each, each.replace("add-iam-policy-binding", "remove-iam-policy-binding"))
            for each in calls
            if each.startswith("projects add-iam-policy-binding")
        ),
    ):
        made, gone = ([call.startswith(wanted) for call in calls] for wanted in (create, delete))
        assert (sum(made), sum(gone)) == (1, 1), (create, calls)
        assert made.index(True) < gone.index(True)


def test_troubleshooting_has_every_error(generate):
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    names = {each.rpartition(".")[2] for each in generate.error_classes()} - {"PathwaysError"}
    assert len(names) > 20
    assert sorted(each for each in names if f"\n### {each}\n" not in page) == []


def test_troubleshooting_has_every_finding_of_the_doctor():
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    named = set()
    for module in ("doctor.py", "checks.py"):
        for call in ast.walk(ast.parse((SERVICE / module).read_text(encoding="utf-8"))):
            match call:
                case ast.Call(func=ast.Name(id="Finding" | "failed"), args=[ast.Constant(value=name), *_]):
                    named.add(name)
    assert len(named) > 8
    assert [each for each in sorted(named) if f"\n({each.replace(' ', '-')})=\n### " not in page] == []


def test_every_command_and_route_has_its_entry(generate, tmp_path):
    generate.write(tmp_path)
    pages = {each.name: each.read_text(encoding="utf-8") for each in (tmp_path / "reference" / "generated").iterdir()}
    assert {"magics.md", "terminal.md", "errors.md", "events.md", "labels.md", "routes.md"} <= set(pages)
    for name in ("%pathways connect", "%pathways job apply", "%colocated hosts", "%%colocated", "%%multihost"):
        assert f"\n## `{name}`\n" in pages["magics.md"]
    for name in ("run", "demo", "service deploy", "multihost", "operator manifests", "local up"):
        assert f"\n## `pathways-jupyter {name}`\n" in pages["terminal.md"]
    # A line of a table without a meaning is one that is not explained.
    for name in ("errors.md", "labels.md", "routes.md", *(f"{role}.txt" for role in permissions.BY_ROLE)):
        assert "|  |\n" not in pages[name], name
