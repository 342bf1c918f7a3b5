"""Kubernetes names and labels, made from the names of users and notebooks, which may contain any character."""

from __future__ import annotations

import getpass
import os
import re
import unicodedata
from pathlib import PurePath

MAX_LABEL = 63
# The pod of a Job gets six characters more, and both must fit into a label.
MAX_JOB_NAME = 52
PREFIX = "pathways-proxy"


def current_user() -> str:
    """Return the name of the user of this process; the uid where the system has no name for it.

    Everything that a user owns (sessions, proxies, what is drawn as "mine") goes by this name. A pod with a random uid
    and no entry in the passwd file is common on hubs; a constant such as "unknown" would make all of its users one.
    """
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def label_value(text: str) -> str:
    """Return `text` as a label's value; empty when no character of it can be used.

    That is at most 63 letters, digits, dots, dashes and underscores, with a letter or digit at both ends.
    """
    allowed = re.sub(r"[^A-Za-z0-9._-]+", "-", _plain(text))
    return allowed.strip("._-")[:MAX_LABEL].rstrip("._-")


def name_part(text: str, length: int) -> str:
    """Return `text` as a part of an object's name: at most `length` lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", _plain(text).lower()).strip("-")[:length].rstrip("-")


def job_name(user: str, session: str) -> str:
    """Return the name of a session's proxy Job: it contains the user, for people, and is as unique as `session`."""
    tail = name_part(session, 24) or "session"
    room = MAX_JOB_NAME - len(PREFIX) - len(tail) - 2
    middle = name_part(user.partition("@")[0], room)
    return "-".join(part for part in (PREFIX, middle, tail) if part)


def short_path(path: str) -> str:
    """Return the last part of a notebook's path, for display."""
    return PurePath(path).name


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
