"""The plugin that every JAX of this environment loads when it first uses a device."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from pathways_jupyter.session.kernel import jax_plugin

# JAX logs what a plugin raises, and goes on.
FIND = """
import json, logging, sys
logged = []

class Log(logging.Handler):
    def emit(self, record):
        logged.append(record.getMessage())

logging.getLogger("jax._src.xla_bridge").addHandler(Log())
import jax
before = set(sys.modules)
from jax._src import xla_bridge
try:
    jax.devices()
except RuntimeError:
    pass
new = sorted(each for each in set(sys.modules) - before if each.startswith("pathways_jupyter"))
# From 0.12 on, JAX registers a platform of this name itself.
its_own = getattr(xla_bridge, "make_ifrt_proxy_client", None)
proxy = getattr(xla_bridge._backend_factories.get("proxy"), "factory", None)
registered = "no" if proxy is None else "by JAX" if proxy is its_own else "by the plugin"
print(json.dumps([new, registered, [each for each in logged if "pathways" in each]]))
"""


def found(**variables: str) -> tuple[list[str], str, list[str]]:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", **variables}
    ran = subprocess.run([sys.executable, "-c", FIND], env=environment, capture_output=True, text=True, check=True)
    new, registered, logged = json.loads(ran.stdout.splitlines()[-1])
    return new, registered, logged


def test_a_program_without_a_target_imports_next_to_nothing():
    new, registered, logged = found()
    assert jax_plugin.__name__ in new
    assert registered in {"no", "by JAX"}
    assert not logged
    assert not {"pathways_jupyter.session.kernel.jax_platform", "pathways_jupyter.kube"} & set(new)
    assert len(new) < 15, new


def test_a_program_gets_the_platform_that_it_asks_for_and_no_other(tmp_path):
    target = f"grpc://unix:{tmp_path}/none"
    new, registered, logged = found(JAX_BACKEND_TARGET=target)
    assert "pathways_jupyter.session.kernel.jax_platform" in new
    assert registered in {"no", "by JAX"}
    assert not logged
    if registered == "by JAX":
        # The plugin leaves it as it is, and it waits longer than this test.
        return
    # Nothing listens there: JAX gives up once the client has.
    _, registered, _ = found(
        JAX_PLATFORMS="proxy", JAX_BACKEND_TARGET=target, PATHWAYS_PROXY_CONNECTION_TIMEOUT_SECS="1"
    )
    assert registered == "by the plugin"
