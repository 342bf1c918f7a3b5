"""The process that ends an injected fault: wait, then allow pods on the cordoned nodes again.

It is started before the nodes are cordoned, reads from its standard input where the cluster is, and tries until it
succeeds: the API server may be away when the time is over. It ends early when someone has healed the fault, or when an
embedded cluster has ended.
"""

from __future__ import annotations

import sys
import time

from pathways_jupyter.config import ConnectConfig
from pathways_jupyter.elastic import cordons, fault_targets
from pathways_jupyter.errors import PathwaysError
from pathways_jupyter.session import protocol, reach

_LOOK_SECONDS = 0.5
_AGAIN_SECONDS = 2.0


def main(arguments: list[str]) -> int:
    """Uncordon nodes.

    Args:
      arguments: The fault for which they were cordoned, the seconds that it lasts, and the seconds after that until a
        cluster that does not answer is taken for gone.
    """
    fault, seconds, patience = arguments[0], float(arguments[1]), float(arguments[2])
    where, lasts = fault_targets.from_json(sys.stdin.read()), cordons.lasting(fault)
    config = where if isinstance(where, ConnectConfig) else protocol.config_from_json(where.config)
    embedded = reach.Embedded.of(config)
    over, given_up = time.monotonic() + seconds, time.monotonic() + seconds + patience
    try:
        while time.monotonic() < given_up and not (embedded is not None and embedded.has_ended()):
            if time.monotonic() < over and lasts.exists():
                time.sleep(_LOOK_SECONDS)
                continue
            try:
                # Also when the file is gone: it may have been removed by someone who did not heal.
                fault_targets.ask(where, lambda client, _: cordons.uncordon(client, fault))
            except PathwaysError:
                time.sleep(_AGAIN_SECONDS)
            else:
                return 0
        return 1
    finally:
        lasts.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
