from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pathways_jupyter.base.errors import LocalClusterError
from pathways_jupyter.local.apiserver.api_errors import StatusError
from pathways_jupyter.local.apiserver.resources import CONFIG_MAPS, CRDS
from pathways_jupyter.local.apiserver.store import Store


def write(store: Store, *names: str, data: dict[str, str] | None = None) -> None:
    for name in names:
        store.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": data or {}})


def names(store: Store) -> list[str]:
    return [obj["metadata"]["name"] for obj in store.list(CONFIG_MAPS)]


async def test_state_revisions_and_history_come_back(tmp_path: Path) -> None:
    before = Store(tmp_path / "journal")
    write(before, "a", "b", "c")
    since = before.revision
    before.edit(CONFIG_MAPS, "default", "a", lambda obj: obj.update(data={"x": "y"}))
    before.delete(CONFIG_MAPS, "default", "b")
    state, revision = before.list(CONFIG_MAPS), before.revision
    before.close()

    after = Store(tmp_path / "journal")

    assert (after.list(CONFIG_MAPS), after.revision) == (state, revision)
    changes = await after.watch(CONFIG_MAPS, since=since).batch()
    assert [(change.type, change.object["metadata"]["name"]) for change in changes] == [
        ("MODIFIED", "a"),
        ("DELETED", "b"),
    ]
    write(after, "d")
    assert after.revision == revision + 1


def test_definitions_come_back_with_their_types(tmp_path: Path) -> None:
    Store(tmp_path / "journal").close()
    store = Store(tmp_path / "journal")
    assert store.resources.find("jobset.x-k8s.io", "v1alpha2", "jobsets") is not None
    store.delete(CRDS, "", "jobsets.jobset.x-k8s.io")
    store.close()

    assert Store(tmp_path / "journal").resources.find("jobset.x-k8s.io", "v1alpha2", "jobsets") is None


def test_a_line_cut_short_by_a_kill_is_dropped(tmp_path: Path) -> None:
    store = Store(tmp_path / "journal")
    write(store, "a", "b")
    store.close()
    whole = (tmp_path / "journal").read_bytes()
    (tmp_path / "journal").write_bytes(whole[:-20])

    store = Store(tmp_path / "journal")
    assert names(store) == ["a"]
    write(store, "c")
    store.close()

    assert names(Store(tmp_path / "journal")) == ["a", "c"]


def test_a_damaged_line_is_reported_and_not_skipped(tmp_path: Path) -> None:
    store = Store(tmp_path / "journal")
    write(store, "a")
    store.close()
    lines = (tmp_path / "journal").read_bytes().splitlines(keepends=True)
    (tmp_path / "journal").write_bytes(b"".join([lines[0], b"{oops}\n", *lines[1:]]))

    with pytest.raises(LocalClusterError, match="line 2 cannot be read"):
        Store(tmp_path / "journal")


def test_the_file_is_rewritten_before_it_grows_without_end(tmp_path: Path) -> None:
    store = Store(tmp_path / "journal")
    write(store, "a", "b")
    for number in range(6_000):
        store.edit(CONFIG_MAPS, "default", "a", lambda obj, number=number: obj.update(data={"n": str(number)}))
    revision, state = store.revision, store.list(CONFIG_MAPS)
    store.close()

    assert (tmp_path / "journal").read_bytes().count(b"\n") < 2_000
    after = Store(tmp_path / "journal")
    assert (after.revision, after.list(CONFIG_MAPS)) == (revision, state)
    with pytest.raises(StatusError) as gone:
        after.watch(CONFIG_MAPS, since=10)
    assert gone.value.status == 410


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    Store(tmp_path / "journal").close()

    assert (tmp_path / "journal").stat().st_mode & 0o777 == 0o600


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small file system")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True, capture_output=True)


PAGES = {"x": "y" * 10_000}
"""More than what is left of a file's last page."""


def fill(place: Path) -> Path:
    ballast = place / "ballast"
    for size in (4096, 1):
        with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
            while file.write(bytes(size)):
                pass
    return ballast


def test_on_a_full_disk_nothing_is_created_and_what_there_is_can_be_deleted(small_disk: Path) -> None:
    store = Store(small_disk / "journal")
    write(store, "a", "b")
    ballast = fill(small_disk)
    with pytest.raises(StatusError, match="cannot store the change: No space left on device"):
        write(store, "c", data=PAGES)
    assert names(store) == ["a", "b"]
    store.edit(CONFIG_MAPS, "default", "a", lambda obj: obj.update(data=PAGES))
    store.delete(CONFIG_MAPS, "default", "b")
    with pytest.raises(StatusError, match="No space left"):
        write(store, "d", data=PAGES)
    store.close()
    after = Store(small_disk / "journal")
    assert after.list(CONFIG_MAPS) == store.list(CONFIG_MAPS)
    ballast.unlink()
    write(after, "e")
    assert names(after) == ["a", "e"]
    after.close()


def test_a_change_of_which_a_part_is_written_is_not_there_after_a_restart(small_disk: Path) -> None:
    store = Store(small_disk / "journal")
    write(store, "a")
    with pytest.raises(StatusError, match="No space left"):
        write(store, "large", data={"x": "y" * 3_000_000})
    write(store, "b")
    store.close()
    assert names(Store(small_disk / "journal")) == ["a", "b"]
