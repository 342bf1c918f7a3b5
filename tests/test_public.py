"""Public names, as a user finds them with Tab, dir() and help()."""

import inspect
import pydoc
import re
import subprocess
import sys

import pathways_jupyter
from pathways_jupyter import Session, colocated
from pathways_jupyter.base import errors

HIDDEN = {"Any", "Mapping", "Sequence", "TYPE_CHECKING", "annotations", "importlib", "sys"}


def test_tab_offers_what_is_public_and_nothing_else():
    for module in (pathways_jupyter, colocated):
        offered = set(dir(module))
        assert not HIDDEN & offered
        assert {name for name in offered if not name.startswith("__")} == set(module.__all__)
        assert all(getattr(module, name) is not None for name in offered)


def test_what_a_sessions_methods_return_is_public_and_documented():
    members = [each for kind in Session.__mro__[:-1] for each in vars(kind).values()]
    written = [inspect.signature(each).return_annotation for each in members if inspect.isfunction(each)]
    written += [each.fget.__annotations__["return"] for each in members if isinstance(each, property)]
    known = {name for text in written for name in re.findall(r"\b[A-Z]\w+", str(text))}
    public = {
        "Session",
        "SessionRecord",
        "SessionState",
        "SessionError",
        "Event",
        "Switched",
        "Ended",
        "Trace",
        "Save",
        "Saves",
        "Suspension",
    }
    assert public <= known & set(pathways_jupyter.__all__)
    assert known - public <= {
        "Any",
        "None",
        "Iterator",
        "Mapping",
        "Self",
        "Device",
        # For the package's own interfaces.
        "ConnectionAttempt",
        "SessionVerdict",
    }
    for name in public | {"SessionSlice", "EventKind", "NamedArray"}:
        assert getattr(pathways_jupyter, name).__doc__, name


def test_help_begins_with_how_to_use_it():
    """Before pydoc's list of modules, which cannot be hidden."""
    guide, _, _ = pydoc.plain(pydoc.render_doc(pathways_jupyter)).partition("PACKAGE CONTENTS")
    for line in ("%pathways connect --local", "with pathways_jupyter.connect(", "pathways-jupyter --help"):
        assert line in guide


def test_every_error_is_public():
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert kinds <= set(pathways_jupyter.__all__)


def test_colocated_is_found_without_importing_it_and_there_is_no_session_yet():
    program = (
        "import pathways_jupyter as p; print(p.current_session(), p.colocated.function.__name__, p.Session.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None function Session"
