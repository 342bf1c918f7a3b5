"""Reads kubeconfig files the way kubectl merges them, and never writes one.

The `kubernetes` package reads them too, but importing its loader costs more than a whole connect may; these are plain
files, so the plain cases are read here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pathways_jupyter.errors import ConfigError

_PATHS = {"certificate-authority", "client-certificate", "client-key", "tokenFile"}


@dataclass(frozen=True)
class Context:
    """One context with what it points at; every path in it is absolute.

    Attributes:
      cluster: The cluster's entry, e.g. ``server`` and ``certificate-authority-data``.
      user: The user's entry, e.g. ``token`` or ``exec``.
      source: The file that the user's entry came from; relative commands are relative to it.
    """

    name: str
    namespace: str
    cluster: Mapping[str, Any]
    user: Mapping[str, Any]
    source: Path


@dataclass(frozen=True)
class Kubeconfig:
    """Everything that a set of kubeconfig files says, merged."""

    files: tuple[Path, ...]
    current: str
    contexts: Mapping[str, Mapping[str, Any]]
    clusters: Mapping[str, Mapping[str, Any]]
    users: Mapping[str, Mapping[str, Any]]
    sources: Mapping[str, Path]

    def context(self, name: str = "") -> Context:
        """The context `name`, or the current one.

        Raises:
          ConfigError: There is none of that name, or it points at something that is not there.
        """
        wanted = name or self.current
        listed = ", ".join(sorted(self.contexts)) or "none"
        if not wanted:
            raise ConfigError(
                f"{_listed(self.files)} sets no current context.", hint=f"Give --context; there are: {listed}."
            )
        if wanted not in self.contexts:
            raise ConfigError(
                f"There is no context {wanted!r} in {_listed(self.files)}.", hint=f"Contexts there: {listed}."
            )
        entry = self.contexts[wanted]
        cluster, user = str(entry.get("cluster", "")), str(entry.get("user", ""))
        if cluster not in self.clusters or not self.clusters[cluster].get("server"):
            raise ConfigError(
                f"Context {wanted!r} names cluster {cluster!r}, which has no server in {_listed(self.files)}.",
                hint="Fetch the credentials of the cluster again, or choose another --context.",
            )
        if user and user not in self.users:
            raise ConfigError(
                f"Context {wanted!r} names user {user!r}, which is not in {_listed(self.files)}.",
                hint="Fetch the credentials of the cluster again, or choose another --context.",
            )
        return Context(
            name=wanted,
            namespace=str(entry.get("namespace", "")),
            cluster=self.clusters[cluster],
            user=self.users.get(user, {}),
            source=self.sources.get(user, self.files[0]),
        )


def paths(kubeconfig: str = "", *, environ: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """The files to read: `kubeconfig`, else those of ``$KUBECONFIG``, else ``~/.kube/config``; only existing ones.

    Raises:
      ConfigError: `kubeconfig` was given and does not exist.
    """
    environ = os.environ if environ is None else environ
    if kubeconfig:
        path = Path(kubeconfig).expanduser()
        if not path.is_file():
            raise ConfigError(f"There is no kubeconfig {kubeconfig}.", hint="Check --kubeconfig, or leave it out.")
        return (path.absolute(),)
    listed = [Path(part).expanduser() for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if not listed:
        listed = [Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"]
    return tuple(path.absolute() for path in listed if path.is_file())


def read(files: tuple[Path, ...]) -> Kubeconfig:
    """Merges `files`; where two define the same name, the first one holds.

    Raises:
      ConfigError: A file cannot be read or is not a kubeconfig.
    """
    current = ""
    sections: dict[str, dict[str, Mapping[str, Any]]] = {"contexts": {}, "clusters": {}, "users": {}}
    sources: dict[str, Path] = {}
    for file in files:
        content = _parse(file)
        current = current or str(content.get("current-context") or "")
        for section, merged in sections.items():
            for name, entry in _entries(content, section, file):
                if name not in merged:
                    merged[name] = _absolute(entry, file.parent)
                    if section == "users":
                        sources[name] = file
    return Kubeconfig(files, current, **sections, sources=sources)


def _parse(file: Path) -> Mapping[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
        # Every JSON file is a YAML file, and parsing it needs no YAML parser.
        content = json.loads(text) if text.lstrip().startswith("{") else _parse_yaml(text)
    except (OSError, ValueError) as error:
        raise _unreadable(file, str(error)) from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise _unreadable(file, "it is not a mapping")
    return content


def _parse_yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def _entries(content: Mapping[str, Any], section: str, file: Path) -> list[tuple[str, Mapping[str, Any]]]:
    listed = content.get(section) or []
    singular = section.removesuffix("s")
    try:
        return [(str(each["name"]), dict(each.get(singular) or {})) for each in listed]
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise _unreadable(file, f"its {section} are not a list of named entries") from error


def _absolute(entry: Mapping[str, Any], directory: Path) -> Mapping[str, Any]:
    return {
        key: str(directory / Path(value).expanduser()) if key in _PATHS and value else value
        for key, value in entry.items()
    }


def _unreadable(file: Path, problem: str) -> ConfigError:
    return ConfigError(
        f"{file} is not a usable kubeconfig: {problem}.", hint="Mend it, or point --kubeconfig elsewhere."
    )


def _listed(files: tuple[Path, ...]) -> str:
    return ", ".join(str(file) for file in files)
