"""Errors of runs on many hosts."""

from __future__ import annotations

from pathways_jupyter.base.errors import PathwaysError


class MultihostError(PathwaysError):
    """A run on many hosts could not be prepared or finished."""


class PackError(MultihostError):
    """The directory cannot be packed as it is; nothing was sent."""


class RemoteHostError(MultihostError):
    """Something failed on one host; the message names it."""


class HostUnreachable(RemoteHostError):
    """A host could not be reached, or the connection to it was lost; it may work again later."""
