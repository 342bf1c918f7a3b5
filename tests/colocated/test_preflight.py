from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from pathways_jupyter.colocated import preflight
from pathways_jupyter.colocated.errors import CheckError
from pathways_jupyter.colocated.memory import Facts


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


def facts(**changes: Any) -> Facts:
    about = Facts("/opt/their python/bin/python", True, {"jax": "0.10.0"}, 1, "", "", "", frozenset(), "")
    return replace(about, **changes)


def test_missing_packages_are_reported_with_their_hosts() -> None:
    known = {0: facts(), 1: facts()}
    with pytest.raises(
        CheckError, match=r"grain is not installed on hosts 0, 1; tiktoken is not installed on host 1"
    ) as caught:
        preflight.require_packages({0: ["grain"], 1: ["grain", "tiktoken"]}, known)
    assert "pip install grain tiktoken" in caught.value.hint
    preflight.require_packages({0: [], 1: []}, known)


def test_on_the_embedded_cluster_a_missing_package_is_installed_in_the_hosts_python() -> None:
    advice = preflight.install_hint(["yaml", "not_a_package"], facts())
    # What gives the module here is what gives it there.
    assert "'/opt/their python/bin/python' -m pip install PyYAML not_a_package" in advice


def test_elsewhere_a_missing_package_needs_an_image() -> None:
    released = preflight.install_hint(["tiktoken"], facts(embedded=False))
    assert "requirements.txt" in released
    assert released.endswith("pathways-jupyter sidecar build --jax-version 0.10.0")
    other = preflight.install_hint(["tiktoken"], facts(embedded=False, versions={"jax": "0.10.2"}))
    assert other.endswith("--jax-version 0.10.2 --base-image IMAGE")


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
