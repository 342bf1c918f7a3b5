"""TPU VMs, with Google's own client library, against an API on loopback."""

import os
import subprocess
import sys

import fake_google
import pytest
import tpu_api

from pathways_jupyter.base.errors import ApiError, ClusterError, ConfigError
from pathways_jupyter.multihost import cloud, tpuvm
from pathways_jupyter.multihost.targets import Selection


@pytest.fixture(scope="module")
def account():
    # For accounts of Google's own cloud, google-auth asks the real Google about regions.
    return {**fake_google.service_account("http://127.0.0.1:9/token"), "universe_domain": "cloud.test"}


@pytest.fixture
def api(account, tmp_path, monkeypatch):
    with tpu_api.serving(tmp_path, account) as (found, environ):
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HOME", str(tmp_path))
        yield found


def test_names_match_exactly_or_by_number():
    names = ["a", "a-1", "a-10", "a-2", "a-x", "b-0", "a-b-1"]
    assert tpuvm.matching(names, "a") == ["a"]
    assert tpuvm.matching(names[1:], "a") == ["a-1", "a-2", "a-10"]
    assert tpuvm.matching(names, "c") == []


def test_the_workers_of_all_vms_are_found_over_pages(api):
    for number in (10, 2, 0, 7):
        api.node(f"my-tpu-{number}", f"{number}.0", f"{number}.1", id=str(number))
    api.node("other", "9.9")
    found = tpuvm.find(Selection(tpu_prefix="my-tpu"))
    addresses = ["0.0", "0.1", "2.0", "2.1", "7.0", "7.1", "10.0", "10.1"]
    assert [each.address for each in found] == addresses
    assert [each.label for each in found] == ["0-0", "0-1", "1-0", "1-1", "2-0", "2-1", "3-0", "3-1"]
    inside = tpuvm.find(Selection(tpu_prefix="my-tpu", internal_ip=True))
    assert [each.address for each in inside] == [f"10.1.{each}" for each in addresses]


def test_a_user_id_without_a_name_is_no_obstacle(api, tmp_path, monkeypatch):
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "google_compute_engine.pub").write_text("ssh-ed25519 AAAA someone\n")
    api.node("my-tpu-0", "0.0")
    tpuvm.find(Selection(tpu_prefix="my-tpu"))
    keys = api.nodes["my-tpu-0"]["metadata"]["ssh-keys"]
    assert keys.endswith(":ssh-ed25519 AAAA someone")
    # For the user who logs in, and once for each.
    for _ in range(2):
        tpuvm.find(Selection(tpu_prefix="my-tpu", user="bob"))
        assert api.nodes["my-tpu-0"]["metadata"]["ssh-keys"] == f"{keys}\nbob:ssh-ed25519 AAAA someone"
    tpuvm.find(Selection(tpu_prefix="my-tpu"))
    assert api.nodes["my-tpu-0"]["metadata"]["ssh-keys"].count("\n") == 1


def test_what_is_missing_about_a_vm_is_explained(api):
    api.node("my-tpu-0", "", state="CREATING")
    with pytest.raises(ConfigError, match=r"There is no TPU VM you or you-0 in projects/my-project") as error:
        tpuvm.find(Selection(tpu_prefix="you"))
    assert "my-tpu-0" in error.value.hint
    with pytest.raises(ConfigError, match="my-tpu-0 is CREATING, not READY") as error:
        tpuvm.find(Selection(tpu_prefix="my-tpu"))
    assert "gcloud compute tpus queued-resources list" in error.value.hint
    api.node("my-tpu-0", "")
    with pytest.raises(ConfigError, match="has no external address") as error:
        tpuvm.find(Selection(tpu_prefix="my-tpu"))
    assert "--internal-ip" in error.value.hint


@pytest.mark.parametrize(
    ("refusal", "problem", "hint"),
    [
        ((403, "PERMISSION_DENIED", "Permission 'tpu.nodes.list' denied"), "Permission", "TPU Admin"),
        (
            (404, "NOT_FOUND", "Location us-central2-b was not found"),
            "was not found",
            "gcloud compute tpus tpu-vm list",
        ),
        ((500, "INTERNAL", "an internal error"), "internal error", "Try again later"),
    ],
)
def test_errors_of_the_api_are_passed_on_with_advice(api, refusal, problem, hint):
    api.refusal = refusal
    with pytest.raises(ApiError, match=problem) as error:
        tpuvm.find(Selection(tpu_prefix="my-tpu"))
    assert error.value.status == refusal[0]
    assert "Listing the TPU VMs of projects/my-project" in str(error.value)
    assert hint in error.value.hint


def test_an_api_that_cannot_be_reached_is_said(api, monkeypatch):
    monkeypatch.setenv(cloud.ENDPOINT_VARIABLE, "http://127.0.0.1:9")
    with pytest.raises(ClusterError, match="cannot be reached"):
        tpuvm.find(Selection(tpu_prefix="my-tpu"))


