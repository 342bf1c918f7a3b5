"""Errors in a job, in the words of Kubernetes: the field, what it must be, what is there, and what was meant.

The API server says the last word, also about the pod (:mod:`pathways_jupyter.service.pathwaysjob.submission`). Here is
what it says badly or not at all: it names neither the value of a wrong type nor what to write, takes a variable that
nothing replaced for text, and gives up at the first wrong type in a built-in kind.
"""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.base.config import SETTINGS
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.service import names
from pathways_jupyter.service.builtin_kinds import QUANTITY
from pathways_jupyter.service.pathwaysjob import definition
from pathways_jupyter.service.pathwaysjob.definition import Schema

_SHOWN = 10
_LONGEST_VALUE = 60
_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "object": ((dict,), "an object"),
    "array": ((list,), "an array"),
    "string": ((str,), "a string"),
    "integer": ((int,), "an integer"),
    "number": ((int, float), "a number"),
    "boolean": ((bool,), "a boolean"),
    "quantity": ((int, str), "a quantity"),
    "integer or string": ((int, str), "an integer or a string"),
    "": ((object,), "any value"),
}
_VARIABLE = re.compile(r"\$\{[A-Za-z_]\w*\}")
# A program's own text: a shell in the container replaces what stands there.
_PROGRAM = re.compile(r"\.(command|args)\[\d+\]$|\.annotations\.|\.value$")
_COMMAND = re.compile(r"\.(command|args)$")
_TEMPLATE = "spec.controller.template."


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


def refusal(problems: Sequence[Problem]) -> InvalidJob:
    """Return the error that lists `problems`, or the first ones of many."""
    shown = problems[:_SHOWN]
    return InvalidJob("; ".join(f"{each.path}: {each.message}" for each in shown) + ".", shown)


def check(manifest: Mapping[str, Any], *, strict: bool = False) -> None:
    """Check that a job fits the schema of its definition.

    Args:
      strict: Refuse fields that the definition does not have. Those of a pod are left to the cluster: it may be newer.

    Raises:
      InvalidJob: It does not.
    """
    problems = list(_problems(definition.schema(), dict(manifest), "", strict))
    if problems:
        raise refusal(problems)


def unreplaced(manifest: Any, path: str = "") -> Iterator[Problem]:
    """Yield the texts with a ``${VARIABLE}`` that a script should have replaced."""
    if isinstance(manifest, Mapping):
        for key, each in manifest.items():
            yield from unreplaced(each, _join(path, str(key)))
    elif isinstance(manifest, list):
        for number, each in enumerate(manifest):
            yield from unreplaced(each, f"{path}[{number}]")
    elif (
        isinstance(manifest, str)
        and (match := _VARIABLE.search(manifest)) is not None
        # An environment variable may have one among its text; one that is nothing else was meant for a script.
        and (_PROGRAM.search(path) is None or (path.endswith(".value") and match[0] == manifest))
    ):
        where = "" if match[0] == manifest else f" in {_shown(manifest)}"
        yield Problem(path, f"nothing replaced the variable {match[0]}{where}")


