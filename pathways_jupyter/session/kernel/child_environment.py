"""Pass a session's proxy on to the processes that its kernel starts, through the kernel's environment."""

from __future__ import annotations

import os

from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.session.variables import PLATFORMS, variables


class ChildEnvironment:
    """The session's variables in ``os.environ``, from :meth:`share` until :meth:`restore`.

    The kernel's own JAX does not notice them: it has read its settings when it was imported.
    """

    def __init__(self) -> None:
        self._before: dict[str, str | None] = {}

    def share(self, record: SessionRecord) -> dict[str, str]:
        """Set the variables for the proxy of `record`, and return them."""
        found = os.environ.get(PLATFORMS, "") if PLATFORMS not in self._before else self._before[PLATFORMS] or ""
        given = variables(record, environ={PLATFORMS: found})
        for name, value in given.items():
            self._before.setdefault(name, os.environ.get(name))
            os.environ[name] = value
        return given

    def follow(self, record: SessionRecord) -> None:
        """Change the variables to those of `record`, the session's new proxy; no-op if they are not shared."""
        if self._before:
            self.share(record)

    def restore(self) -> None:
        """Restore the variables to what they were."""
        while self._before:
            name, value = self._before.popitem()
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
