"""Versions of hosts compared with this process's: plain data, without a host."""

from __future__ import annotations

import pytest

from pathways_jupyter.colocated import host_versions

HERE = {"python": "3.12.4", "jax": "0.10.2", "jaxlib": "0.10.2", "numpy": "2.3.1", "cloudpickle": "3.1.0"}


def compared(**there: str) -> list[host_versions.Difference]:
    return host_versions.differences(HERE, {0: HERE, 1: {**HERE, **there}})


def test_equal_versions_are_no_difference() -> None:
    assert compared() == []


@pytest.mark.parametrize(
    ("component", "version", "severe"),
    [
        ("python", "3.12.9", False),
        ("python", "3.11.4", True),
        ("python", "3.1.4", True),
        ("jax", "0.10.3", False),
        ("jax", "0.9.2", True),
        ("jaxlib", "0.9.2", False),
        ("numpy", "1.26.4", False),
        ("cloudpickle", "3.2.0", False),
    ],
)
def test_only_another_minor_version_of_python_or_jax_keeps_code_from_being_sent(component, version, severe) -> None:
    (found,) = compared(**{component: version})
    assert (found.component, found.there, found.hosts, found.severe) == (component, version, (1,), severe)
    assert bool(host_versions.unreadable([found], {"cloudpickle", "jax", "jaxlib"})) is severe


def test_a_severe_difference_comes_first_and_an_unknown_version_is_none() -> None:
    assert [each.component for each in compared(cloudpickle="3.2.0", python="3.11.0")] == ["python", "cloudpickle"]
    assert compared(numpy="") == []
    assert host_versions.differences(HERE, {0: {"scipy": "1.0"}}) == []


def test_differences_are_reported_with_their_hosts() -> None:
    there = {0: {**HERE, "numpy": "2.2.0"}, 1: {**HERE, "python": "3.11.9"}, 2: HERE}
    assert [str(each) for each in host_versions.differences(HERE, there)] == [
        "python 3.11.9 on host 1, 3.12.4 here",
        "numpy 2.2.0 on host 0, 2.3.1 here",
    ]
