"""Promises of the documents, held against the code."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from permissions import LAB, USER, documented_grants

from pathways_jupyter.base import config, runtime_files, tpu
from pathways_jupyter.server.extension import PathwaysJupyter
from pathways_jupyter.service.deployment import HEAD_POOL
from pathways_jupyter.service.pathwaysjob import definition
from pathways_jupyter.service.permissions import LAB_NEEDS
from pathways_jupyter.session import clusters, variables

DEADLINE = 90.0
DOCS = Path(__file__).parents[1] / "docs"


def test_the_first_lines_of_the_readme_do_what_they_say(cluster, notebook):
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    ran = notebook.run(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1])
    assert ran.status == "ok", ran.shown
    assert ran.text.count("TPU_DEVICE") == 8


def test_the_readme_is_a_page_that_fits_a_terminal():
    lines = (DOCS.parent / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 100
    assert not [line for line in lines if len(line) > 120]


@pytest.mark.skipif(not (DOCS.parent / ".git").exists(), reason="not a clone")
def test_each_link_of_a_page_leads_to_a_file_of_the_clone():
    root = DOCS.parent
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    there = {root / each for each in listed} | {parent for each in listed for parent in (root / each).parents}
    pages = [root / each for each in listed if each.endswith((".md", ".ipynb")) and not (root / each).is_symlink()]
    broken = [
        f"{page.relative_to(root)}: {link}"
        for page in pages
        for link in re.findall(r"\]\(([^)\s#]+)[^)\s]*\)", page.read_text(encoding="utf-8"))
        if "://" not in link and Path(os.path.normpath(page.parent / link)) not in there
    ]
    assert not broken


def test_the_page_of_settings_has_each_with_its_sentence_default_and_alias():
    page = _section((DOCS / "settings.md").read_text(encoding="utf-8"), "Settings")
    # The page has links and marks for code.
    plain = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", page).replace("`", "")
    rows = [[cell.strip() for cell in line.split("|")[1:5]] for line in plain.splitlines() if line.startswith("| ")]
    table = rows[rows.index(["setting", "what it is", "default", "alias"]) + 2 :]
    declared = [[each.name, each.about, each.shown, each.alias] for each in config.SETTINGS.values()]
    missing = ["| " + " | ".join(each) + " |" for each in declared if each not in table]
    assert not missing, "docs/settings.md lacks these rows, or has them with other words"
    assert table == declared, "docs/settings.md has other rows, or another order"


def test_the_page_of_settings_names_those_of_the_sidebar_and_the_server():
    page = (DOCS / "settings.md").read_text(encoding="utf-8")
    schema = json.loads((DOCS.parent / "labextension" / "schema" / "plugin.json").read_text(encoding="utf-8"))
    rows = re.findall(r"^\| ([\w ]+), `(\w+)` \|", _section(page, "The sidebar"), re.MULTILINE)
    assert rows == [(setting["title"], name) for name, setting in schema["properties"].items()]
    server = re.findall(r"^\| `c\.PathwaysJupyter\.(\w+)` \|", _section(page, "The Jupyter server"), re.MULTILINE)
    assert server == list(PathwaysJupyter.class_own_traits(config=True))


def test_the_page_about_programs_names_each_variable_that_one_gets(cluster):
    storage = clusters.Storage.read(cluster.with_name(runtime_files.STORAGE))
    page = _section((DOCS / "programs.md").read_text(encoding="utf-8"), "What the program gets")
    rows = re.findall(r"^\| (`[A-Z].*?) \|", page, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    ours = {variables.PLATFORMS, variables.TARGET, variables.INSECURE_CREDENTIALS, "JAX_PLATFORM_NAME"}
    given = {*ours, *storage.variables}
    assert sorted(named) == sorted(given)


def _section(page: str, title: str) -> str:
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_python_on_the_page_of_settings_runs(machine, cluster):
    page = (DOCS / "settings.md").read_text(encoding="utf-8")
    script = re.search(r"```python\n(import pathways_jupyter\n.*?)```", page, re.DOTALL)[1]
    done = machine.python("-c", script, timeout=DEADLINE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Session ")


def test_a_user_who_starts_labs_may_do_all_that_starting_one_asks_for():
    asked = {(need.resource.group, str(need), verb) for need in LAB_NEEDS for verb in need.verbs}
    assert asked <= documented_grants(LAB) | documented_grants(USER)


def test_the_page_about_jobs_has_every_field():
    def leaves(schema, path=""):
        for name, each in schema["properties"].items():
            below = each.get("items", each)
            if "properties" in below and name not in {"template", "customEnv"}:
                yield from leaves(below, f"{path}{name}{'[]' if 'items' in each else ''}.")
            else:
                yield f"{path}{name}"

    page = (DOCS / "jobs.md").read_text(encoding="utf-8").partition("## The fields")[2].partition("\n## ")[0]
    written = re.findall(r"^\| `([\w.\[\]]+)` \|", page, re.MULTILINE)
    assert sorted(written) == sorted(leaves(definition.schema()["properties"]["spec"]))


def test_the_page_about_clusters_makes_node_pools_that_fit():
    page = (DOCS / "clusters.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| `(\w+):(\w+)`.* \| (\d+) \|$", page, re.MULTILINE)
    assert [(name, version, int(chips)) for name, version, _, chips in rows] == [
        (each.name, each.version, each.chips) for each in tpu.MACHINES
    ]
    for _, version, topology, _ in rows:
        assert str(tpu.parse_instance_type(f"{version}:{topology}")) == f"{version}:{topology}"
    pools = re.findall(r"--machine-type=(ct\S+) --tpu-topology=(\S+) --num-nodes=(\d+)", page)
    assert len(pools) == 2
    for machine, topology, nodes in pools:
        assert tpu.parse_instance_type(f"{machine}:{topology}").hosts == int(nodes)
    assert f"node-pools create {HEAD_POOL} " in page
