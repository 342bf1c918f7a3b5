"""Selection of hosts, their identity, and what a run does to them before it starts."""

import os
import pwd

import pytest
import sshd

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.multihost import targets
from pathways_jupyter.multihost.errors import RemoteHostError
from pathways_jupyter.multihost.run_events import HostPhase
from pathways_jupyter.multihost.ssh import Ssh
from pathways_jupyter.multihost.targets import Target


def test_an_inventory_names_hosts_with_slices_and_workers(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("# ours\nalice@b.example:2222 slice=1\n\na slice=0 worker=1\n[::1]:22 worker=0  # v6\nc slice=1\n")
    found = targets.from_hosts(str(path), "bob")
    assert [(each.label, each.address, each.port, each.user) for each in found] == [
        ("0-0", "::1", 22, "bob"),
        ("0-1", "a", 22, "bob"),
        ("1-0", "b.example", 2222, "alice"),
        ("1-1", "c", 22, "bob"),
    ]
    assert [each.address for each in targets.from_hosts("x,y")] == ["x", "y"]


def test_a_list_may_name_many_hosts():
    names = [f"worker-{number}.a-long-name-of-a-zone.example" for number in range(64)]
    assert [each.address for each in targets.from_hosts(",".join(names))] == names


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a worker=1\nb worker=1\n", "both worker 1 of slice 0"),
        ("a colour=red\n", "'colour=red' cannot be read"),
        ("a b\n", "'b' cannot be read"),
        ("a:99999\n", "is not a host"),
        ("# nothing\n", "names no host"),
    ],
)
def test_an_inventory_that_cannot_be_read_is_explained(tmp_path, text, problem):
    (tmp_path / "hosts").write_text(text)
    with pytest.raises(ConfigError, match=problem):
        targets.from_hosts(str(tmp_path / "hosts"))


async def test_an_unknown_host_is_refused_and_accepted_only_on_request(lab):
    known = lab.directory / "known"
    refused = await lab.run("true", 1, selection=lab.selection(1, known_hosts=str(known)))
    assert refused.code == 255
    assert "is not known: SHA256:" in refused.status("0-0").message
    assert "--accept-new" in refused.status("0-0").hint
    accepted = await lab.run("true", 1, selection=lab.selection(1, known_hosts=str(known), accept_new=True))
    assert accepted.code == 0
    assert (await lab.run("true", 1, selection=lab.selection(1, known_hosts=str(known)))).code == 0


async def test_an_accepted_key_leaves_a_last_line_without_an_end_as_it_is(lab):
    known = lab.directory / "known"
    known.write_text(lab.farm.hosts[0].known.strip())
    accepted = await lab.run("true", 2, selection=lab.selection(2, known_hosts=str(known), accept_new=True))
    assert accepted.code == 0
    lines = known.read_text().splitlines()
    assert (len(lines), lines[0]) == (2, lab.farm.hosts[0].known.strip())
    assert (await lab.run("true", 2, selection=lab.selection(2, known_hosts=str(known)))).code == 0


async def test_a_changed_host_key_is_refused_even_with_accept_new(lab):
    host = lab.farm.hosts[0]
    before = lab.farm.known_hosts.read_text()
    host.stop()
    host.new_host_key()
    host.start()
    try:
        done = await lab.run("true", 2, selection=lab.selection(2, accept_new=True))
        assert done.code == 255
        assert "host key of 127.0.0.1" in done.status("0-0").message
        assert "has changed" in done.status("0-0").message
        assert HostPhase.RUNNING not in done.phases["0-1"]
        assert lab.farm.known_hosts.read_text() == before
    finally:
        lab.farm.write()


async def test_a_host_without_python3_is_explained_and_not_tried_again(lab):
    host = lab.farm.hosts[0]
    host.environ["PATH"] = str(lab.code)
    host.stop()
    host.start()
    try:
        done = await lab.run("true", 1)
    finally:
        host.environ.clear()
        host.stop()
        host.start()
    assert HostPhase.RECONNECTING not in done.phases["0-0"]
    assert done.status("0-0").phase is HostPhase.FAILED
    assert "has no python3: " in done.status("0-0").message
    assert done.status("0-0").hint == "Install Python 3.9 or later there."


async def test_a_key_that_the_host_does_not_accept_is_explained(lab):
    wrong = lab.directory / "wrong"
    sshd.new_key(wrong)
    done = await lab.run("true", 1, selection=lab.selection(1, keys=(str(wrong),)))
    assert "refused the login: none of the keys is accepted" in done.status("0-0").message
    with pytest.raises(ConfigError, match="There is no key /nowhere"):
        await lab.run("true", 1, selection=lab.selection(1, keys=("/nowhere",)))


async def test_gclouds_key_is_found_without_being_named(lab):
    ssh = lab.directory / ".ssh"
    ssh.mkdir()
    (ssh / "google_compute_engine").write_bytes(lab.farm.key.read_bytes())
    (ssh / "google_compute_engine").chmod(0o600)
    (ssh / "known_hosts").write_text(lab.farm.known_hosts.read_text())
    assert (await lab.run("true", 1, selection=lab.selection(1, keys=(), known_hosts=""))).code == 0


async def test_a_key_that_gcloud_has_accepted_is_known_by_the_vms_own_name(lab):
    host = lab.farm.hosts[0]
    (lab.directory / ".ssh").mkdir()
    known = lab.directory / ".ssh" / "google_compute_known_hosts"
    known.write_text(f"tpu.2000-0 {' '.join(host.known.split()[1:])}\n")
    ssh = Ssh([str(lab.farm.key)])
    connection = await ssh.connect(Target("vm", address="127.0.0.1", port=host.port, key_alias="tpu.2000-0"))
    await connection.close()
    with pytest.raises(RemoteHostError, match="has changed"):
        await ssh.connect(Target("vm", address="127.0.0.1", port=lab.farm.hosts[1].port, key_alias="tpu.2000-0"))


async def test_a_host_that_cannot_be_reached_is_named(lab):
    host = lab.farm.hosts[1]
    host.stop()
    try:
        done = await lab.run("true", 2)
    finally:
        host.start()
    assert done.code == 255
    assert f"127.0.0.1:{host.port}" in done.status("0-1").message
    assert "cannot be reached" in done.status("0-1").message
    assert "Nothing was started." in done.notes
    assert (await lab.run("true", 2)).code == 0


async def test_a_login_script_that_prints_is_explained(lab):
    script = lab.farm.hosts[0].home / ".bashrc"
    script.write_text("echo Welcome to this machine\n")
    try:
        done = await lab.run("true", 1)
    finally:
        script.unlink()
    if done.code == 0:
        pytest.skip(f"{pwd.getpwuid(os.getuid()).pw_shell} does not read .bashrc for a command of sshd")
    assert "Welcome" in done.status("0-0").message
    assert "must print nothing" in done.status("0-0").hint


async def test_accepting_one_host_does_not_forget_the_keys_of_others(lab):
    new, changed = lab.farm.hosts[:2]
    other = lab.farm.hosts[2].known.split()[1:]
    known = lab.directory / ".ssh" / "known_hosts"
    known.parent.mkdir()
    known.write_text(f"[127.0.0.1]:{changed.port} {' '.join(other)}\n")
    ssh = Ssh([str(lab.farm.key)], accept_new=True)
    channel = await ssh.connect(Target("new", address="127.0.0.1", port=new.port))
    await channel.close()
    with pytest.raises(RemoteHostError, match="has changed"):
        await ssh.connect(Target("changed", address="127.0.0.1", port=changed.port))
