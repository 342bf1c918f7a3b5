"""Credentials that a kubeconfig's plugin gives, and that a test can take away."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import yaml


@dataclass
class Token:
    """A token in a file; it has always just expired, so that each request reads the file again."""

    path: Path
    good: str

    @classmethod
    def of(cls, kubeconfig: Path, path: Path) -> Self:
        """Write the token that `kubeconfig` has to `path`."""
        made = cls(path, yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"])
        made.renew()
        return made

    def give(self, kubeconfig: Path) -> None:
        """Let a plugin give the token to the users of `kubeconfig`."""
        content = yaml.safe_load(kubeconfig.read_text())
        plugin = {"command": "cat", "args": [str(self.path)], "interactiveMode": "Never"}
        content["users"][0]["user"] = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", **plugin}}
        kubeconfig.write_text(yaml.safe_dump(content))

    def renew(self) -> None:
        self._write(self.good)

    def revoke(self) -> None:
        self._write("revoked")

    def _write(self, token: str) -> None:
        status = {"token": token, "expirationTimestamp": "2020-01-01T00:00:00Z"}
        content = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
        # As a whole: a plugin may be reading it.
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(content))
        fresh.replace(self.path)
