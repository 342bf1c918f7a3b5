"""Command-line flags as Pathways' programs take them: ``--name=value``, many of which matter only on real TPUs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from pathways_jupyter import tpu
from pathways_jupyter.errors import ConfigError
from pathways_jupyter.tpu import InstanceType


class Flags(argparse.ArgumentParser):
    """Argument parser that raises where argparse would exit, and accepts unknown flags."""

    def __init__(self, program: str) -> None:
        super().__init__(prog=program, add_help=False, allow_abbrev=False)
        self.add_argument("--server_port", type=int, required=True)
        self.add_argument("--gcs_scratch_location", default="")

    def error(self, message: str) -> NoReturn:
        """Raise argparse's message.

        Raises:
          ConfigError: Always.
        """
        raise ConfigError(f"{self.prog}: {message}")

    def read(self, argv: Sequence[str]) -> argparse.Namespace:
        """Read `argv`; flags for XLA and for real hardware are accepted and have no effect.

        Raises:
          ConfigError: A known flag has a wrong value, or something is no flag at all.
        """
        known, rest = self.parse_known_args(list(argv))
        if wrong := [each for each in rest if not each.startswith("--")]:
            raise ConfigError(f"{self.prog}: {wrong[0]!r} is not a flag.", hint="Write flags as --name=value.")
        return known


def instance_list(text: str) -> list[InstanceType]:
    """Read ``tpuv6e:2x2,tpuv6e:2x2``: one entry a slice.

    Raises:
      ConfigError: One is not in the catalogue, or there is none.
    """
    found = [tpu.parse_instance_type(each) for each in text.split(",") if each.strip()]
    if not found:
        raise ConfigError("no slices were requested", hint="For example: --virtual_slices=tpuv6e:2x2,tpuv6e:2x2")
    return found
