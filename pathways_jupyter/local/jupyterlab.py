"""Entry point of the image ``lab``: runs the JupyterLab of this environment in a pod.

The pods of a real cluster have a loopback interface each; here they share this machine's, where every user of it could
connect. So the server listens on the unix socket that stands for its port.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from pathways_jupyter.local.pathways import addresses

_DEFAULT_PORT = 8888


def main(argv: Sequence[str]) -> int:
    """Become ``jupyter lab`` with the options in `argv`, which begins with these two words; does not return.

    Raises:
      SystemExit: The container asks for another program.
    """
    if list(argv[:2]) != ["jupyter", "lab"]:
        raise SystemExit(f"This image runs jupyter lab, not {' '.join(argv[:2]) or 'nothing'}.")
    port, options = _DEFAULT_PORT, []
    for option in argv[2:]:
        name, _, value = option.partition("=")
        if name in {"--port", "--ServerApp.port"}:
            port = int(value)
        elif name not in {"--ip", "--ServerApp.ip"}:
            options.append(option)
    if os.geteuid() == 0:
        # In a container, where the option would usually be wrong, the image decides which user it is.
        options.append("--allow-root")
    socket = addresses.own_socket(port)
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.sock={socket}", *options]
    os.execv(sys.executable, command)
