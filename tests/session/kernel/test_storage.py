"""``gs://`` in a session on the embedded cluster, in processes of their own."""

from __future__ import annotations

import os
import sys
import types

import pytest
import scripts

from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.session import clusters
from pathways_jupyter.session.kernel import storage
from pathways_jupyter.session.variables import STORAGE_HOST

BEGIN = """
import os
import fsspec, jax, jax.profiler
from etils import epath
from jax._src import profiler
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.session.kernel import session as sessions

NAMES = ("STORAGE_EMULATOR_HOST", "TENSORSTORE_GCS_HTTP_URL", "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT")

def look():
    return [os.environ.get(name) for name in NAMES], profiler._profiler.ProfilerSession

before = look()
"""

USED = """
# Made for Google's own storage, which a session's must not be taken for.
elsewhere = fsspec.filesystem("gs", token="anon")
with sessions.connect({config!r}) as session:
    assert session.bucket == "gs://pathways-local"
    path = epath.Path(session.bucket) / "note"
    path.write_text("here")
    assert fsspec.filesystem("gs", token="anon").cat_file("pathways-local/note") == b"here"
    assert session.environment()["STORAGE_EMULATOR_HOST"] == os.environ["STORAGE_EMULATOR_HOST"]
    # JAX's own profiler, which sees this process only.
    jax.profiler.start_trace(session.bucket + "/traces")
    jax.numpy.arange(8.0).sum().block_until_ready()
    jax.profiler.stop_trace()
    (trace,) = fsspec.filesystem("gs").glob("pathways-local/traces/plugins/profile/*/*.xplane.pb")
    planes = jax.profiler.ProfileData.from_serialized_xspace(fsspec.filesystem("gs").cat_file(trace)).planes
    assert "/host:CPU" in [plane.name for plane in planes]
assert look() == before
print("as found")
"""

TAKEN = """
import jax.numpy
with sessions.connect({config!r}) as session:
    assert look() == before
    assert session.environment().keys().isdisjoint(NAMES)
print("as found")
"""


@pytest.mark.thorough
@pytest.mark.parametrize("taken", [False, True], ids=["its own bucket", "the user's emulator"])
def test_a_session_has_the_clusters_bucket_unless_the_user_has_another(config, taken):
    code = BEGIN + (TAKEN if taken else USED).format(config=config())
    done = scripts.run(code, **({"STORAGE_EMULATOR_HOST": "http://127.0.0.1:9"} if taken else {}))
    assert done.stdout == "as found\n", done.stderr


def test_a_session_ends_while_another_thread_imports_the_clients(monkeypatch):
    # As they are in sys.modules until their import is complete; a notebook that looks for its saves imports them.
    for name in ("gcsfs", "gcsfs.extended_gcsfs", "etils.epath.backend"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    with storage.adopted(clusters.Storage("gs://bucket", {STORAGE_HOST: "http://127.0.0.1:9"})):
        assert os.environ[STORAGE_HOST] == "http://127.0.0.1:9"
    assert STORAGE_HOST not in os.environ


SNAPSHOTS = """
import socket
from pathways_jupyter import elastic

def refuse(*address):
    raise AssertionError("the network is used")

socket.getaddrinfo = refuse
elastic.Snapshots(path="gs://pathways-local/run")
"""


def test_the_embedded_bucket_is_not_looked_for_at_google(cluster):
    for environ in ({}, {"JUPYTER_RUNTIME_DIR": "/nonexistent"}):
        ran = scripts.run(SNAPSHOTS, **environ)
        assert "SessionError: gs://pathways-local is the embedded cluster's bucket" in ran.stderr
        assert "pathways_jupyter.connect(local=True)" in ran.stderr


def test_only_the_embedded_bucket_needs_its_cluster(monkeypatch):
    monkeypatch.delenv(STORAGE_HOST, raising=False)
    for other in ("gs://pathways-local-2/run", "gs://mine", "/tmp/pathways-local", "s3://pathways-local"):
        storage.require_adopted(other)
    with pytest.raises(SessionError):
        storage.require_adopted("gs://pathways-local")
    monkeypatch.setenv(STORAGE_HOST, "http://127.0.0.1:9")
    storage.require_adopted("gs://pathways-local")
