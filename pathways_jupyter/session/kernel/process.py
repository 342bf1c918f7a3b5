"""What this process knows of itself: which kernel and notebook it is, and what variables its user has."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

_CONNECTION_FILE = re.compile(r"kernel-(?P<id>.+)\.json")


def kernel_id() -> str:
    """Jupyter's id of this kernel, from its connection file's name; empty outside a kernel."""
    if "ipykernel" not in sys.modules:
        return ""
    from ipykernel.kernelapp import IPKernelApp

    if not IPKernelApp.initialized():
        return ""
    match = _CONNECTION_FILE.fullmatch(Path(IPKernelApp.instance().connection_file).name)
    return match["id"] if match else ""


def notebook() -> str:
    """Path of the notebook; empty where the server does not tell."""
    return os.environ.get("JPY_SESSION_NAME", "")


def shell() -> Any:
    """The IPython shell that this process runs; None in a script."""
    module = sys.modules.get("IPython")
    return module.get_ipython() if module is not None else None


def variables() -> dict[str, Any]:
    """The user's own variables by name: a notebook's, or those of the script and of its functions that run now."""
    found = shell()
    if found is None:
        namespace, hidden = vars(sys.modules["__main__"]), {}
    else:
        namespace, hidden = found.user_ns, found.user_ns_hidden
    own = {name: value for name, value in namespace.items() if not (name in hidden and hidden[name] is value)}
    frame = sys._getframe(1)
    while frame is not None:
        # A script's arrays are often local to its main(), which waits for this call to return.
        if frame.f_globals is namespace and frame.f_locals is not namespace:
            own = {**frame.f_locals, **own}
        frame = frame.f_back  # type: ignore[assignment]
    return {name: value for name, value in own.items() if not name.startswith("_")}
