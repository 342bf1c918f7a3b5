"""The program on a host makes a directory hold what a manifest describes: whole, from what there is, nowhere else."""

import contextlib
import gzip
import io
import os

import pytest

from pathways_jupyter.multihost.pack import Sending, pack
from pathways_jupyter.multihost.remote import step
from pathways_jupyter.multihost.remote import sync as remote
from pathways_jupyter.multihost.remote.sync import Sync


class Place:
    """A client's directory, and a host with run directories."""

    def __init__(self, directory):
        self.code, self.state, self.home = (directory / name for name in ("code", "state", "home"))
        self.code.mkdir()
        self.home.mkdir()

    def write(self, **files):
        for name, text in files.items():
            path = self.code / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    @contextlib.contextmanager
    def begin(self, run="run"):
        entries = [(each.path, each.kind, each.mode, each.content, each.size) for each in pack(self.code).entries]
        with Sync(str(self.state), "id", str(self.home / run), entries) as sync:
            yield sync
        assert not list((self.state / "incoming").iterdir())

    async def archive(self, contents):
        with Sending(self.code) as sending:
            file = await sending.archive(tuple(contents))
            file.seek(0)
            return file.read()

    async def sync(self, run="run"):
        """Return the number of contents that were sent, and of files that were written."""
        with self.begin(run) as made:
            missing = made.compare()
            if missing:
                made.receive(io.BytesIO(await self.archive(missing)))
            return len(missing), made.apply()

    def found(self, run="run"):
        root = self.home / run
        return {str(each.relative_to(root)): each.read_text() for each in root.rglob("*") if each.is_file()}


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.fixture
def outside(tmp_path):
    """A directory of the user on the host that is none of a run's business."""
    made = tmp_path / "outside"
    made.mkdir()
    (made / "a").write_text("precious")
    yield made
    assert {each.name: each.read_text() for each in made.iterdir()} == {"a": "precious"}


async def test_only_what_differs_is_sent_and_written(place):
    place.write(a="one", b="two", sub__c="one")
    # The content of two files is sent once.
    assert await place.sync() == (2, 3)
    assert await place.sync() == (0, 0)
    place.write(b="changed")
    assert await place.sync() == (1, 1)
    assert place.found() == {"a": "one", "b": "changed", "sub/c": "one"}


async def test_another_run_copies_what_is_on_the_host_and_does_not_share_it(place):
    place.write(a="one", b="two")
    await place.sync("first")
    place.write(c="three")
    assert await place.sync("second") == (1, 3)
    (place.home / "second" / "a").write_text("by the command")
    assert place.found("first") == {"a": "one", "b": "two"}
    # What a command has changed is no source any more.
    (place.home / "first" / "a").write_text("also")
    assert await place.sync("third") == (1, 3)


async def test_files_that_change_places_are_not_sent_again(place):
    place.write(a="one", b="two")
    await place.sync()
    place.write(a="two", b="one")
    assert await place.sync() == (0, 2)
    assert place.found() == {"a": "two", "b": "one"}


async def test_what_is_in_the_way_on_the_host_keeps_no_other_file_old(place):
    place.write(a="one", b__c="one", z="one")
    await place.sync()
    (place.home / "run" / "a").unlink()
    (place.home / "run" / "a").mkdir()
    (place.home / "run" / "b" / "c").unlink()
    (place.home / "run" / "b").rmdir()
    (place.home / "run" / "b").write_text("by the command")
    place.write(a="two", b__c="two", z="two")
    with pytest.raises(IsADirectoryError) as failed:
        await place.sync()
    assert failed.value.filename == "a"
    assert place.found() == {"b": "by the command", "z": "two"}
    # Again, until it is out of the way.
    (place.home / "run" / "a").rmdir()
    (place.home / "run" / "b").unlink()
    assert await place.sync() == (0, 2)
    assert place.found() == {"a": "two", "b/c": "two", "z": "two"}


async def test_modes_links_and_empty_folders_arrive_and_go(place):
    # Two of one content have each its own mode.
    place.write(tool="run", same="run", data__x="x", data__y="y")
    (place.code / "tool").chmod(0o755)
    (place.code / "same").chmod(0o600)
    (place.code / "link").symlink_to("data/x")
    (place.code / "empty").mkdir()
    await place.sync()
    home = place.home / "run"
    assert os.readlink(home / "link") == "data/x"
    assert [(home / name).stat().st_mode & 0o777 for name in ("tool", "same")] == [0o755, 0o600]
    assert (home / "empty").is_dir()
    (place.code / "tool").chmod(0o600)
    (place.code / "link").unlink()
    (place.code / "link").symlink_to("data/y")
    for name in ("x", "y"):
        (place.code / "data" / name).unlink()
    (place.code / "data").rmdir()
    # A file where there was a folder.
    place.write(data="now a file")
    (home / "result").write_text("of the command")
    await place.sync()
    assert (home / "tool").stat().st_mode & 0o777 == 0o600
    assert os.readlink(home / "link") == "data/y"
    assert place.found() == {"tool": "run", "same": "run", "data": "now a file", "result": "of the command"}
    assert not [each for each in place.state.rglob("*") if each.name != "run.json" and each.is_file()]


