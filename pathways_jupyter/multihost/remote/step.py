"""Parts that the programs share: answers to the client as lines of JSON, and the directory of their own files."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Where the hosts' Python need not import it, as in the other modules here: that takes longer than a short run.
    from collections.abc import Callable, Iterator
    from typing import Any

HOME = os.path.expanduser("~")
STATE = f"{HOME}/.pathways-jupyter"


def answer(**values: Any) -> None:
    """Send one answer to the client."""
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Answer with the error of a step that fails; a client that has gone gets none."""
    try:
        yield
    except (EOFError, BrokenPipeError):
        pass
    except (OSError, ValueError) as error:
        full = isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}
        path = getattr(error, "filename2", None) or getattr(error, "filename", None) or ""
        message = "the disk is full" if full else getattr(error, "strerror", None) or str(error)
        answer(error="full" if full else "system", message=message, path=str(path))


def remove_old(folder: str, seconds: float, in_use: Callable[[str], bool] = lambda path: False) -> None:
    """Remove what is in `folder` and has not changed for so long, unless it is `in_use`."""
    with contextlib.suppress(FileNotFoundError):
        for each in os.scandir(folder):
            # One that cannot be removed keeps no other.
            with contextlib.suppress(OSError):
                if time.time() - each.stat().st_mtime > seconds and not in_use(each.path):
                    # Imported here, because that takes longer than a short run and is seldom needed.
                    import shutil

                    shutil.rmtree(each.path) if each.is_dir() else os.unlink(each.path)
