"""Check the value of a setting, from whatever source, and convert it to the setting's type.

The settings of a proxy's pod (quantities, labels, variables, tolerations) become canonical texts, so that they look the
same in a profile, a flag, and the record of a session.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import LARGEST_NUMBER, seconds_in

_SERVICE_ADDRESS = re.compile(r"(?P<host>[a-z0-9]([-a-z0-9.]*[a-z0-9])?):(?P<port>[0-9]{1,5})")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_QUANTITY = re.compile(r"(?P<number>\d+(\.\d+)?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")
_BUCKET = re.compile(r"[a-z0-9]([a-z0-9._-]{0,220}[a-z0-9])?")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TOLERATION = re.compile(rf"(?P<key>[^=:\s]+)(=(?P<value>[^:\s]*))?(:(?P<effect>{'|'.join(_EFFECTS)}))?")
_OWN_LABELS = ("pathways-jupyter/", "app.kubernetes.io/managed-by", "batch.kubernetes.io/", "app")
_OWN_VARIABLES = {"IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS"}
_FLAGS: Mapping[str, bool] = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


Check = Callable[[Any, str], Any]
"""Returns a value in the type that it has in a config; gets what errors call it. Raises UnfitError or a ConfigError."""


class UnfitError(Exception):
    """A value is not of the type; `str()` goes on after the place where it was given: ``must be ..., not ...``."""


def _mistyped(expected: str, value: Any) -> UnfitError:
    return UnfitError(f"must be {expected}, not {value!r}")


def flag(value: Any, _: str) -> bool:
    """Check true or false, also as a word."""
    parsed = value if isinstance(value, bool) else _FLAGS.get(str(value).strip().lower())
    if parsed is None:
        raise _mistyped("true or false", value)
    return parsed


def instances(value: Any, _: str) -> dict[str, int]:
    """Check numbers of slices by instance type; return them by the types' canonical names."""
    if isinstance(value, str):
        return tpu.parse_instances(value)
    if not isinstance(value, Mapping):
        raise _mistyped("instance types with their numbers of slices", value)
    return tpu.by_type((str(name), count) for name, count in value.items())


def slices(value: Any, _: str) -> int:
    """Check a number of slices."""
    try:
        return tpu.parse_count(value, "")
    except ConfigError:
        raise _mistyped("a whole number of at least 1", value) from None


def words(value: Any, _: str) -> tuple[str, ...]:
    """Check strings, or one with spaces between them."""
    if isinstance(value, str):
        return tuple(value.split())
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
        raise _mistyped("a list of strings", value)
    return tuple(value)


def seconds(*, least: float = 0.0, positive: bool = False, integer: bool = False, endless: bool = False) -> Check:
    """Return the check of a number of seconds.

    Args:
      least: The smallest; 0 itself is refused with `positive`.
      integer: Kubernetes stores it as whole seconds: a fraction is rounded up.
      endless: It may be ``inf``, for no limit.
    """

    def check(value: Any, _: str) -> float:
        try:
            number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else math.nan
        except (ValueError, OverflowError):
            number = math.nan
        if math.isnan(number):
            raise _mistyped("a number of seconds", value)
        enough = number > 0 if positive else number >= least
        if not enough or (number > LARGEST_NUMBER and not (number == math.inf and endless)):
            bound = "more than 0" if positive else f"at least {least:g}"
            unlimited = ", or inf for no limit" if endless else ""
            raise _mistyped(f"{bound} and at most {LARGEST_NUMBER} seconds{unlimited}", value)
        return float(math.ceil(number)) if integer and math.isfinite(number) else number

    return check


def wait(value: Any, label: str) -> float:
    """Check seconds, or true for no limit and false for none."""
    switch = {"true": math.inf, "false": 0.0}.get(str(value).lower())
    return seconds(endless=True)(value, label) if switch is None else switch


def duration(value: Any, label: str) -> float:
    """Check seconds, also as a text such as ``2h``."""
    number = seconds_in(value) if isinstance(value, str) else value
    if isinstance(number, float) and math.isnan(number):
        raise _mistyped("a time", value)
    return float(seconds()(number, label))


def text(validate: Callable[[str], None] | None = None) -> Check:
    """Return the check of a string or path.

    Args:
      validate: Raises a ConfigError for a text that does not do; not called for an empty one, which is none.
    """

    def check(value: Any, _: str) -> str:
        if not isinstance(value, (str, os.PathLike)):
            raise _mistyped("a string", value)
        decoded = os.fsdecode(value)
        if validate is not None and decoded:
            validate(decoded)
        return decoded

    return check


def service_address(text: str) -> None:
    """Refuse what is neither a service's name nor ``HOST:PORT``."""
    match = _SERVICE_ADDRESS.fullmatch(text)
    if not _NAME.fullmatch(text) and not (match and 0 < int(match["port"]) < 65536):
        raise ConfigError(
            f"{text!r} is not a Pathways service address.",
            hint="Give its name, or HOST:PORT, e.g. pathways-cluster-pathways-head-0-0.pathways-cluster:29001.",
        )


