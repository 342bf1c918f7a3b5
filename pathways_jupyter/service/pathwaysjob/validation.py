"""What is wrong with a PathwaysJob, by the path of each field.

An API server checks a job by its definition. A job that is expanded into a JobSet without one is checked here, by the
same schema, without the rules that relate fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.service.pathwaysjob import definition
from pathways_jupyter.service.pathwaysjob.definition import Schema

_SHOWN = 10
_NOUNS: Mapping[str, tuple[type, str]] = {
    "object": (dict, "a mapping"),
    "array": (list, "a list"),
    "string": (str, "a text"),
    "integer": (int, "a whole number"),
    "boolean": (bool, "true or false"),
}


@dataclass(frozen=True)
class Problem:
    """Something that is wrong with a job: the path of the field, empty if none is named, and why."""

    path: str
    message: str


class InvalidJob(ConfigError):
    """The job is refused; `problems` says where."""

    def __init__(self, message: str, problems: Sequence[Problem], *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)


def check(manifest: Mapping[str, Any], *, strict: bool = False) -> None:
    """Check that a job fits the schema of its definition.

    Args:
      strict: Refuse fields that the definition does not have.

    Raises:
      InvalidJob: It does not.
    """
    found = list(_problems(definition.schema(), dict(manifest), "", strict))[:_SHOWN]
    if found:
        raise InvalidJob("; ".join(f"{each.path}: {each.message}" for each in found) + ".", found)


def _problems(schema: Schema, value: Any, path: str, strict: bool) -> Iterator[Problem]:
    kind, noun = _NOUNS[schema["type"]]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        yield Problem(path, f"must be {noun}")
    elif isinstance(value, int) and kind is int:
        least, most = schema.get("minimum", 0), 2 ** (31 if schema["format"] == "int32" else 63) - 1
        if not least <= value <= most:
            yield Problem(path, f"must be from {least} to {most}")
    elif "enum" in schema and value not in schema["enum"]:
        yield Problem(path, f"must be one of {', '.join(schema['enum'])}")
    elif "pattern" in schema and not re.search(schema["pattern"], str(value)):
        yield Problem(path, f"must match {schema['pattern']}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _problems(schema["items"], each, f"{path}[{number}]", strict)
    elif isinstance(value, dict):
        # A null counts as absent, as it does for an API server.
        given = {key: each for key, each in value.items() if each is not None}
        for key in schema.get("required", ()):
            if key not in given:
                yield Problem(f"{path}.{key}".lstrip("."), "is missing")
        known, others = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, each in given.items():
            inner = known.get(key, others)
            if inner is not None:
                yield from _problems(inner, each, f"{path}.{key}".lstrip("."), strict)
            elif strict and not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield Problem(f"{path}.{key}".lstrip("."), "unknown field")