async def test_a_stream_that_ends_early_leaves_nothing(place):
    names = [f"file{number}" for number in range(8)]
    place.write(**{name: os.urandom(40_000).hex() for name in names})
    with place.begin() as begun:
        archive = await place.archive(begun.compare())
        with pytest.raises((EOFError, ValueError)):
            begun.receive(io.BytesIO(archive[: len(archive) // 2]))
    assert not (place.home / "run").exists()
    assert await place.sync() == (len(names), len(names))
    assert place.found() == {name: (place.code / name).read_text() for name in names}


@pytest.mark.parametrize(
    ("brought", "problem"),
    [
        (gzip.compress(b"one, and more"), "more arrived than was requested"),
        (gzip.compress(b"on"), "not all files arrived"),
        (gzip.compress(b""), "not all files arrived"),
        (b"Welcome to this host!\n", "damaged"),
        (gzip.compress(b"one")[:-8] + bytes(8), "damaged"),
    ],
    ids=["more", "less", "nothing", "a greeting", "a wrong checksum"],
)
def test_a_stream_that_is_not_what_was_requested_is_refused(place, brought, problem):
    place.write(a="one")
    with place.begin() as begun:
        begun.compare()
        with pytest.raises(ValueError, match=problem):
            begun.receive(io.BytesIO(brought))
    assert not (place.home / "run").exists()


@pytest.mark.parametrize(
    ("path", "kind", "content"),
    [
        ("../a", "file", "0" * 40),
        ("/a", "file", "0" * 40),
        ("sub/../../a", "file", "0" * 40),
        ("", "file", "0" * 40),
        ("..", "dir", ""),
        ("link", "link", "../outside"),
        ("link", "link", "/etc"),
        ("sub/link", "link", "../../outside"),
    ],
)
def test_a_manifest_that_leads_out_of_the_directory_is_refused(place, path, kind, content):
    with pytest.raises(ValueError, match="leads out of the directory"):
        Sync(str(place.state), "one", str(place.home / "run"), [(path, kind, 0o644, content, 1)])


async def test_a_link_of_the_host_is_not_followed_out_of_the_directory(place, outside):
    place.write(sub__a="one", sub__b="two")
    await place.sync()
    home = place.home / "run"
    for each in (home / "sub").iterdir():
        each.unlink()
    (home / "sub").rmdir()
    (home / "sub").symlink_to(outside)
    with pytest.raises(OSError, match="leads out of the run directory"):
        await place.sync()
    # Not even to remove what is not sent any more.
    (place.code / "sub" / "a").unlink()
    (place.code / "sub" / "b").unlink()
    (place.code / "sub").rmdir()
    await place.sync()
    (home / "sub").unlink()
    (home / "real").mkdir()
    (home / "sub").symlink_to("real")
    place.write(sub__a="one")
    await place.sync()
    assert (home / "real" / "a").read_text() == "one"


async def test_a_source_that_is_changed_just_now_is_noticed(place):
    place.write(a="one")
    await place.sync("first")
    with place.begin("second") as begun:
        assert begun.compare() == []
        (place.home / "first" / "a").write_text("two")
        with pytest.raises(OSError, match="changed just now"):
            begun.apply()


async def test_a_run_directory_on_another_file_system_is_written(place, monkeypatch):
    replace = os.replace

    def between_file_systems(source, target):
        if str(source).startswith(str(place.state)) and str(target).startswith(str(place.home)):
            raise OSError(remote.errno.EXDEV, "Invalid cross-device link")
        replace(source, target)

    monkeypatch.setattr(remote.os, "replace", between_file_systems)
    place.write(a="one")
    (place.code / "link").symlink_to("a")
    await place.sync()
    place.write(a="two")
    await place.sync()
    assert place.found() == {"a": "two", "link": "two"}
    assert os.readlink(place.home / "run" / "link") == "a"


def test_what_has_not_been_used_for_long_is_removed(tmp_path):
    for name in ("old", "young", "used"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    (tmp_path / "file").touch()
    for name in ("old", "used", "file"):
        os.utime(tmp_path / name, (0, 0))
    step.remove_old(str(tmp_path), 60.0, lambda path: path.endswith("used"))
    assert {each.name for each in tmp_path.iterdir()} == {"young", "used"}
    step.remove_old(str(tmp_path / "nowhere"), 60.0)
