"""Files in a bucket of Google Cloud Storage."""

from __future__ import annotations

import logging
from typing import Any


def open_bucket() -> Any:
    """Return gcsfs' file system, without what was listed before, perhaps in another storage.

    Its errors are raised, and not logged with a traceback too.
    """
    import gcsfs

    logging.getLogger("gcsfs").setLevel(logging.CRITICAL + 1)
    return gcsfs.GCSFileSystem(use_listings_cache=False, skip_instance_cache=True)