def unfit(manifest: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the fields of a job that fits the schema, which would be refused as the setting that means the same."""
    spec, labels = manifest["spec"], manifest["metadata"].get("labels") or {}
    fields = [
        ("spec.pathwaysDir", "gcs_bucket", spec.get("pathwaysDir")),
        ("metadata.labels", "queue", labels.get(names.QUEUE_LABEL)),
        ("metadata.labels", "priority", labels.get(names.PRIORITY_LABEL)),
    ]
    for number, worker in enumerate(spec["workers"]):
        selector = [f"{key}={value}" for key, value in (worker.get("nodeSelector") or {}).items()]
        fields += [
            (f"spec.workers[{number}].priorityClassName", "proxy_priority_class", worker.get("priorityClassName")),
            (f"spec.workers[{number}].nodeSelector", "proxy_node_selector", selector),
        ]
    for path, setting, value in fields:
        if value:
            try:
                SETTINGS[setting].check(value, path)
            except ConfigError as error:
                yield Problem(path, str(error).removeprefix(f"{path} ").rstrip("."))


def unknown_field(path: str) -> str:
    """Return what to say of a field that an API does not have, with the one that was probably meant."""
    schema: Schema = definition.schema()
    *parents, name = re.findall(r"[^.\[\]]+|\[\d+\]", path)
    for step in parents:
        inner = schema.get("items") if step.startswith("[") else (schema.get("properties") or {}).get(step)
        schema = inner if isinstance(inner, dict) else {}
    likely = difflib.get_close_matches(name, schema.get("properties") or (), n=1)
    return f"unknown field; did you mean {likely[0]}?" if likely else "unknown field"


def _problems(schema: Schema, value: Any, path: str, strict: bool) -> Iterator[Problem]:
    kind = schema.get("type", "")
    if schema.get("x-kubernetes-int-or-string"):
        kind = "quantity" if "pattern" in schema else "integer or string"
    types, noun = _TYPES[kind]
    if not isinstance(value, types) or (isinstance(value, bool) and int in types):
        yield Problem(path, f"must be {noun}, not {_shown(value)}{_meant(kind, value, path)}")
    elif kind == "integer":
        least = schema.get("minimum", -(2**63))
        most = 2 ** (31 if schema.get("format") == "int32" else 63) - 1
        if not least <= value <= most:
            yield Problem(path, f"must be from {least} to {most}, not {_shown(value)}")
    elif kind == "quantity" and not re.fullmatch(QUANTITY, str(value)):
        yield Problem(path, f"must be a quantity, not {_shown(value)}{_meant(kind, value, path)}")
    elif "enum" in schema and value not in schema["enum"]:
        yield Problem(path, f"must be one of {', '.join(schema['enum'])}, not {json.dumps(value)}")
    elif kind == "string" and "pattern" in schema and not re.search(schema["pattern"], str(value)):
        yield Problem(path, f"must match {schema['pattern']}, unlike {_shown(value)}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _problems(schema.get("items", {}), each, f"{path}[{number}]", strict)
    elif isinstance(value, dict) and kind == "object":
        # A null counts as absent, as it does for an API server.
        present = {key: each for key, each in value.items() if each is not None}
        properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
        for key in schema.get("required", ()):
            if key not in present:
                likely = difflib.get_close_matches(key, present.keys() - properties.keys(), n=1)
                yield Problem(_join(path, key), f"is missing; you wrote {likely[0]}" if likely else "is missing")
        for key, each in present.items():
            inner, where = properties.get(key, others), _join(path, str(key))
            if inner is not None:
                yield from _problems(inner, each, where, strict)
            elif strict and not schema.get("x-kubernetes-preserve-unknown-fields") and not where.startswith(_TEMPLATE):
                yield Problem(where, unknown_field(where))


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _shown(value: Any) -> str:
    """Return a value with its type, shortened."""
    if value is None or isinstance(value, dict | list):
        return "null" if value is None else "an object" if isinstance(value, dict) else "an array"
    text = json.dumps(value, ensure_ascii=False)
    text = text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
    kinds = ((bool, "boolean"), (int, "integer"), (float, "number"), (object, "string"))
    return f"the {next(noun for kind, noun in kinds if isinstance(value, kind))} {text}"


def _meant(kind: str, value: Any, path: str) -> str:
    """Suggest what to write instead, as the end of a sentence; empty where nothing is likely."""
    if isinstance(value, str):
        if (match := _VARIABLE.search(value)) is not None:
            return f", in which nothing replaced the variable {match[0]}"
        if kind == "quantity":
            return f"; write {_quantity(value)}"
        if kind == "integer" and re.fullmatch(r"[+-]?\d{1,18}", value.strip()):
            return f"; write {int(value)} without quotation marks"
        if kind == "boolean" and value.strip().lower() in {"true", "false"}:
            return f"; write {value.strip().lower()} without quotation marks"
        if kind == "array" and _COMMAND.search(path):
            return f"; write each word as an entry: {_words(value)}"
    if kind == "array" and isinstance(value, str | dict):
        return "; begin each entry with a dash"
    if kind in {"string", "quantity"} and isinstance(value, int | float):
        return "; put it in quotation marks"
    return ""


def _words(line: str) -> str:
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    text = json.dumps(words, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else '["python", "train.py"]'


def _quantity(text: str) -> str:
    """Return the quantity that is written wrongly in `text`, or examples."""
    match = re.fullmatch(r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))\s*([kKmMgGtTpPeE]?)(i?)[bB]?(?:ytes)?\s*", text)
    if match is None:
        return "a number with a unit, such as 500m, 16G or 16Gi"
    number, unit, binary = match.groups()
    unit = unit.upper()
    # Only in decimal is a thousand a small letter.
    return number + (f"{unit}i" if binary and unit else "k" if unit == "K" else unit)