def test_project_and_zone_come_from_gclouds_settings(tmp_path, monkeypatch):
    for name in (
        "CLOUDSDK_CORE_PROJECT",
        "GOOGLE_CLOUD_PROJECT",
        "CLOUDSDK_COMPUTE_ZONE",
        "CLOUDSDK_ACTIVE_CONFIG_NAME",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    with pytest.raises(ConfigError, match="Which project") as error:
        cloud.location("", "")
    assert "gcloud config set core/project" in error.value.hint
    (tmp_path / "configurations").mkdir()
    (tmp_path / "active_config").write_text("work\n")
    (tmp_path / "configurations" / "config_work").write_text("[core]\nproject = p\n[compute]\nzone = z\n")
    assert cloud.location("", "") == "projects/p/locations/z"
    assert cloud.location("q", "y") == "projects/q/locations/y"


@pytest.fixture
def seed(lab, account, monkeypatch):
    """A terminal as the guide prepares it: gcloud's settings, its key, and two TPU VMs."""
    with tpu_api.serving(lab.directory, account) as (api, environ):
        ssh = lab.directory / ".ssh"
        ssh.mkdir()
        (ssh / "google_compute_engine").write_bytes(lab.farm.key.read_bytes())
        (ssh / "google_compute_engine").chmod(0o600)
        (ssh / "google_compute_engine.pub").write_bytes(lab.farm.key.with_suffix(".pub").read_bytes())
        hosts = []
        for number, host in enumerate(lab.farm.hosts[:2]):
            api.node(f"my-tpu-{number}", f"192.0.2.{number}", id=str(1000 + number))
            addresses = f"192.0.2.{number} 10.1.192.0.2.{number}"
            hosts.append(f"Host {addresses}\n  HostName 127.0.0.1\n  Port {host.port}\n")
        (ssh / "config").write_text("".join(hosts))

        def shell(line):
            program = f"{sys.executable} -m pathways_jupyter multihost"
            line = line.replace("python3 multihost_runner.py", program)
            environment = {**os.environ, **environ, "TPU_PREFIX": "my-tpu", "RUN_NAME": "first"}
            return subprocess.run(
                ["bash", "-c", line],
                env=environment,
                cwd=lab.code,
                capture_output=True,
                text=True,
                timeout=90,
                check=False,
            )

        yield api, shell


@pytest.mark.thorough
def test_the_guides_commands_work_as_they_are_written(lab, seed):
    api, shell = seed
    (lab.code / "setup.sh").write_text("echo set up > ~/done; echo installed\n")
    (lab.code / "MaxText").mkdir()
    (lab.code / "MaxText" / "train.py").write_text("import sys\nprint('training', *sys.argv[1:])\n")
    setup = shell('python3 multihost_runner.py --TPU_PREFIX=$TPU_PREFIX --COMMAND="bash setup.sh"')
    assert setup.returncode == 0, setup.stdout + setup.stderr
    assert "[0-0] installed\n" in setup.stdout
    assert "[1-0] installed\n" in setup.stdout
    assert (lab.farm.hosts[1].home / "done").read_text() == "set up\n"
    assert ":ssh-ed25519 " in api.nodes["my-tpu-0"]["metadata"]["ssh-keys"], "gcloud's key was not added to the VM"
    line = "python3 multihost_runner.py --TPU_PREFIX=$TPU_PREFIX --INTERNAL_IP=true --COMMAND="
    train = shell(f'{line}"python3 MaxText/train.py MaxText/configs/base.yml run_name=$RUN_NAME"')
    assert train.returncode == 0, train.stderr
    assert "[1-0] training MaxText/configs/base.yml run_name=first\n" in train.stdout
    again = shell(
        "python3 multihost_runner.py --TPU_PREFIX=my-tpu --RUN_NAME=kept --SCRIPT_DIR=MaxText --COMMAND='ls' && "
        "python3 multihost_runner.py --TPU_PREFIX=my-tpu --RUN_NAME=kept --USE_EXISTING_FOLDER=true --COMMAND=ls"
    )
    assert again.stdout.count("[0-0] train.py\n") == 2, again.stderr


def test_the_scripts_last_flag_is_taken_and_tmp_stays_here(lab, seed):
    _, shell = seed
    (lab.code / "tmp").mkdir()
    (lab.code / "tmp" / "large").touch()
    last = shell("python3 multihost_runner.py --TPU_PREFIX=my-tpu --SCP_TIMEOUT_SECS=60 --COMMAND='ls tmp || true'")
    assert last.returncode == 0, last.stderr
    assert "SCP_TIMEOUT_SECS is not used" in last.stderr
    assert "large" not in last.stdout
    alone = shell("python3 multihost_runner.py --TPU_PREFIX=my-tpu")
    assert (alone.returncode, "Add --COMMAND" in alone.stderr) == (2, True)
