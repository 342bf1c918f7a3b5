"""Start of Pathways' programs: flags as they take them, and a log in their format, which users and tools read.

Flags are ``--name=value``; many of them matter only on real TPUs.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.tpu import InstanceType

_COLLECTIVE_TIMEOUT_SECONDS = 24 * 60 * 60


def refusal(error: ConfigError) -> str:
    """Return the error of a wrong flag for the log, with what to write instead."""
    return f"{error} {error.hint}".rstrip()


class Flags(argparse.ArgumentParser):
    """Argument parser that raises where argparse would exit, and accepts unknown flags."""

    def __init__(self, program: str) -> None:
        super().__init__(prog=program, add_help=False, allow_abbrev=False)
        self.add_argument("--server_port", type=int, required=True)

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
        values, rest = self.parse_known_args(list(argv))
        if wrong := [each for each in rest if not each.startswith("--")]:
            raise ConfigError(f"{self.prog}: {wrong[0]!r} is not a flag.", hint="Write flags as --name=value.")
        return values


def instance_list(text: str) -> list[InstanceType]:
    """Read ``tpuv6e:2x2,tpuv6e:2x2``: one entry a slice.

    Raises:
      ConfigError: One is not in the catalogue, or there is none.
    """
    instances = [tpu.parse_instance_type(each) for each in text.split(",") if each.strip()]
    if not instances:
        raise ConfigError("No slices were requested.", hint="For example: --virtual_slices=tpuv6e:2x2,tpuv6e:2x2")
    return instances


def set_xla_flags() -> None:
    """Have XLA:CPU behave more like a TPU's; to be called before JAX has devices.

    Devices wait for each other in collectives for a day. XLA:CPU ends the process when one device reaches a collective
    a minute after the others, and with it all arrays of the session. A TPU has no such limit. XLA has compile options
    of these names too, which have no effect.
    """
    names = ("xla_cpu_collective_call_terminate_timeout_seconds", "xla_cpu_collective_timeout_seconds")
    flags = [os.environ.get("XLA_FLAGS", ""), *(f"--{each}={_COLLECTIVE_TIMEOUT_SECONDS}" for each in names)]
    os.environ["XLA_FLAGS"] = " ".join(flags)


class Formatter(logging.Formatter):
    """``I1208 20:10:04.992524       1 worker.py:42] message``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line, then its traceback if it has one."""
        moment = time.strftime("%m%d %H:%M:%S", time.localtime(record.created))
        micros = int(record.created % 1 * 1_000_000)
        head = f"{record.levelname[0]}{moment}.{micros:06d} {record.process or 0:7d} {record.filename}:{record.lineno}]"
        line = f"{head} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def set_up(program: str, argv: Sequence[str]) -> None:
    """Send this process's log to its standard error, beginning with its arguments."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    for chatty in ("jax", "grpc", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    log = logging.getLogger(program)
    for index, argument in enumerate((program, *argv)):
        log.info("argv[%d]: '%s'", index, argument)
