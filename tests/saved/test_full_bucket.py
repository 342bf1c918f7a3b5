"""A bucket on a disk that is full: nothing is lost, and one sentence says why."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import homes
import jax
import numpy as np
import pytest

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.local import cluster as local
from pathways_jupyter.session.kernel import session as sessions

pytestmark = pytest.mark.thorough

DEADLINE = 60.0
TYPE = "tpuv6e:2x2"


@pytest.fixture
def bucket(tmp_path: Path):
    """A directory for a bucket, on a file system of 4 MB."""
    place = tmp_path / "bucket"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small file system")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True, capture_output=True)


@pytest.fixture
def cluster(bucket, tmp_path):
    """An embedded cluster with that bucket."""
    with homes.entered(tmp_path / "home"):
        yield local.up({TYPE: 1}, name="full", bucket=str(bucket))
        local.down("full")


def test_a_full_bucket_is_one_sentence_and_keeps_session_and_older_save(cluster, bucket):
    config = ConnectConfig(instances={TYPE: 1}, kubeconfig=str(cluster.kubeconfig), wait=DEADLINE)
    with sessions.connect(config) as session:
        session.save("kept", {"x": jax.device_put(np.arange(8.0))})
        random = np.random.default_rng(0).normal(size=1_000_000).astype(np.float32)
        held = jax.device_put(random)
        with contextlib.suppress(OSError), (bucket / "ballast").open("wb", buffering=0) as ballast:
            while ballast.write(bytes(4096)):
                pass
        for refused in (lambda: session.save("kept", {"x": held}), lambda: session.suspend(yes=True)):
            with pytest.raises(PathwaysError, match=r": the disk of the bucket is full\.") as raised:
                refused()
            assert "local up --bucket" in str(raised.value.hint)
        assert session.state == "connected"
        np.testing.assert_array_equal(np.asarray(held), random)
        np.testing.assert_array_equal(session.load("kept")["x"], np.arange(8.0))
