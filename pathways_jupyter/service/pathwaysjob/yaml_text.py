"""PathwaysJobs as YAML text: reading them, and the lines of their fields."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from pathways_jupyter.base.errors import ConfigError

MOST = 4_000_000
"""Characters of a job; an API server takes less."""
_DEEPEST = 100
_MOST_VALUES = 200_000
_MOST_EXACT = 1e21
"""From here on Go writes whole numbers with an exponent."""
_MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """Reads values as kubectl does, which sends JSON. Refuses what is no job, before it costs anything."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._sizes: dict[yaml.Node, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._refuse("it is nested too deeply", getattr(parent, "start_mark", None))
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is not None and node not in self._sizes:
            if isinstance(node, yaml.MappingNode):
                self._check_keys(node)
            # An alias counts as all that it stands for.
            self._sizes[node] = 1 + sum(self._sizes.get(each, 1) for each in _parts(node))
            if self._sizes[node] > _MOST_VALUES:
                self._refuse(f"it has more than {_MOST_VALUES} values", node.start_mark)
        return node

    def fetch_flow_collection_start(self, TokenClass: Any) -> None:
        # The scanner is a line ahead of the rest, in a time that grows with the square of the open brackets.
        if self.flow_level > _DEEPEST:
            self._refuse("it is nested too deeply", self.get_mark())
        super().fetch_flow_collection_start(TokenClass)

    def _check_keys(self, node: yaml.MappingNode) -> None:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                if key.value in lines:
                    self._refuse(f"{key.value} is here and in line {lines[key.value]}; remove one", key.start_mark)
                lines[key.value] = key.start_mark.line + 1

    def _refuse(self, problem: str, mark: Any) -> None:
        raise yaml.composer.ComposerError(None, None, problem, mark)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep=deep)
        # JSON has no other keys.
        return {json.dumps(key) if isinstance(key, int | float) else key: value for key, value in mapping.items()}

    def construct_number(self, node: yaml.ScalarNode) -> float:
        # JSON of kubectl's has no point in a whole number.
        value: float = self.construct_yaml_float(node)
        return int(value) if value.is_integer() and abs(value) < _MOST_EXACT else value


# As kubectl's reader of YAML has it: dates and sexagesimal numbers such as 22:22 are texts, `y` and `n` are true and
# false, and 1e3 is a number.
_TAG = "tag:yaml.org,2002:"
_OTHERWISE = frozenset({"timestamp", "int", "float", "value"})
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag.removeprefix(_TAG) not in _OTHERWISE]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.bool_values = {**yaml.SafeLoader.bool_values, "y": True, "n": False}
for _kind, _pattern, _first in (
    ("bool", r"[yYnN]", "yYnN"),
    ("int", r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|0|[1-9][0-9_]*)", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9][0-9_]*|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
):
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(f"(?:{_pattern})$"), list(_first))
_Loader.add_constructor(f"{_TAG}float", _Loader.construct_number)


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
        raise ConfigError(f"{where}{problem}.", hint="Check indentation, brackets and quotation marks.") from None
    except (RecursionError, TypeError, ValueError) as error:
        # Also of aliases within aliases, and of a number that is too long for Python.
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
        node = yaml.compose(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError):
        return 1
    line, rest = 1, f".{path}"
    while (child := _child(node, rest)) is not None:
        key, node, rest = child
        line = key.start_mark.line + 1
    return line


def _child(node: Any, path: str) -> tuple[Any, Any, str] | None:
    """Return the key and the value to which a path leads first, and the rest of the path."""
    pairs = []
    if isinstance(node, yaml.SequenceNode):
        pairs = [(f"[{number}]", each, each) for number, each in enumerate(node.value)]
    elif isinstance(node, yaml.MappingNode):
        # Of a map, API servers write a key in brackets too; a key may have dots.
        pairs = [(step, key, each) for key, each in node.value for step in (f".{key.value}", f"[{key.value}]")]
    for step, key, value in sorted(pairs, key=lambda each: -len(each[0])):
        if path.startswith(step) and path[len(step) : len(step) + 1] in ("", ".", "["):
            return key, value, path[len(step) :]
    return None


def _parts(node: yaml.Node) -> Iterator[yaml.Node]:
    for each in node.value if isinstance(node, yaml.CollectionNode) else ():
        yield from each if isinstance(each, tuple) else (each,)
