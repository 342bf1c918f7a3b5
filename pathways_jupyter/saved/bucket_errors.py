"""Errors of a bucket, of the hosts and of the disk below, in the words of this package."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator

from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.saved.index import UNREADABLE

_NO_SPACE = "Free some space in the directory of local up --bucket, or else in the runtime directory, and try again."


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Raise what fails in the block as a PathwaysError with what to do; `what` is the sentence's beginning."""
    from gcsfs.retry import HttpError
    from google.auth.exceptions import GoogleAuthError

    try:
        yield
    except FileNotFoundError:
        raise PathwaysError(f"{what}: there is none of that name.", hint=advice("{saved} lists them.")) from None
    except (OSError, HttpError, GoogleAuthError, *errors_of_jax()) as error:
        if os.strerror(errno.ENOSPC) in str(error):
            # Only the embedded cluster's bucket is on a disk; the hosts' libraries say it in 400 characters.
            raise PathwaysError(f"{what}: the disk of the bucket is full.", hint=_NO_SPACE) from error
        # Without TensorStore's description of the whole file.
        said = str(error).partition("\n")[0].partition(" [tensorstore_spec")[0].rstrip(".")
        if "DATA_LOSS" in said:
            # What was lost before is named without this.
            hint = advice("Try again: what was on it is named then. {slices} shows when all are up.")
            raise PathwaysError(f"{what}: a slice went down.", hint=hint) from error
        if isinstance(error, errors_of_jax()):
            hint = advice("If it is the bucket, the hosts' account and yours need it; {status} shows the session.")
            raise PathwaysError(f"{what}: {said}.", hint=hint) from error
        raise PathwaysError(f"{what}: {said}.", hint="The hosts' account and yours need the bucket.") from error
    except UNREADABLE as error:
        raise PathwaysError(f"{what}: {str(error).rstrip('.')}.") from error


def errors_of_jax() -> tuple[type[Exception], ...]:
    """Return the errors of JAX, and so of the hosts; none in a process without JAX."""
    # To list and delete saves needs no JAX.
    jax = sys.modules.get("jax")
    return (jax.errors.JaxRuntimeError,) if jax is not None else ()
