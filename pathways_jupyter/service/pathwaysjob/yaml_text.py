"""PathwaysJobs as YAML text: reading them, and the lines of their fields."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from pathways_jupyter.base.errors import ConfigError

MOST = 4_000_000
"""Characters of a job; an API server takes less."""
_STEP = re.compile(r"\w+|\[\d+\]")


class _Loader(yaml.SafeLoader):
    """Reads a date as text, as kubectl does: JSON has none."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag != "tag:yaml.org,2002:timestamp"]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def parse(text: str) -> dict[str, Any]:
    """Read one job.

    Raises:
      ConfigError: It is not YAML, or not one mapping that JSON can hold; the message has the line if it is known.
    """
    try:
        documents = [each for each in yaml.load_all(text, Loader=_Loader) if each is not None]
        # Raises for what YAML can hold and JSON cannot.
        json.dumps(documents, allow_nan=False)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        where = f"Line {mark.line + 1}: " if mark is not None else ""
        raise ConfigError(f"{where}{problem}.", hint="Check indentation and quotation marks.") from None
    except RecursionError:
        raise ConfigError("The YAML is nested too deeply.", hint="Check its brackets.") from None
    except (TypeError, ValueError) as error:
        # Also of a number that is too long for Python.
        raise ConfigError(f"The YAML has a value that cannot be read: {error}.", hint="Quote it.") from None
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
    except (yaml.YAMLError, RecursionError):
        return 1
    line = 1
    for step in _STEP.findall(path):
        key, node = _child(node, step)
        if key is None:
            break
        line = key.start_mark.line + 1
    return line


def _child(node: Any, step: str) -> tuple[Any, Any]:
    if step.startswith("["):
        items = node.value if isinstance(node, yaml.SequenceNode) else ()
        index = int(step[1:-1])
        return (items[index], items[index]) if index < len(items) else (None, None)
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if key.value == step:
            return key, value
    return None, None
