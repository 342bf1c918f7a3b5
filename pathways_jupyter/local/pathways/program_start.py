"""Start of Pathways' programs: flags as they take them, and a log in their format, which users and tools read.

Flags are ``--name=value``; many of them matter only on real TPUs.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.tpu import InstanceType

_COLLECTIVE_TIMEOUT_SECONDS = 24 * 60 * 60


def refusal(error: ConfigError) -> str:
    """Return the error of a wrong flag for the log, with what to write instead."""
    return f"{error} {error.hint}".rstrip()


def flags(program: str) -> argparse.ArgumentParser:
    """Return a parser of a program's flags, which ends the program over a wrong one.

    Those for XLA and for real hardware are left over, and have no effect.
    """
    # Without its usage, so that the pod's log has one line that says what is wrong.
    parser = argparse.ArgumentParser(program, usage=argparse.SUPPRESS, add_help=False, allow_abbrev=False)
    parser.add_argument("--server_port", type=int, required=True)
    return parser


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


def set_up(program: str, argv: Sequence[str]) -> None:
    """Send this process's log to its standard error, beginning with its arguments."""
    handler = logging.StreamHandler(sys.stderr)
    # As in "I1208 20:10:04.992000       1 worker.py:42] message".
    line = "%(levelname).1s%(asctime)s.%(msecs)03d000 %(process)7d %(filename)s:%(lineno)d] %(message)s"
    handler.setFormatter(logging.Formatter(line, "%m%d %H:%M:%S"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    for chatty in ("jax", "grpc", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    log = logging.getLogger(program)
    for index, argument in enumerate((program, *argv)):
        log.info("argv[%d]: '%s'", index, argument)
