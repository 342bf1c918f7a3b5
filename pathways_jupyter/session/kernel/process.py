"""The kernel's own identity: its id, its notebook, and the user's variables."""

from __future__ import annotations

import builtins
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pathways_jupyter.saved.code import is_code

if TYPE_CHECKING:
    from pathways_jupyter.base.events import SessionSlice

_CONNECTION_FILE = re.compile(r"kernel-(?P<id>.+)\.json")


def connection_file() -> Path | None:
    """Return the path of this kernel's connection file; None outside a kernel."""
    if "ipykernel" not in sys.modules:
        return None
    from ipykernel.kernelapp import IPKernelApp

    return Path(IPKernelApp.instance().abs_connection_file) if IPKernelApp.initialized() else None


def kernel_id() -> str:
    """Return Jupyter's id of this kernel, from its connection file's name; empty outside a kernel."""
    path = connection_file()
    match = _CONNECTION_FILE.fullmatch(path.name) if path is not None else None
    return match["id"] if match else ""


def notebook() -> str:
    """Return the notebook's path; empty if the server does not provide it."""
    return os.environ.get("JPY_SESSION_NAME", "")


def directory() -> str:
    """Return the working directory; empty if it has been deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def shell() -> Any:
    """Return the IPython shell of this process; None in a script."""
    module = sys.modules.get("IPython")
    return module.get_ipython() if module is not None else None


def session() -> Any:
    """Return this process's :class:`~.session.Session`, also while its proxy is lost; None if there is none."""
    # Only look the module up: it takes long to import, and a process with a session has imported it.
    module = sys.modules.get("pathways_jupyter.session.kernel.session")
    return module.current() if module is not None else None


def slices() -> tuple[SessionSlice, ...]:
    """Return the slices that this process's session holds; none without a session."""
    current = session()
    return current.record.slices if current is not None else ()


def slice_numbers() -> dict[int, str]:
    """Return the numbers of the session's slices for people, by JAX's index: ``{0: "6 (your 0)"}``."""
    return {each.index: each.numbers for each in slices()}


def namespace() -> dict[str, Any]:
    """Return the notebook's or the script's variables themselves; to set one sets the variable."""
    ipython = shell()
    return vars(sys.modules["__main__"]) if ipython is None else ipython.user_ns


def reserved(name: str) -> str:
    """Return why a variable must not be set to a value from elsewhere, as the end of a sentence; empty if it may be."""
    ipython, present = shell(), namespace().get(name)
    if name.startswith("_") or (ipython is not None and name in ipython.user_ns_hidden):
        return "is a name of IPython's own"
    if hasattr(builtins, name) and name not in namespace():
        return "is a name of Python's own"
    return "is a function, a class or a module here" if is_code(present) else ""


def outputs() -> dict[int, Any]:
    """Return the values that the notebook's history keeps, as ``Out`` does; none in a script."""
    ipython = shell()
    return dict(ipython.user_ns.get("_oh") or {}) if ipython is not None else {}


def variables() -> dict[str, Any]:
    """Return the user's variables by name: the notebook's, or the script's with the locals of its running functions."""
    ipython = shell()
    if ipython is None:
        namespace, hidden = vars(sys.modules["__main__"]), {}
    else:
        namespace, hidden = ipython.user_ns, ipython.user_ns_hidden
    own = {name: value for name, value in namespace.items() if not (name in hidden and hidden[name] is value)}
    frame = sys._getframe(1)
    while frame is not None:
        # A script's arrays are often local to its main(), which waits for this call to return.
        if frame.f_globals is namespace and frame.f_locals is not namespace:
            own = {**frame.f_locals, **own}
        frame = frame.f_back  # type: ignore[assignment]
    return {name: value for name, value in own.items() if not name.startswith("_")}
