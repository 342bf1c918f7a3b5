from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from pathways_jupyter.colocated import host_versions, packages, preflight
from pathways_jupyter.colocated.errors import CheckError
from pathways_jupyter.colocated.memory import Facts

HERE = {"python": "3.12.4", "jax": "0.10.2", "jaxlib": "0.10.2", "numpy": "2.4.0"}


def test_equal_versions_are_no_difference() -> None:
    assert host_versions.differences(HERE, {0: dict(HERE), 1: dict(HERE)}) == []


def test_versions_are_compared_component_by_component_and_reported_with_their_hosts() -> None:
    found = host_versions.differences(HERE, {0: {**HERE, "numpy": "2.3.1"}, 1: {**HERE, "python": "3.11.9"}, 2: HERE})
    assert [str(each) for each in found] == [
        "python 3.11.9 on host 1, 3.12.4 here",
        "numpy 2.3.1 on host 0, 2.4.0 here",
    ]


@pytest.mark.parametrize(
    ("component", "there", "severe"),
    [
        ("python", "3.12.9", False),
        ("python", "3.13.0", True),
        ("jax", "0.10.0", False),
        ("jax", "0.9.2", True),
        ("numpy", "1.26.0", False),
    ],
)
def test_only_another_minor_version_of_python_or_jax_is_severe(component: str, there: str, severe: bool) -> None:
    (found,) = host_versions.differences(HERE, {0: {component: there}})
    assert found.severe is severe


def test_a_component_that_a_host_does_not_name_is_not_compared() -> None:
    assert host_versions.differences(HERE, {0: {"python": "3.12.4", "jax": "", "torch": "2.9"}}) == []


def test_imports_that_always_happen_are_found() -> None:
    source = "import numpy as np, os.path\nfrom jax.sharding import Mesh\nwith open('x'):\n    import tiktoken\nx = 1\n"
    assert preflight.imported(source) == ["numpy", "os", "jax", "tiktoken"]


def test_imports_that_may_fail_or_not_happen_are_left_to_the_run() -> None:
    source = (
        "try:\n    import fast\nexcept ImportError:\n    fast = None\n"
        "if False:\n    import never\n"
        "def f():\n    import later\n"
        "from . import sibling\n"
    )
    assert preflight.imported(source) == []


def test_missing_packages_are_reported_with_their_hosts() -> None:
    with pytest.raises(CheckError, match=r"grain is not installed on hosts 0, 1; tiktoken is not installed on host 1"):
        preflight.require_packages({0: ["grain"], 1: ["grain", "tiktoken"]}, " ".join)
    preflight.require_packages({0: [], 1: []}, " ".join)


def facts(**changes: Any) -> dict[int, Facts]:
    about = Facts("3.12.1", "/opt/their python/bin/python", True, {"jax": "0.10.0"}, 1, "", "", "", 0, frozenset(), "")
    return {0: replace(about, **changes)}


def test_on_the_embedded_cluster_a_missing_package_is_installed_in_the_hosts_python() -> None:
    advice = packages.advice(["yaml", "not_a_package"], facts())
    # What gives the module here is what gives it there.
    assert "'/opt/their python/bin/python' -m pip install PyYAML not_a_package" in advice


def test_elsewhere_a_missing_package_needs_an_image_on_what_the_sidecars_run(monkeypatch) -> None:
    monkeypatch.setattr(packages, "sidecar_image", lambda: "mine/sidecar:1-python_3.12-jax_0.10.2")
    released = packages.advice(["tiktoken"], facts(embedded=False))
    assert "requirements.txt" in released
    assert released.endswith("pathways-jupyter sidecar build --jax-version 0.10.0")
    other = packages.advice(["tiktoken"], facts(embedded=False, versions={"jax": "0.10.2"}))
    assert other.endswith("--jax-version 0.10.2 --base-image mine/sidecar:1-python_3.12-jax_0.10.2")


def test_what_cannot_be_pickled_is_named_with_what_holds_it_and_why() -> None:
    lock = threading.Lock()

    def inner() -> object:
        return lock

    def outer() -> object:
        return inner()

    with pytest.raises(CheckError, match=r"lock \(lock\), used by inner, used by outer: cannot pickle '_thread.lock'"):
        preflight.pickled(outer, names={"fine": 1, "outer": outer})


def test_the_modules_that_a_pickle_needs_are_found_without_running_it() -> None:
    import json as aliased

    import optax

    def function(x: object) -> object:
        return aliased.dumps(optax.sgd(x))

    data = preflight.pickled({"f": function}, names={})
    assert {"json", "optax"} <= preflight.modules_needed(data)
