"""Files on their way to a notebook's folder: both ends, with a connection between them."""

import socket
import threading

import pytest

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.kernel import fetch


@pytest.fixture
def ends(tmp_path):
    """The pod's copy, the folder here, and a connection to what receives for it."""
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    near, far = socket.socketpair()
    receiving = threading.Thread(target=fetch.receive, args=(far, here, None))
    receiving.start()
    with near:
        yield there, here, near
    receiving.join()


def ignore(*_):
    """The progress, which nothing is to show."""


def test_what_a_killed_fetch_has_left_goes_with_the_next_one(ends):
    there, here, near = ends
    (there / "a").write_text("a")
    (left := here / f"{fetch.SCRATCH}killed").mkdir()
    (left / "0").write_text("half")
    (busy := here / f"{fetch.SCRATCH}busy").mkdir()
    with fetch._locked(busy):
        fetch.send(near, there, fetch.choose(there, [str(there / "a")]), ignore)
    assert sorted(each.name for each in here.iterdir()) == [busy.name, "a"]


def test_many_fetches_of_one_folder_take_nothing_of_each_other(tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    (there / "a").write_text("a")
    fetched = []

    def fetch_it():
        near, far = socket.socketpair()
        receiving = threading.Thread(target=fetch.receive, args=(far, here, None))
        receiving.start()
        with near:
            fetched.append(fetch.send(near, there, fetch.choose(there, [str(there / "a")]), ignore))
        receiving.join()

    for _ in range(50):
        together = [threading.Thread(target=fetch_it) for _ in range(4)]
        for each in together:
            each.start()
        for each in together:
            each.join()
        (here / "a").unlink()
    assert len(fetched) == 200
    assert not [*here.iterdir()]


def test_a_file_that_vanishes_is_named_and_nothing_stays(ends):
    there, here, near = ends
    for name in ("a", "b"):
        (there / name).write_text(name)
    chosen = fetch.choose(there, [str(there)])
    (there / "b").unlink()
    with pytest.raises(ConfigError, match="there/b cannot be read: No such file"):
        fetch.send(near, there, chosen, ignore)
    near.shutdown(socket.SHUT_RDWR)
    assert not list(here.glob("[ab]"))
