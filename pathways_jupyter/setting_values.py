"""Check the value of one setting, and convert it to the setting's type; an error says where the value was given."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from typing import Any

from pathways_jupyter import pod_settings, tpu
from pathways_jupyter.errors import ConfigError

ENVIRONMENT_PREFIX = "PATHWAYS_JUPYTER_"
MIN_LEASE_SECONDS = 10.0
"""A Lease is renewed four times in its duration; with a shorter one, a single slow answer would end the proxy."""
MIN_LIFETIME_SECONDS = 60.0
"""Starting a proxy may take most of a minute; with a shorter lifetime it would end before it can be used."""
LARGEST_NUMBER = 2**31 - 1
"""The largest that Kubernetes takes in most of its fields; 68 years in seconds."""

_SERVICE_ADDRESS = re.compile(r"(?P<host>[a-z0-9]([-a-z0-9.]*[a-z0-9])?):(?P<port>[0-9]{1,5})")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_JOB_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_TEXTS = {
    *("service", "cluster", "project", "region", "gcs_bucket", "context", "kubeconfig", "namespace", "profile"),
    *("proxy_image", "relay_image", "job"),
}

_SWITCHES = ("local", "tunnel", "plaintext", "relay", "unpickle")
_LEAST_SECONDS: Mapping[str, float] = {"lease_seconds": MIN_LEASE_SECONDS, "max_lifetime": MIN_LIFETIME_SECONDS}
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
        return _check_list(value, label)
    if setting in pod_settings.TEXTS:
        return pod_settings.check_text(setting, value, label)
    if setting in pod_settings.LISTS:
        return pod_settings.check_list(setting, value, label)
    if setting == "at_least":
        return tpu.parse_count(value, label)
    if setting not in _TEXTS:
        return _check_seconds(setting, value, label)
    if not isinstance(value, (str, os.PathLike)):
        raise _mistyped(setting, label, "a string", value)
    text = os.fsdecode(value)
    if setting == "service":
        _check_service(text)
    if setting == "job" and text and not _JOB_NAME.fullmatch(text):
        raise ConfigError(f"{text!r} is not the name of a job.", hint="%pathways job list shows their names.")
    if setting == "namespace" and text and not _NAME.fullmatch(text):
        raise ConfigError(f"{text!r} is not a Kubernetes namespace.", hint="Use lower-case letters, digits and dashes.")
    if setting == "gcs_bucket" and text and not text.startswith("gs://"):
        raise ConfigError(f"{text!r} is not a bucket address.", hint=f"Write it as gs://{_bucket(text)}.")
    return text


def _bucket(text: str) -> str:
    """Return a bucket's name and path without the scheme of an address."""
    return text.rpartition("://")[2].strip("/") or "BUCKET"


def _check_tpu(value: Any, label: str) -> dict[str, int]:
    if isinstance(value, str):
        return tpu.parse_instances(value)
    if not isinstance(value, Mapping):
        raise _mistyped("tpu", label, "instance types with their numbers of slices", value)
    return {str(tpu.parse_instance_type(str(name))): tpu.parse_count(count, str(name)) for name, count in value.items()}


def _check_list(value: Any, label: str) -> tuple[str, ...]:
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
