"""Flags and logs of Pathways' programs."""

from __future__ import annotations

import os

import pytest

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.local.pathways import program_start
from pathways_jupyter.local.pathways.program_start import instance_list


def read(*argv: str):
    flags = program_start.flags("worker")
    flags.add_argument("--resource_manager_address", required=True)
    return flags.parse_known_args(argv)[0]


def test_flags_of_real_hardware_are_accepted_and_have_no_effect():
    values = read("--server_port=29001", "--resource_manager_address=rm:1", "--xla_tpu_scoped=1", "--tpu_type")
    assert vars(values) == {"server_port": 29001, "resource_manager_address": "rm:1"}


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--server_port=x", "--resource_manager_address=rm:1"], "argument --server_port: invalid int value: 'x'"),
        (["--server_port=1"], "the following arguments are required: --resource_manager_address"),
        # An abbreviation is another flag.
        (
            ["--server=1", "--resource_manager_address=rm:1"],
            "the following arguments are required: --server_port",
        ),
    ],
)
def test_a_wrong_flag_is_one_line_that_names_the_program(argv, said, capsys):
    with pytest.raises(SystemExit) as ended:
        read(*argv)
    assert (ended.value.code, capsys.readouterr().err) == (2, f"worker: error: {said}\n")


def test_slices_are_listed_one_by_one():
    assert [str(each) for each in instance_list("tpuv6e:2x2, tpuv6e:2x4,")] == ["tpuv6e:2x2", "tpuv6e:2x4"]
    with pytest.raises(ConfigError, match="No slices were requested"):
        instance_list(" , ")


def test_collectives_wait_as_long_as_on_a_tpu(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--mine=1")
    program_start.set_xla_flags()
    flags = os.environ["XLA_FLAGS"].split()
    assert flags[0] == "--mine=1"
    assert len(flags) == 3
    assert all(each.endswith("_timeout_seconds=86400") for each in flags[1:])
