"""How one logs in to TPU VMs: OS Login, and host keys that Google's API vouches for, on real sshd processes."""

import dataclasses
import getpass

import played_google
import pytest
import tpu_api

from pathways_jupyter.base.errors import ApiError, ConfigError
from pathways_jupyter.multihost import host_connections, run_actions, tpuvm
from pathways_jupyter.multihost.errors import HostError
from pathways_jupyter.multihost.ssh import Ssh, SshOptions
from pathways_jupyter.multihost.targets import Target, Wanted

OS_LOGIN = {"enable-oslogin": "TRUE"}


@pytest.fixture(scope="module")
def account():
    # For accounts of Google's own cloud, google-auth asks the real Google about regions.
    return {**played_google.service_account("http://127.0.0.1:9/token"), "universe_domain": "cloud.test"}


@pytest.fixture
def api(lab, account, monkeypatch):
    """Two TPU VMs whose addresses lead to two of the farm's hosts."""
    with tpu_api.serving(lab.directory, account) as (found, environ):
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        ssh = lab.directory / ".ssh"
        ssh.mkdir()
        (ssh / "google_compute_engine").write_bytes(lab.farm.key.read_bytes())
        (ssh / "google_compute_engine").chmod(0o600)
        (ssh / "google_compute_engine.pub").write_bytes(lab.farm.key.with_suffix(".pub").read_bytes())
        lines = []
        for number, host in enumerate(lab.farm.hosts[:2]):
            found.node(f"my-tpu-{number}", f"192.0.2.{number}", id=str(2000 + number), metadata=OS_LOGIN)
            found.host_keys[f"my-tpu-{number}"] = [dict([host.known.split()[1:]])]
            lines.append(f"Host 192.0.2.{number}\n  HostName 127.0.0.1\n  Port {host.port}\n")
        (ssh / "config").write_text("".join(lines))
        yield found


def posted(api):
    return [path for method, path, _ in api.requests if method == "POST" and "importSshPublicKey" in path]


async def test_os_login_gives_the_user_and_takes_the_key_once(lab, api):
    found = await tpuvm.find(Wanted(tpu_prefix="my-tpu"))
    assert {each.user for each in found} == {getpass.getuser()}
    (path,) = posted(api)
    assert path.startswith("/v1/users/")
    assert path.endswith(":importSshPublicKey")
    (key,) = api.profile["sshPublicKeys"].values()
    assert key["key"] == lab.farm.key.with_suffix(".pub").read_text().strip()
    assert not any(method == "PATCH" for method, *_ in api.requests), "a key was added to the VM's metadata"
    again = await tpuvm.find(Wanted(tpu_prefix="my-tpu", user="someone"))
    assert {each.user for each in again} == {"someone"}
    assert len(posted(api)) == 1


async def test_os_login_of_the_whole_project_counts_where_a_vm_does_not_say(api):
    for node in api.nodes.values():
        node["metadata"] = {}
    api.project = OS_LOGIN
    assert {each.user for each in await tpuvm.find(Wanted(tpu_prefix="my-tpu"))} == {getpass.getuser()}
    assert posted(api)
    for node in api.nodes.values():
        node["metadata"] = {"enable-oslogin": "FALSE"}
    assert {each.user for each in await tpuvm.find(Wanted(tpu_prefix="my-tpu"))} == {""}
    assert all("ssh-keys" in node["metadata"] for node in api.nodes.values())


async def test_what_os_login_lacks_is_explained(lab, api):
    key = lab.directory / ".ssh" / "google_compute_engine.pub"
    text = key.read_text()
    key.unlink()
    with pytest.raises(ConfigError, match=r"OS Login needs a key, and there is no .*google_compute_engine\.pub"):
        await tpuvm.find(Wanted(tpu_prefix="my-tpu"))
    key.write_text(text)
    answer = api.answer

    def refuse(method, path, query, body):
        if path.startswith("/v1/users/"):
            return 403, {"error": {"code": 403, "status": "PERMISSION_DENIED", "message": "OS Login API is disabled"}}
        return answer(method, path, query, body)

    api.answer = refuse
    with pytest.raises(ApiError, match=r"Reading the OS Login profile of .*: OS Login API is disabled") as error:
        await tpuvm.find(Wanted(tpu_prefix="my-tpu"))
    assert "roles/compute.osLogin" in error.value.hint


async def test_a_host_key_that_googles_api_vouches_for_needs_no_acceptance(lab, api):
    hosts = await host_connections.find(Wanted(tpu_prefix="my-tpu"))
    _, reports = await run_actions.examine(hosts)
    assert [each.error for each in reports] == ["", ""]
    assert not (lab.directory / ".ssh" / "known_hosts").exists()
    # A run is remembered with them, for those who come back to it.
    assert [Target.from_json(dataclasses.asdict(each)) for each in hosts.targets] == list(hosts.targets)


async def test_another_host_key_than_googles_api_says_is_refused(lab, api):
    api.host_keys["my-tpu-0"] = [dict([lab.farm.hosts[2].known.split()[1:]])]
    hosts = await host_connections.find(Wanted(tpu_prefix="my-tpu", accept_new=True))
    _, (first, second) = await run_actions.examine(hosts)
    assert "has changed" in first.error
    assert second.error == ""


async def test_without_guest_attributes_a_new_host_key_has_to_be_accepted(lab, api):
    api.host_keys.clear()
    _, reports = await run_actions.examine(await host_connections.find(Wanted(tpu_prefix="my-tpu")))
    assert all("is not known" in each.error and "--accept-new" in each.hint for each in reports)
    _, reports = await run_actions.examine(await host_connections.find(Wanted(tpu_prefix="my-tpu", accept_new=True)))
    assert [each.error for each in reports] == ["", ""]


async def test_accepting_one_host_does_not_forget_the_keys_of_others(lab):
    new, changed = lab.farm.hosts[:2]
    other = lab.farm.hosts[2].known.split()[1:]
    known = lab.directory / ".ssh" / "known_hosts"
    known.parent.mkdir()
    known.write_text(f"[127.0.0.1]:{changed.port} {' '.join(other)}\n")
    ssh = Ssh(SshOptions(keys=(str(lab.farm.key),), accept_new=True))
    channel = await ssh.connect(Target("new", address="127.0.0.1", port=new.port), ["true"])
    await channel.close()
    with pytest.raises(HostError, match="has changed"):
        await ssh.connect(Target("changed", address="127.0.0.1", port=changed.port), ["true"])
