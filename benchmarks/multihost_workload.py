"""A first run on many hosts and a second one after a change, in one process, timed; prints one line of JSON."""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
import time
from pathlib import Path


def main() -> int:
    """Run the command twice, as a notebook does."""
    hosts, key, known_hosts, directory, command = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="pw-") as place:
        os.environ["JUPYTER_RUNTIME_DIR"] = os.environ["JUPYTER_CONFIG_DIR"] = place
        found = {}
        for part in ("first", "again"):
            (Path(directory) / "train.py").write_text(f"print('{part}')\n")
            began = time.perf_counter()
            _run(hosts, key, known_hosts, directory, command, place)
            found[part] = time.perf_counter() - began
    print(json.dumps(found))
    return 0


def _run(hosts: str, key: str, known_hosts: str, directory: str, command: str, place: str) -> None:
    from pathways_jupyter.base import tasks
    from pathways_jupyter.multihost import host_connections
    from pathways_jupyter.multihost import run as runs
    from pathways_jupyter.multihost.run_events import RunEnded
    from pathways_jupyter.multihost.targets import Selection

    selection = Selection(hosts=hosts, keys=(key,), known_hosts=known_hosts)
    request = runs.RunRequest(command, Path(directory), "bench", logs=Path(place) / "logs")
    connections = host_connections.here()
    started = functools.partial(runs.start, selection, request, connections)
    with tasks.iterate(started, connections.background) as events:
        for event in events:
            if isinstance(event, RunEnded) and event.code:
                raise RuntimeError(str(event))


if __name__ == "__main__":
    sys.exit(main())
