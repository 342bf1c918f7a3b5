"""Google's services, as the account of this machine uses them."""

from __future__ import annotations

import logging
import os
from typing import Any

from pathways_jupyter.base.errors import ClusterError

LOGIN = "Run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS to a service account's file."
"""Advice where Google does not accept who asks."""


def no_credentials() -> ClusterError:
    """Return the error of a machine without Google's default credentials."""
    return ClusterError("There are no Google credentials on this machine.", hint=LOGIN)


def open_bucket() -> Any:
    """Return gcsfs' file system, without what was listed before, perhaps in another storage.

    Its errors are raised, and not logged with a traceback too.

    Raises:
      ClusterError: There are no Google credentials on this machine.
    """
    import gcsfs
    import google.auth.exceptions

    logging.getLogger("gcsfs").setLevel(logging.CRITICAL + 1)
    # By itself gcsfs would try the metadata server for a minute, then go on without credentials; and it would send a
    # user's token to an emulator.
    method = "anon" if os.environ.get("STORAGE_EMULATOR_HOST") else "google_default"
    try:
        return gcsfs.GCSFileSystem(token=method, use_listings_cache=False, skip_instance_cache=True)
    except google.auth.exceptions.DefaultCredentialsError as error:
        raise no_credentials() from error
