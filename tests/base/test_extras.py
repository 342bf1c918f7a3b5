import sys

import pytest

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.packages import require
from pathways_jupyter.local import cluster


def test_a_missing_package_is_named_with_the_command_that_installs_it():
    with pytest.raises(ConfigError, match=r"Forecasts needs the package not_a_package\.inner") as missing:
        require("local", "Forecasts", "json", "not_a_package.inner")
    assert missing.value.hint == "Run pip install 'pathways_jupyter[local]'."


def test_the_embedded_cluster_needs_its_extra_before_anything_is_started(monkeypatch, tmp_path):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(ConfigError, match=r"The embedded cluster needs the package google\.protobuf"):
        cluster.ensure()
    assert cluster.find() is None
