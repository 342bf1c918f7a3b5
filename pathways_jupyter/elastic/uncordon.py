"""The process that ends an injected fault: wait, then allow pods on the cordoned nodes again.

It is started before the nodes are cordoned, reads the session's record from its standard input, and tries until it
succeeds: the API server may be away when the time is over.
"""

from __future__ import annotations

import json
import sys
import time

from pathways_jupyter.elastic import faults
from pathways_jupyter.errors import PathwaysError
from pathways_jupyter.session.registry import SessionRecord

_AGAIN_SECONDS = 2.0
_LONGEST_SECONDS = 3600.0
"""After this the cluster is taken for gone."""


def main(arguments: list[str]) -> int:
    """Uncordon nodes: the arguments are the seconds to wait, and the nodes."""
    seconds, *nodes = arguments
    record = SessionRecord.from_json(json.load(sys.stdin))
    time.sleep(float(seconds))
    deadline = time.monotonic() + _LONGEST_SECONDS
    while time.monotonic() < deadline:
        try:
            for node in nodes:
                faults.ask(record, lambda client, _, node=node: faults.cordon(client, node, None))  # type: ignore[misc]
        except PathwaysError:
            time.sleep(_AGAIN_SECONDS)
        else:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
