"""Files for the hosts: once, whole, and nothing else than what was meant."""

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from pathways_jupyter.multihost.errors import PackError
from pathways_jupyter.multihost.pack import Sending, pack
from pathways_jupyter.multihost.run_events import HostPhase

UNPRIVILEGED = 65534


def names(root, *exclude):
    return {each.path for each in pack(root, exclude).entries if each.kind != "dir"}


def sh(*command):
    return subprocess.run(command, capture_output=True, check=False)


def wait_until_nothing_is_left_over(home):
    """The process on a host removes what has arrived as it ends, which can be after its answer."""
    deadline = time.monotonic() + 60
    while list((home / ".pathways-jupyter" / "incoming").glob("*")):
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)


def write(root, *paths):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)


def test_ignored_files_stay_here_as_in_git(tmp_path):
    write(tmp_path, "a.py", "b.log", "keep.log", "build/x", "sub/c.py", "sub/d.tmp", "sub/build/y", ".git/config")
    (tmp_path / ".gitignore").write_text("*.log\n!keep.log\n/build/\n")
    (tmp_path / "sub/.gitignore").write_text("*.tmp\n")
    assert names(tmp_path) == {".gitignore", "a.py", "keep.log", "sub/.gitignore", "sub/c.py", "sub/build/y"}
    assert names(tmp_path, "sub", "keep.*") == {".gitignore", "a.py"}


def test_links_are_never_followed_out_of_the_directory(tmp_path):
    root = tmp_path / "code"
    write(tmp_path, "secret/key")
    write(root, "real/a")
    (root / "inside").symlink_to("real")
    (root / "absolute").symlink_to(root / "real/a")
    (root / "outside").symlink_to("../secret")
    (root / "far").symlink_to("/etc")
    packed = pack(root)
    links = {each.path: each.content for each in packed.entries if each.kind == "link"}
    assert links == {"inside": "real", "absolute": "real/a"}
    assert {each.path for each in packed.left_out} == {"outside", "far"}
    assert not any("key" in each.path for each in packed.entries)


def test_an_unreadable_file_is_named():
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        write(root, "a", "locked")
        (root / "locked").chmod(0)
        with as_another_user(), pytest.raises(PackError, match="locked cannot be read: Permission denied"):
            pack(root)
        with as_another_user():
            assert names(root, "locked") == {"a"}


@contextlib.contextmanager
def as_another_user():
    """For the superuser no file is unreadable."""
    if os.geteuid():
        yield
        return
    os.seteuid(UNPRIVILEGED)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_that_changes_while_it_is_read_is_noticed(tmp_path):
    with (tmp_path / "busy").open("wb") as file:
        file.truncate(256 << 20)
    program = "import os, sys\nprint(flush=True)\nwhile True: os.utime(sys.argv[1])"
    writer = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "busy")], stdout=subprocess.PIPE)
    try:
        writer.stdout.readline()
        with pytest.raises(PackError, match="busy changed while it was packed"):
            pack(tmp_path)
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()


@pytest.mark.parametrize("content", ["b", "", "longer"])
async def test_a_file_that_changes_before_it_is_sent_is_noticed(tmp_path, content):
    write(tmp_path, "a")
    with Sending(tmp_path) as sending:
        packed = await sending.packed()
        (tmp_path / "a").write_text(content)
        with pytest.raises(PackError, match="a changed while it was packed"):
            await sending.archive(tuple(packed.contents))


async def test_a_directory_that_cannot_be_packed_ends_the_run_before_anything_is_sent(lab):
    # Hosts are connected to meanwhile; the fixture checks that nothing is left on them.
    with pytest.raises(PackError, match="There is no directory"):
        await lab.run("true", directory=lab.directory / "nowhere", name="never")
    assert not (lab.farm.hosts[0].home / "never").exists()


async def test_what_a_host_has_is_not_sent_again(lab):
    (lab.code / "large").write_bytes(os.urandom(3 << 20))
    (lab.code / "empty").touch()
    first = await lab.run("true", name="once")
    assert set(first.sent.values()) == {(3 << 20) + len("print('hello')\n")}
    (lab.code / "main.py").write_text("print('bye')\n")
    second = await lab.run("python3 main.py", name="other")
    assert set(second.sent.values()) == {len("print('bye')\n")}
    assert second.lines["0-1"] == ["bye"]
    for host in lab.farm.hosts[:2]:
        assert (host.home / "other" / "large").read_bytes() == (lab.code / "large").read_bytes()
        assert (host.home / "other" / "empty").read_bytes() == b""


async def test_in_a_run_directory_that_exists_only_what_was_sent_changes(lab):
    write(lab.code, "old", "same", "tool.sh")
    (lab.code / "tool.sh").chmod(0o755)
    await lab.run("echo result > result; echo spoiled > same", 1, name="again")
    (lab.code / "old").unlink()
    write(lab.code, "new/file")
    await lab.run("true", 1, name="again")
    home = lab.farm.hosts[0].home / "again"
    found = {str(each.relative_to(home)) for each in home.rglob("*") if each.is_file()}
    assert found == {"main.py", "same", "tool.sh", "new/file", "result"}
    assert (home / "same").read_text() == "same"
    assert os.access(home / "tool.sh", os.X_OK)


async def test_an_existing_folder_is_used_as_it_is(lab):
    await lab.run("echo made > here", 1, name="kept")
    (lab.code / "main.py").write_text("changed")
    done = await lab.run("cat here main.py", 1, name="kept", send=False)
    assert done.lines["0-0"] == ["made", "print('hello')"]
    missing = await lab.run("true", 1, name="nowhere", send=False)
    assert missing.code == 255
    assert "there is no such directory" in missing.status("0-0").message


@pytest.mark.thorough
async def test_after_a_connection_that_is_cut_while_files_are_sent_all_are_sent_again(lab):
    (lab.code / "large").write_bytes(os.urandom(24 << 20))
    cut = []

    def break_it(seen):
        if HostPhase.SENDING in seen.phases.get("0-0", ()) and seen.sent["0-0"] and not cut:
            cut.append(lab.farm.hosts[0].cut())

    done = await lab.run("sha256sum < large", 2, until=break_it)
    assert cut[0]
    assert HostPhase.RECONNECTING in done.phases["0-0"]
    assert done.code == 0
    assert done.lines["0-0"] == done.lines["0-1"]
    await asyncio.to_thread(wait_until_nothing_is_left_over, lab.farm.hosts[0].home)


async def test_a_full_disk_is_named_and_nothing_is_started(lab):
    home = lab.farm.hosts[1].home
    mounted = sh("mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(home))
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted: {mounted.stderr.decode().strip()}")
    try:
        (lab.code / "large").write_bytes(os.urandom(8 << 20))
        done = await lab.run("touch started", 2, name="full")
        assert done.code == 255
        assert "the disk is full" in done.status("0-1").message
        assert "Nothing was started." in done.notes
        assert not (lab.farm.hosts[0].home / "full" / "started").exists()
        wait_until_nothing_is_left_over(home)
    finally:
        sh("umount", "-l", str(home))
