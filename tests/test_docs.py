"""What the documents promise, held against the code."""

import re
from pathlib import Path

import yaml

from pathways_jupyter.service.doctor import NEEDS

DOCS = Path(__file__).parents[1] / "docs"


def test_the_first_lines_of_the_readme_do_what_they_say(cluster, notebook):
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    ran = notebook.run(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1])
    assert ran.status == "ok", ran.shown
    assert ran.text.count("TPU_DEVICE") == 8


def test_the_role_in_the_permissions_grants_what_the_doctor_asks_for():
    text = (DOCS / "permissions.md").read_text(encoding="utf-8")
    role = yaml.safe_load(re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1])
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    asked = {
        (need.resource.group, "/".join(filter(None, (need.resource.plural, need.subresource))), verb)
        for need in NEEDS
        for verb in need.verbs
    }
    assert asked == granted
