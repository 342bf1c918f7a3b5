"""Check the value of one setting, and convert it to the setting's type; an error says where the value was given.

The settings of a proxy's pod (quantities, labels, variables, tolerations) become canonical texts, so that they look the
same in a profile, a flag, and the record of a session.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import LARGEST_NUMBER

ENVIRONMENT_PREFIX = "PATHWAYS_JUPYTER_"

_SERVICE_ADDRESS = re.compile(r"(?P<host>[a-z0-9]([-a-z0-9.]*[a-z0-9])?):(?P<port>[0-9]{1,5})")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_QUANTITY = re.compile(r"(?P<number>\d+(\.\d+)?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_XLA_FLAG = re.compile(r"--xla_[a-z0-9_]+(=\S*)?")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TOLERATION = re.compile(rf"(?P<key>[^=:\s]+)(=(?P<value>[^:\s]*))?(:(?P<effect>{'|'.join(_EFFECTS)}))?")
_OWN_LABELS = ("pathways-jupyter/", "app.kubernetes.io/managed-by", "batch.kubernetes.io/", "app")
_OWN_VARIABLES = {"IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS"}
_TEXTS = {
    *("service", "cluster", "project", "region", "gcs_bucket", "context", "kubeconfig", "namespace", "profile"),
    *("proxy_image", "relay_image", "job"),
}

_SWITCHES = ("local", "tunnel", "relay", "unpickle")
_LEAST_SECONDS: Mapping[str, float] = {
    # A Lease is renewed four times in its duration; with a shorter one, a single slow answer would end the proxy.
    "lease_seconds": 10.0,
    # Starting a proxy may take most of a minute; with a shorter lifetime it would end before it can be used.
    "max_lifetime": 60.0,
}
_POSITIVE = {"keep", "timeout"}
_WHOLE = {"keep", "lease_seconds", "max_lifetime"}
"""Settings that Kubernetes stores as whole seconds: a fraction is rounded up."""
_ENDLESS = {"wait", "linger", "max_lifetime", "timeout"}
"""Settings that may be ``inf``, for no limit."""
_FLAGS: Mapping[str, bool] = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}

_EXAMPLES: Mapping[str, tuple[str, str]] = {
    "tpu": ("tpuv6e:2x2=2", '{ "tpuv6e:2x2" = 2 }'),
    "proxy_options": ("sidecar:true", '["sidecar:true"]'),
    **dict.fromkeys(_SWITCHES, ("", "true")),
    **dict.fromkeys(("wait", "linger", "lease_seconds", "timeout"), ("60", "60")),
    "max_lifetime": ("86400", "86400"),
    "keep": ("7200", "7200"),
    **dict.fromkeys(_TEXTS, ("NAME", '"NAME"')),
}
"""A valid value of each setting, for a flag and in TOML."""


def check(setting: str, value: Any, label: str) -> Any:
    """Validate `value` and convert it to the type of `setting`.

    Raises:
      ConfigError: The value is invalid; the message says where it was given.
    """
    if setting == "tpu":
        return _check_tpu(value, label)
    if setting in _SWITCHES:
        return _check_flag(setting, value, label)
    if setting == "proxy_options":
        return _check_options(value, label)
    if setting in POD_TEXTS:
        return _check_text(setting, value, label)
    if setting in POD_LISTS:
        return _check_list(setting, value, label)
    if setting == "at_least":
        return tpu.parse_count(value, label)
    if setting not in _TEXTS:
        return _check_seconds(setting, value, label)
    if not isinstance(value, (str, os.PathLike)):
        raise _mistyped(setting, label, "a string", value)
    text = os.fsdecode(value)
    if setting == "service":
        _check_service(text)
    if setting == "job" and text and not _SUBDOMAIN.fullmatch(text):
        raise ConfigError(f"{text!r} is not the name of a job.", hint=advice("{job_list} shows their names."))
    if setting == "namespace" and text and not _NAME.fullmatch(text):
        raise ConfigError(f"{text!r} is not a Kubernetes namespace.", hint="Use lower-case letters, digits and dashes.")
    if setting == "gcs_bucket" and text and not text.startswith("gs://"):
        bucket = text.rpartition("://")[2].strip("/") or "BUCKET"
        raise ConfigError(f"{text!r} is not a bucket address.", hint=f"Write it as gs://{bucket}.")
    return text


def _check_tpu(value: Any, label: str) -> dict[str, int]:
    if isinstance(value, str):
        return tpu.parse_instances(value)
    if not isinstance(value, Mapping):
        raise _mistyped("tpu", label, "instance types with their numbers of slices", value)
    return {str(tpu.parse_instance_type(str(name))): tpu.parse_count(count, str(name)) for name, count in value.items()}


def _check_options(value: Any, label: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(value.split())
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
        raise _mistyped("proxy_options", label, "a list of strings", value)
    return tuple(value)


def _check_seconds(setting: str, value: Any, label: str) -> float:
    if setting == "wait" and str(value).lower() in {"true", "false"}:
        return math.inf if str(value).lower() == "true" else 0.0
    try:
        number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if math.isnan(number):
        raise _mistyped(setting, label, "a number of seconds", value)
    least = _LEAST_SECONDS.get(setting, 0.0)
    enough = number > 0 if setting in _POSITIVE else number >= least
    if not enough or (number > LARGEST_NUMBER and not (number == math.inf and setting in _ENDLESS)):
        bound = "more than 0" if setting in _POSITIVE else f"at least {least:g}"
        endless = ", or inf for no limit" if setting in _ENDLESS else ""
        raise _mistyped(setting, label, f"{bound} and at most {LARGEST_NUMBER} seconds{endless}", value)
    return float(math.ceil(number)) if setting in _WHOLE and math.isfinite(number) else number


def _check_flag(setting: str, value: Any, label: str) -> bool:
    known = value if isinstance(value, bool) else _FLAGS.get(str(value).strip().lower())
    if known is None:
        raise _mistyped(setting, label, "true or false", value)
    return known


def _check_service(text: str) -> None:
    match = _SERVICE_ADDRESS.fullmatch(text)
    if text and not _NAME.fullmatch(text) and not (match and 0 < int(match["port"]) < 65536):
        raise ConfigError(
            f"{text!r} is not a Pathways service address.",
            hint="Give its name, or HOST:PORT, e.g. pathways-cluster-pathways-head-0-0.pathways-cluster:29001.",
        )


def _mistyped(setting: str, label: str, wanted: str, value: Any) -> ConfigError:
    flag, toml = _EXAMPLES[setting]
    if label.startswith(ENVIRONMENT_PREFIX):
        example = f"{label}={flag or toml}"
    elif " " in label:
        example = f"{setting} = {toml}"
    else:
        example = f"--{setting.replace('_', '-')} {flag}".rstrip()
    return ConfigError(f"{label} must be {wanted}, not {value!r}.", hint=f"For example: {example}.")


def _quantity_problem(text: str) -> str:
    found = _QUANTITY.fullmatch(text)
    return "" if found is not None and float(found["number"]) > 0 else "it is not a quantity"


def _name_problem(text: str) -> str:
    return "" if _SUBDOMAIN.fullmatch(text) else "names have lower-case letters, digits, dashes and dots"


def _label_problem(text: str) -> str:
    key, separator, value = text.partition("=")
    if not separator:
        return "it is not KEY=VALUE"
    if not _KEY.fullmatch(key):
        return f"{key!r} cannot be the key of a label"
    return "" if _LABEL_VALUE.fullmatch(value) else f"{value!r} cannot be the value of a label"


def _own_label_problem(text: str) -> str:
    key = text.partition("=")[0]
    if any(key == each or (each.endswith("/") and key.startswith(each)) for each in _OWN_LABELS):
        return "the session sets that itself"
    return _label_problem(text)


def _variable_problem(text: str) -> str:
    name, separator, _ = text.partition("=")
    if not separator:
        return "it is not NAME=VALUE"
    if name in _OWN_VARIABLES:
        return "the session sets that itself"
    return "" if _VARIABLE.fullmatch(name) else f"{name!r} cannot be the name of a variable"


def _toleration_problem(text: str) -> str:
    found = _TOLERATION.fullmatch(text)
    if found is None:
        return f"it is not KEY[=VALUE][:EFFECT], with an effect of {', '.join(_EFFECTS)}"
    return "" if _KEY.fullmatch(found["key"]) else f"{found['key']!r} cannot be the key of a taint"


def _xla_flag_problem(text: str) -> str:
    return "" if _XLA_FLAG.fullmatch(text) else "it is not --xla_NAME or --xla_NAME=VALUE"


_Check = Callable[[str], str]
"""Returns why a text does not do; empty when it does."""

POD_TEXTS: Mapping[str, tuple[_Check, str]] = {
    "proxy_cpu": (_quantity_problem, "8"),
    "proxy_memory": (_quantity_problem, "32G"),
    "proxy_priority_class": (_name_problem, "high"),
    "proxy_service_account": (_name_problem, "pathways"),
    "queue": (_name_problem, "team"),
    "priority": (_name_problem, "high"),
}
"""Settings of one value, and its queue's: the check, and an example."""
POD_LISTS: Mapping[str, tuple[_Check, str]] = {
    "proxy_xla_flags": (_xla_flag_problem, "--xla_dump_to=gs://b/d"),
    "proxy_node_selector": (_label_problem, "cloud.google.com/gke-nodepool=cpu-np"),
    "proxy_tolerations": (_toleration_problem, "dedicated=research:NoSchedule"),
    "proxy_labels": (_own_label_problem, "team=research"),
    "proxy_env": (_variable_problem, "TF_CPP_MIN_LOG_LEVEL=0"),
}
"""Settings of several values: the check of each, and an example."""


def _check_text(setting: str, value: Any, label: str) -> str:
    """Check a setting of :data:`POD_TEXTS`; a number is accepted for a quantity."""
    check, example = POD_TEXTS[setting]
    text = str(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else ""
    if problem := check(text):
        raise _unusable(label, value, problem, example)
    return text


def _check_list(setting: str, value: Any, label: str) -> tuple[str, ...]:
    """Check a setting of :data:`POD_LISTS`: a list, a table, or a string with spaces between the values."""
    check, example = POD_LISTS[setting]
    if isinstance(value, str):
        texts: list[Any] = value.split()
    elif isinstance(value, Mapping):
        texts = [f"{key}={each}" for key, each in value.items()]
    else:
        texts = list(value) if isinstance(value, (list, tuple)) else [None]
    for text in texts:
        if problem := check(text) if isinstance(text, str) else "it is not a list of strings":
            raise _unusable(label, text if isinstance(text, str) else value, problem, example)
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


def _unusable(label: str, value: Any, problem: str, example: str) -> ConfigError:
    return ConfigError(f"{label} cannot be {value!r}: {problem}.", hint=f"For example: {example}.")