def job_name(text: str) -> None:
    """Refuse what cannot be a job's name."""
    if not _SUBDOMAIN.fullmatch(text):
        raise ConfigError(f"{text!r} is not the name of a job.", hint=advice("{job_list} shows their names."))


def namespace(text: str) -> None:
    """Refuse what cannot be a namespace."""
    if not _NAME.fullmatch(text):
        raise ConfigError(f"{text!r} is not a Kubernetes namespace.", hint="Use lower-case letters, digits and dashes.")


def bucket_address(text: str) -> None:
    """Refuse what is not ``gs://`` and a name, perhaps with a path."""
    bucket, slash, path = text.rpartition("://")[2].strip("/").partition("/")
    hint = f"Write it as gs://{bucket or 'BUCKET'}{slash}{path}."
    if bucket and not _BUCKET.fullmatch(bucket):
        hint = "The name of a bucket has lower-case letters, digits, dashes, dots and underscores."
    elif text.startswith("gs://") and bucket:
        return
    raise ConfigError(f"{text!r} is not a bucket address.", hint=hint)


def check_priority(priority: str, queue: str) -> None:
    """Refuse a priority without the queue in which it counts."""
    if priority and not queue:
        raise ConfigError("A priority needs a queue.", hint=advice("Add {queue:NAME}, or leave out {priority}."))


def _name_problem(text: str) -> str:
    return "" if _SUBDOMAIN.fullmatch(text) else "names have lower-case letters, digits, dashes and dots"


def _quantity_problem(text: str) -> str:
    match = _QUANTITY.fullmatch(text)
    return "" if match is not None and float(match["number"]) > 0 else "it is not a quantity"


def _label_problem(text: str) -> str:
    key, separator, value = text.partition("=")
    if not separator:
        return "it is not KEY=VALUE"
    if not _KEY.fullmatch(key):
        return f"{key!r} cannot be the key of a label"
    return "" if _LABEL_VALUE.fullmatch(value) else f"{value!r} cannot be the value of a label"


def _annotation_problem(text: str) -> str:
    key, separator, _ = text.partition("=")
    if not separator:
        return "it is not KEY=VALUE"
    return "" if _KEY.fullmatch(key) else f"{key!r} cannot be the key of an annotation"


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
    match = _TOLERATION.fullmatch(text)
    if match is None:
        return f"it is not KEY[=VALUE][:EFFECT], with an effect of {', '.join(_EFFECTS)}"
    return "" if _KEY.fullmatch(match["key"]) else f"{match['key']!r} cannot be the key of a taint"


@dataclass(frozen=True)
class PodFormat:
    """The format of a value of a pod.

    Attributes:
      problem: Returns why a text does not do; empty when it does.
    """

    metavar: str
    problem: Callable[[str], str]

    def check(self, value: Any, _: str) -> str:
        """Check one value; a number is accepted for a quantity."""
        text = str(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else ""
        return self._checked(text, value)

    def check_list(self, value: Any, _: str) -> tuple[str, ...]:
        """Check several: a list, a table, or a string with spaces between the values."""
        if isinstance(value, str):
            texts: list[Any] = value.split()
        elif isinstance(value, Mapping):
            texts = [f"{key}={each}" for key, each in value.items()]
        else:
            texts = list(value) if isinstance(value, (list, tuple)) else [None]
        return tuple(self._checked(text, text if isinstance(text, str) else value) for text in texts)

    def _checked(self, text: Any, value: Any) -> str:
        if problem := self.problem(text) if isinstance(text, str) else "it is not a list of strings":
            raise UnfitError(f"cannot be {value!r}: {problem}")
        return str(text)


QUANTITY = PodFormat("QUANTITY", _quantity_problem)
NAME = PodFormat("NAME", _name_problem)
LABEL = PodFormat("KEY=VALUE", _label_problem)
OWN_LABEL = PodFormat("KEY=VALUE", _own_label_problem)
ANNOTATION = PodFormat("KEY=VALUE", _annotation_problem)
VARIABLE = PodFormat("NAME=VALUE", _variable_problem)
TOLERATION = PodFormat("KEY[=VALUE][:EFFECT]", _toleration_problem)


def pairs(texts: Iterable[str]) -> dict[str, str]:
    """Return checked ``KEY=VALUE`` texts as a dictionary."""
    return {key: value for key, _, value in (text.partition("=") for text in texts)}


def toleration(text: str) -> dict[str, str]:
    """Return a checked toleration as Kubernetes writes it; without a value it tolerates any, without an effect all."""
    match = _TOLERATION.fullmatch(text)
    assert match is not None
    made = {"key": match["key"], "operator": "Exists" if match["value"] is None else "Equal"}
    if match["value"] is not None:
        made["value"] = match["value"]
    return made | ({"effect": match["effect"]} if match["effect"] else {})
