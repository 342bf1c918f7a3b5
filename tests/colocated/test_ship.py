"""Shipped functions load on the hosts from their source alone."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

from pathways_jupyter.colocated import remote, ship

LOAD = """
import pickle, sys
sys.modules["pathways_jupyter"] = None
function = pickle.loads(sys.stdin.buffer.read())
print(function.func.__module__.startswith("_pathways_jupyter_"), function.func.__name__, function.args)
print(sorted(name.partition(".")[2] for name in sys.modules if name.startswith("_pathways_jupyter_") and "." in name))
"""


def test_a_host_loads_every_module_of_the_remote_package_without_this_one() -> None:
    data = cloudpickle.dumps(ship.Shipped("fetch", 16))
    done = subprocess.run([sys.executable, "-c", LOAD], input=data, capture_output=True, timeout=120, check=False)
    first, second = done.stdout.decode().splitlines()
    assert first == "True fetch (16,)", done.stderr.decode()
    (folder,) = remote.__path__
    files = {path.stem for path in Path(folder).glob("*.py")} - {"__init__"}
    assert second == str(sorted(files | {"shardings"}))


def test_a_host_that_can_read_nothing_else_raises_its_versions() -> None:
    with pytest.raises(RuntimeError, match=rf"{ship.VERSIONS_MARK} .*\"python\": \"{sys.version.split()[0]}\""):
        pickle.loads(cloudpickle.dumps(ship.VERSIONS))
