"""Errors as the protocol carries them: a code of absl's table and a line of text.

JAX shows ``CODE: message``, and elastic training decides by the code whether a slice went down, so that the code must
survive every way through the server.
"""

from __future__ import annotations

import enum
import re
from typing import Any

from pathways_jupyter.local.pathways.http2.rpcs import CallError, error_status


class Code(enum.IntEnum):
    """absl's status codes."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class IfrtStatusError(CallError):
    """An operation failed, or a value does not exist; kept as long as the value that it stands for."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(code, message)
        self.code: Code = code

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"

    def bare(self) -> IfrtStatusError:
        """Return the same error without the traceback, whose frames would keep alive all that they hold, arrays too."""
        return IfrtStatusError(self.code, self.message)

    def write_to(self, status: Any) -> None:
        """Fill a StatusProto."""
        status.code = int(self.code)
        status.message = self.message


def of(error: BaseException) -> IfrtStatusError:
    """Return the status to report for `error`: XLA's own code where its text begins with one.

    Others are INVALID_ARGUMENT if the client's data did not fit together, and INTERNAL otherwise.

    It is a new object also for an IfrtStatusError, to be kept as long as needed: the traceback does not come with it.
    """
    if isinstance(error, IfrtStatusError):
        return error.bare()
    text = str(error)
    if (match := _XLA_MESSAGE.match(text)) and match["code"] in Code.__members__:
        return IfrtStatusError(Code[match["code"]], match["message"])
    if isinstance(error, MemoryError):
        return IfrtStatusError(Code.RESOURCE_EXHAUSTED, text or "out of memory")
    code, message = error_status(error)
    return IfrtStatusError(Code(code), message)


def invalid(message: str) -> IfrtStatusError:
    """Return the error for a request that is itself wrong."""
    return IfrtStatusError(Code.INVALID_ARGUMENT, message)


def unimplemented(message: str) -> IfrtStatusError:
    """Return the error for what this server cannot do, and does not replace by something else."""
    return IfrtStatusError(Code.UNIMPLEMENTED, message)


_XLA_MESSAGE = re.compile(r"(?:Bad StatusOr access: )?(?P<code>[A-Z_]+): (?P<message>.*)", re.DOTALL)
