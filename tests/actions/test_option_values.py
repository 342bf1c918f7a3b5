"""Values that no cluster can take: refused before one is contacted, with what would do."""

import pytest
from recorded_shell import RecordedShell

from pathways_jupyter.actions import action_of, local
from pathways_jupyter.base.errors import ConfigError

JOB = {"name": "train", "tpu": "tpuv6e:2x2=1"}
SERVICE = {"name": "team", "tpu": "tpuv6e:2x2", "gcs_bucket": "gs://b"}


@pytest.fixture(autouse=True)
def no_cluster(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("command", "values", "said", "hint"),
    [
        ("job new", {**JOB, "priority": "high"}, "A priority needs a queue", "--queue NAME"),
        ("job new", {**JOB, "output": "~no-such-user/a"}, "~no-such-user/a cannot be written", "another file"),
        ("job apply", {"file": "~no-such-user/a"}, "~no-such-user/a cannot be read", "Check the path"),
        ("job apply", {"file": "/dev/null", "priority": "high"}, "A priority needs a queue", "--queue NAME"),
        ("job logs", {"name": "train", "tail": "all"}, "--tail must be a whole number", "--tail 20"),
        ("job list", {"kubeconfig": "~no-such-user/a"}, "no kubeconfig ~no-such-user/a", "--kubeconfig"),
        ("service deploy", {**SERVICE, "timeout": "soon"}, "--timeout must be a time", "30s"),
        ("job new", {**JOB, "queue": "My Queue"}, "queue cannot be 'My Queue'", "team"),
        ("service deploy", {**SERVICE, "priority": "high"}, "A priority needs a queue", "--queue NAME"),
        ("service deploy", {**SERVICE, "queue": "My Queue"}, "queue cannot be 'My Queue'", "team"),
        ("doctor", {"queue": "My Queue"}, "queue cannot be 'My Queue'", "team"),
        ("saved", {"gcs_bucket": "my-bucket"}, "'my-bucket' is not a bucket address", "gs://my-bucket"),
        ("saved delete", {"name": "a", "gcs_bucket": "s3://b"}, "'s3://b' is not a bucket address", "gs://b"),
        ("lab up", {"image": "lab:1", "cpu": "many"}, "cpu cannot be 'many': it is not a quantity", "lab up --help"),
        ("lab up", {"image": "lab:1", "memory": "32GB"}, "memory cannot be '32GB'", "lab up --help"),
        ("lab up", {"image": "lab:1", "volume": "0"}, "volume cannot be '0'", "lab up --help"),
        ("lab up", {"image": "lab:1", "storage_class": "Fast Disk"}, "storage_class cannot be", "lab up --help"),
    ],
)
def test_a_value_that_cannot_be_is_refused_before_a_cluster_is_contacted(command, values, said, hint):
    with pytest.raises(ConfigError) as refused:
        action_of(command)(RecordedShell(), values)
    assert said in str(refused.value)
    assert hint in refused.value.hint


def test_an_image_needs_a_wheel_and_a_folder_of_its_own(tmp_path):
    (tmp_path / "a.whl").touch()
    (tmp_path / "folder").touch()
    for values, said in (
        ({"wheel": str(tmp_path / "a.whl")}, "a.whl is not named as a wheel is"),
        ({"folder": str(tmp_path / "folder"), "dry_run": True}, "folder cannot be written: File exists"),
    ):
        with pytest.raises(ConfigError, match=said):
            action_of("operator image")(RecordedShell(), values)


@pytest.mark.parametrize(
    ("written", "meant"),
    [("tpuv6e:2x2", 2), ("tpuv6e:2x2=3", 3), ('{"tpuv6e:2x2": 3}', 3), ("v6e-4", 2)],
)
def test_the_embedded_cluster_gets_the_slices_that_are_written_or_two(written, meant, monkeypatch):
    class Started(Exception):
        """The start of a cluster, with its slices."""

    def up(instances, **_):
        raise Started(instances)

    monkeypatch.setattr(local.cluster, "up", up)
    with pytest.raises(Started) as started:
        local.up(RecordedShell(), {"tpu": written})
    assert started.value.args == ({"tpuv6e:2x2": meant},)
