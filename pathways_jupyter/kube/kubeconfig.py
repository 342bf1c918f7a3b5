"""Read kubeconfig files and merge them like kubectl; they are never written.

The `kubernetes` package reads them too. It checks no field, so a wrong one shows as one of Python's own exceptions in
the middle of a request, without the file's name; and importing it takes too long to complete a context's name.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pathways_jupyter.base import text_files
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import parse_path

REFETCH = "Fetch the credentials of the cluster again, e.g. gcloud container clusters get-credentials."
"""Hint for a kubeconfig that cannot be used."""

_PATHS = {"certificate-authority", "client-certificate", "client-key", "tokenFile"}
_DEEPEST = 50
_TYPES = {str: "text", bool: "true or false", list: "a list", dict: "a mapping", type(None): "empty"}


@dataclass(frozen=True)
class KubeconfigEntry:
    """The fields of one named cluster or user, with absolute paths.

    Kubeconfigs are written by hand and by many programs, so each field is checked when it is read; errors name the
    file, the entry and the field.

    Attributes:
      file: The file that holds the entry; relative commands are relative to its directory.
      title: Its name in messages, e.g. ``user 'jane'``.
    """

    file: Path
    title: str
    fields: Mapping[str, Any]

    def text(self, field: str) -> str:
        """Return a field's text; empty where it is not set.

        Raises:
          ConfigError: It is not text, or not a single line.
        """
        text: str = self._of(field, str) or ""
        if not text.isprintable():
            # It may become part of a request's head, where a line break would start another header.
            raise self.wrong(field, "contains a line break or another control character")
        return text

    def flag(self, field: str) -> bool:
        """Return a boolean field; False where it is not set.

        Raises:
          ConfigError: It is not a boolean, e.g. the text "false", which would count as true.
        """
        return bool(self._of(field, bool))

    def texts(self, field: str) -> tuple[str, ...]:
        """Return a field that is a list of texts; empty where it is not set.

        Raises:
          ConfigError: It is not a list of texts.
        """
        listed = self._of(field, list) or []
        return tuple(
            KubeconfigEntry(self.file, self.title, {f"{field}[{at}]": each}).text(f"{field}[{at}]")
            for at, each in enumerate(listed)
        )

    def within(self, field: str) -> KubeconfigEntry:
        """Return a field that is a mapping as an entry; without fields where it is not set.

        Raises:
          ConfigError: It is not a mapping.
        """
        return KubeconfigEntry(self.file, f"{field} of {self.title}", self._of(field, dict) or {})

    def wrong(self, field: str, problem: str, hint: str = "") -> ConfigError:
        """Return the error for a field that cannot be used; `problem` continues the sentence."""
        return ConfigError(f"{self.file}: {field} of {self.title} {problem}.", hint=hint or f"Fix it. {REFETCH}")

    def about(self, error: ConfigError) -> ConfigError:
        """Return `error` with the file and the name of this entry before its message."""
        return ConfigError(f"{self.file}, {self.title}: {error}", hint=error.hint)

    def _of(self, field: str, kind: type) -> Any:
        value = self.fields.get(field)
        if value is None or isinstance(value, kind):
            return value
        actual = _TYPES.get(type(value), "a number" if isinstance(value, int | float) else "a date")
        quotes = "; put it in quotes" if kind is str and actual != "a list" and actual != "a mapping" else ""
        raise self.wrong(field, f"must be {_TYPES[kind]}, but is {actual}{quotes}")


@dataclass(frozen=True)
class Context:
    """A context with the cluster and the user that it names.

    Attributes:
      cluster: The cluster's entry, e.g. ``server`` and ``certificate-authority-data``.
      user: The user's entry, e.g. ``token`` or ``exec``.
    """

    name: str
    namespace: str
    cluster: KubeconfigEntry
    user: KubeconfigEntry


@dataclass(frozen=True)
class Kubeconfig:
    """The merged content of a set of kubeconfig files."""

    files: tuple[Path, ...]
    current: str
    contexts: Mapping[str, KubeconfigEntry]
    clusters: Mapping[str, KubeconfigEntry]
    users: Mapping[str, KubeconfigEntry]

    def context(self, name: str = "") -> Context:
        """Return the context `name`, or the current one.

        Raises:
          ConfigError: There is no such context, or it names a cluster or user that does not exist.
        """
        name_or_current = name or self.current
        files = ", ".join(map(str, self.files))
        listed = ", ".join(sorted(self.contexts)) or "none"
        if not name_or_current:
            raise ConfigError(
                f"{files} sets no current context.",
                hint=advice("Choose one with {context}: {listed}.", listed=listed),
            )
        if name_or_current not in self.contexts:
            raise ConfigError(f"There is no context {name_or_current!r} in {files}.", hint=f"Contexts there: {listed}.")
        entry = self.contexts[name_or_current]
        cluster, user = entry.text("cluster"), entry.text("user")
        if cluster not in self.clusters or not self.clusters[cluster].text("server"):
            raise ConfigError(
                f"Context {name_or_current!r} names cluster {cluster!r}, which has no server in {files}.",
                hint=advice("Fetch the credentials of the cluster again, or choose another {context}."),
            )
        if user and user not in self.users:
            raise ConfigError(
                f"Context {name_or_current!r} names user {user!r}, which is not in {files}.",
                hint=advice("Fetch the credentials of the cluster again, or choose another {context}."),
            )
        return Context(
            name=name_or_current,
            namespace=entry.text("namespace"),
            cluster=self.clusters[cluster],
            user=self.users.get(user, KubeconfigEntry(entry.file, "no user", {})),
        )


def paths(kubeconfig: str = "", *, environ: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Return the existing files among `kubeconfig`, else those of ``$KUBECONFIG``, else ``~/.kube/config``.

    Raises:
      ConfigError: `kubeconfig` was given and does not exist.
    """
    environ = os.environ if environ is None else environ
    if kubeconfig:
        path = parse_path(kubeconfig)
        if not path.is_file():
            raise ConfigError(
                f"There is no kubeconfig {kubeconfig}.", hint=advice("Check {kubeconfig}, or leave it out.")
            )
        return (path.absolute(),)
    listed = [parse_path(part) for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if not listed:
        listed = [Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"]
    return tuple(path.absolute() for path in listed if path.is_file())


def read(files: tuple[Path, ...]) -> Kubeconfig:
    """Merge `files`; where two define the same name, the first one wins.

    Raises:
      ConfigError: A file cannot be read or is not a kubeconfig.
    """
    current = ""
    sections: dict[str, dict[str, KubeconfigEntry]] = {"contexts": {}, "clusters": {}, "users": {}}
    for file in files:
        content = _parse(file)
        current = current or str(content.get("current-context") or "")
        for section, merged in sections.items():
            for name, entry in _entries(content, section, file):
                merged.setdefault(name, entry)
    return Kubeconfig(files, current, **sections)


def _parse(file: Path) -> Mapping[str, Any]:
    try:
        content = _parse_text(text_files.read(file))
    except (OSError, ValueError) as error:
        raise _unreadable(file, str(error)) from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise _unreadable(file, "it is not a mapping")
    return content


def _parse_text(text: str) -> Any:
    if text.lstrip().startswith("{"):
        # Almost always JSON, which needs no YAML parser; otherwise YAML in flow style.
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(text)
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        depth = 0
        for event in yaml.parse(text, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                # Loading it would overflow libyaml's C stack, and crash the process.
                raise ValueError("it is nested too deeply")
        return yaml.load(text, Loader=loader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def _entries(content: Mapping[str, Any], section: str, file: Path) -> list[tuple[str, KubeconfigEntry]]:
    listed = content.get(section) or []
    kind = section.removesuffix("s")
    try:
        named = [(str(each["name"]), dict(each.get(kind) or {})) for each in listed]
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise _unreadable(file, f"its {section} are not a list of named entries") from error
    for _, fields in named:
        for key in _PATHS & fields.keys():
            if fields[key] and isinstance(fields[key], str):
                fields[key] = str(file.parent / parse_path(fields[key]))
    return [(name, KubeconfigEntry(file, f"{kind} {name!r}", fields)) for name, fields in named]


def _unreadable(file: Path, problem: str) -> ConfigError:
    return ConfigError(
        f"{file} is not a usable kubeconfig: {problem}.", hint=advice("Fix it, or point {kubeconfig} elsewhere.")
    )
