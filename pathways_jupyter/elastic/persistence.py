"""Arrays that go between TPU hosts and a bucket, and not through this process: what Pathways calls persistence.

Its requests are plugin programs, which a proxy need not serve. Orbax's handler for them is private to it, so another
version may have none. Needs the extra ``pathways_jupyter[elastic]``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint._src.serialization import cloud_pathways_array_handler, cloud_pathways_helper

# Orbax warns with every checkpoint that is not in its other format, which hosts cannot write.
logging.getLogger("absl").addFilter(lambda record: "Skipping merge of OCDBT" not in record.getMessage())


class Arrays(cloud_pathways_array_handler.CloudPathwaysArrayHandler):  # type: ignore[misc]
    """Writes JAX's arrays from their hosts, and reads them there or, without `by_hosts`, in this process."""

    by_hosts = True

    async def deserialize(self, infos: Sequence[Any], args: Sequence[Any] | None = None) -> Any:
        """See Orbax."""
        if self.by_hosts:
            return await super().deserialize(infos, args)
        return await ocp.type_handlers.ArrayHandler.deserialize(self, infos, args)


def unsupported(dtypes: Sequence[Any]) -> str:
    """Return the first type of elements that hosts cannot read; empty if there is none."""
    for dtype in dtypes:
        try:
            cloud_pathways_helper.dtype_to_xla_primitive_type_str(np.dtype(dtype))
        except ValueError:
            return str(dtype)
    return ""
