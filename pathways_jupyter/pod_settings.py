"""Settings of a proxy's pod: quantities, labels, variables, tolerations; checked, and as Kubernetes writes them.

Each check returns the canonical text of a value, so that it looks the same in a profile, a flag, and the record of a
session. An error names the source of the value and shows one that is right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pathways_jupyter.errors import ConfigError

_QUANTITY = re.compile(r"(?P<number>\d+(\.\d+)?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_XLA_FLAG = re.compile(r"--xla_[a-z0-9_]+(=\S*)?")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TOLERATION = re.compile(rf"(?P<key>[^=:\s]+)(=(?P<value>[^:\s]*))?(:(?P<effect>{'|'.join(_EFFECTS)}))?")
_OWN_LABELS = ("pathways-jupyter/", "app.kubernetes.io/managed-by", "batch.kubernetes.io/", "app")
_OWN_VARIABLES = {"IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS"}


def _quantity(text: str) -> str:
    found = _QUANTITY.fullmatch(text)
    return "" if found is not None and float(found["number"]) > 0 else "it is not a quantity"


def _name(text: str) -> str:
    return "" if _NAME.fullmatch(text) else "names have lower-case letters, digits, dashes and dots"


def _label(text: str) -> str:
    key, separator, value = text.partition("=")
    if not separator:
        return "it is not KEY=VALUE"
    if not _KEY.fullmatch(key):
        return f"{key!r} cannot be the key of a label"
    return "" if _LABEL_VALUE.fullmatch(value) else f"{value!r} cannot be the value of a label"


def _own_label(text: str) -> str:
    key = text.partition("=")[0]
    if any(key == each or (each.endswith("/") and key.startswith(each)) for each in _OWN_LABELS):
        return "the session sets that itself"
    return _label(text)


def _variable(text: str) -> str:
    name, separator, _ = text.partition("=")
    if not separator:
        return "it is not NAME=VALUE"
    if name in _OWN_VARIABLES:
        return "the session sets that itself"
    return "" if _VARIABLE.fullmatch(name) else f"{name!r} cannot be the name of a variable"


def _toleration(text: str) -> str:
    found = _TOLERATION.fullmatch(text)
    if found is None:
        return f"it is not KEY[=VALUE][:EFFECT], with an effect of {', '.join(_EFFECTS)}"
    return "" if _KEY.fullmatch(found["key"]) else f"{found['key']!r} cannot be the key of a taint"


def _xla_flag(text: str) -> str:
    return "" if _XLA_FLAG.fullmatch(text) else "it is not --xla_NAME or --xla_NAME=VALUE"


_Check = Callable[[str], str]
"""Returns why a text does not do; empty when it does."""

TEXTS: Mapping[str, tuple[_Check, str]] = {
    "proxy_cpu": (_quantity, "8"),
    "proxy_memory": (_quantity, "32G"),
    "proxy_priority_class": (_name, "high"),
    "proxy_service_account": (_name, "pathways"),
}
"""Settings of one value: the check, and an example."""
LISTS: Mapping[str, tuple[_Check, str]] = {
    "proxy_xla_flags": (_xla_flag, "--xla_dump_to=gs://b/d"),
    "proxy_node_selector": (_label, "cloud.google.com/gke-nodepool=cpu-np"),
    "proxy_tolerations": (_toleration, "dedicated=research:NoSchedule"),
    "proxy_labels": (_own_label, "team=research"),
    "proxy_env": (_variable, "TF_CPP_MIN_LOG_LEVEL=0"),
}
"""Settings of several values: the check of each, and an example."""


def check_text(setting: str, value: Any, label: str) -> str:
    """Check a setting of :data:`TEXTS`; a number is accepted for a quantity.

    Args:
      label: How an error refers to the source of the value.

    Raises:
      ConfigError: The value does not do.
    """
    check, example = TEXTS[setting]
    text = str(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else ""
    if problem := check(text):
        raise _error(label, value, problem, example)
    return text


def check_list(setting: str, value: Any, label: str) -> tuple[str, ...]:
    """Check a setting of :data:`LISTS`: a list, a table, or a string with spaces between the values.

    Raises:
      ConfigError: A value does not do.
    """
    check, example = LISTS[setting]
    if isinstance(value, str):
        texts: list[Any] = value.split()
    elif isinstance(value, Mapping):
        texts = [f"{key}={each}" for key, each in value.items()]
    else:
        texts = list(value) if isinstance(value, (list, tuple)) else [None]
    for text in texts:
        if problem := check(text) if isinstance(text, str) else "it is not a list of strings":
            raise _error(label, text if isinstance(text, str) else value, problem, example)
    return tuple(texts)


def pairs(texts: Iterable[str]) -> dict[str, str]:
    """Return checked ``KEY=VALUE`` texts as a dictionary."""
    return {key: value for key, _, value in (text.partition("=") for text in texts)}


def toleration(text: str) -> dict[str, str]:
    """Return a checked toleration as Kubernetes writes it; without a value it tolerates any, without an effect all."""
    found = _TOLERATION.fullmatch(text)
    assert found is not None
    made = {"key": found["key"], "operator": "Exists" if found["value"] is None else "Equal"}
    if found["value"] is not None:
        made["value"] = found["value"]
    return made | ({"effect": found["effect"]} if found["effect"] else {})


def _error(label: str, value: Any, problem: str, example: str) -> ConfigError:
    return ConfigError(f"{label} cannot be {value!r}: {problem}.", hint=f"For example: {example}.")
