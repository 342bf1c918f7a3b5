"""PathwaysJobs as YAML text: reading them, the lines of their fields, and the names of the fields."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from pathways_jupyter.errors import ConfigError
from pathways_jupyter.service.pathwaysjob import definition

_STEP = re.compile(r"\w+|\[\d+\]")


def parse(text: str) -> dict[str, Any]:
    """Read one job.

    Raises:
      ConfigError: It is not YAML, or not one mapping; the message has the line.
    """
    try:
        documents = [each for each in yaml.safe_load_all(text) if each is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        where = f"Line {mark.line + 1}: " if mark is not None else ""
        raise ConfigError(f"{where}{problem}.", hint="Check indentation and quotation marks.") from None
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise ConfigError("This is not one PathwaysJob.", hint="Give one YAML document that begins with apiVersion.")
    return documents[0]


def dump(manifest: Mapping[str, Any]) -> str:
    """Return a job as YAML."""
    return yaml.safe_dump(dict(manifest), sort_keys=False, width=100)


def line_of(text: str, path: str) -> int:
    """Return the line, counted from 1, of a field such as ``spec.workers[0].type``, or of the nearest one above it."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return 1
    line = 1
    for step in _STEP.findall(path):
        key, node = _child(node, step)
        if key is None:
            break
        line = key.start_mark.line + 1
    return line


def fields_at(path: Sequence[str]) -> dict[str, str]:
    """Return the fields below a path of field names, and the kind of value of each; lists are passed through.

    Empty where the definition has no fields of its own, such as in a pod's template.
    """
    schema = definition.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for step in path:
        schema = (_inner(schema).get("properties") or {}).get(step, {})
    properties = _inner(schema).get("properties") or {}
    return {name: _kind(each) for name, each in properties.items() if name != "status"}


def values_at(path: Sequence[str]) -> tuple[str, ...]:
    """Return the allowed values of a field, where they are listed."""
    *above, last = path
    schema = definition.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for step in above:
        schema = (_inner(schema).get("properties") or {}).get(step, {})
    found = (_inner(schema).get("properties") or {}).get(last, {})
    return tuple(found.get("enum") or (("true", "false") if found.get("type") == "boolean" else ()))


def _child(node: Any, step: str) -> tuple[Any, Any]:
    if step.startswith("["):
        items = node.value if isinstance(node, yaml.SequenceNode) else ()
        index = int(step[1:-1])
        return (items[index], items[index]) if index < len(items) else (None, None)
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if key.value == step:
            return key, value
    return None, None


def _inner(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    items = schema.get("items")
    return items if isinstance(items, dict) else schema


def _kind(schema: Mapping[str, Any]) -> str:
    return {"object": "mapping", "array": "list"}.get(str(schema.get("type")), "value")
