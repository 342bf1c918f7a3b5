from __future__ import annotations

import pytest

from pathways_jupyter.base.events import SessionSlice
from pathways_jupyter.colocated.errors import CheckError, name_hosts
from pathways_jupyter.colocated.host import Host, choose
from pathways_jupyter.session.kernel import process

HOSTS = tuple(Host(index, index // 2, index % 2, (), ()) for index in range(6))


def indices(**where) -> list[int]:
    return [host.index for host in choose(HOSTS, **where)]


def test_all_hosts_are_chosen_when_nothing_is_said() -> None:
    assert indices() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"slices": "0,2"}, [0, 1, 4, 5]),
        ({"slices": [1]}, [2, 3]),
        ({"hosts": "0-2,5"}, [0, 1, 2, 5]),
        ({"hosts": "1-3", "slices": "0"}, [1]),
        ({"slices": "1-2", "once": True}, [2]),
    ],
)
def test_hosts_are_chosen_by_slice_by_index_and_once(where, expected) -> None:
    assert indices(**where) == expected


def test_a_slice_is_named_by_the_services_number_and_else_by_the_sessions_own(monkeypatch) -> None:
    held = (SessionSlice(1, 0, True), SessionSlice(2, 1, True), SessionSlice(6, 2, True))
    monkeypatch.setattr(process, "slices", lambda: held)
    assert [indices(slices=str(number)) for number in (1, 2, 6, 0)] == [[0, 1], [2, 3], [4, 5], [0, 1]]
    with pytest.raises(CheckError, match="There is no slice 7") as caught:
        choose(HOSTS, slices="7")
    assert "1 (your 0), 2 (your 1), 6 (your 2)" in caught.value.hint


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"slices": "3"}, "There is no slice 3"),
        ({"hosts": "4-7"}, "There is no host 6, 7"),
        ({"hosts": "one"}, "'one' does not name a host"),
        ({"slices": "0", "hosts": "5"}, "No host is in both"),
    ],
)
def test_what_names_no_host_is_refused_with_what_there_is(where, message) -> None:
    with pytest.raises(CheckError, match=message) as caught:
        indices(**where)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("numbers", "name"),
    [([3], "host 3"), ([0, 1], "hosts 0, 1"), ([2, 0, 1], "hosts 0-2"), ([0, 2, 3], "hosts 0, 2, 3")],
)
def test_hosts_are_named_shortly(numbers, name) -> None:
    assert name_hosts(numbers) == name
