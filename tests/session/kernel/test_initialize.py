"""``pathwaysutils.initialize()`` beside a session: harmless at any moment, and undone with the session.

In processes of their own, because it acts once a process.
"""

from __future__ import annotations

import pytest
import scripts

pytestmark = pytest.mark.thorough

BEGIN = """
import jax, jax.profiler, pathwaysutils
from jax._src import profiler, xla_bridge
from jax.extend import backend
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.session.kernel import session as sessions

NAMES = ("start_server", "start_trace", "stop_server", "stop_trace", "trace")

def look():
    return (
        [getattr(module, name) for module in (jax.profiler, profiler) for name in NAMES],
        [backend.register_backend_factory, xla_bridge.register_backend_factory],
        dict(xla_bridge._backend_factories),
        [jax.config.jax_platforms, jax.config.read("jax_backend_target"), jax.config.jax_enable_compilation_cache],
    )

def connect():
    return sessions.connect({config!r})

def computes(chips=8):
    assert jax.numpy.arange(8.0).sum() == 28
    assert len(jax.devices()) == chips, jax.devices()

jax.devices()
before = look()
"""
END = """
assert jax.devices()[0].platform == "cpu"
assert look() == before
print("as found")
"""
PARTS = {
    "before": "pathwaysutils.initialize()\nwith connect():\n    computes()\n",
    "during, twice": "with connect():\n    for _ in range(2):\n        pathwaysutils.initialize()\n    computes()\n",
    "after": "with connect():\n    computes()\npathwaysutils.initialize()\n",
    "in each of two sessions": (
        "for _ in range(2):\n    with connect():\n        pathwaysutils.initialize()\n        computes()\n"
        "        assert jax.profiler.start_trace.__module__ == 'pathwaysutils.profiling'\n"
    ),
    "and then JAX is cleared by hand": (
        "with connect():\n    pathwaysutils.initialize()\n    backend.clear_backends()\n    computes()\n"
    ),
    "with another client for another platform": (
        "with connect():\n    backend.register_backend_factory('other', lambda: None, priority=-9)\n    computes()\n"
        "del xla_bridge._backend_factories['other']\n"
    ),
}


OFTEN = {"in each of two sessions"}
"""The parts of the default run, in which another test initializes before; `make soak` has the others too."""


@pytest.mark.parametrize(
    "part", [each if each in OFTEN else pytest.param(each, marks=pytest.mark.soak) for each in PARTS]
)
def test_initialize_is_harmless_and_jax_is_as_found_afterwards(config, part):
    done = scripts.run(BEGIN.format(config=config(2)) + PARTS[part] + END)
    assert (done.returncode, done.stdout) == (0, "as found\n"), done.stderr


def test_what_was_initialized_before_the_session_stays_after_it(config):
    # As in a container of a PathwaysJob, whose environment names a proxy.
    proxy = "import os\nos.environ['JAX_PLATFORMS'] = 'proxy,cpu'\n"
    initialized = "pathwaysutils.initialize()\nbefore = look()\nwith connect():\n    computes()\n"
    begin = BEGIN.format(config=config(2)).replace("\njax.devices()\nbefore", "\nbefore")
    done = scripts.run(proxy + begin + initialized + "assert look() == before\nprint('as found')\n")
    assert (done.returncode, done.stdout) == (0, "as found\n"), done.stderr


def test_another_client_for_the_platform_in_use_is_refused_as_by_jax_itself(connected):
    from jax.extend import backend

    with pytest.raises(RuntimeError, match="proxy already initialized"):
        backend.register_backend_factory("proxy", lambda: None)
