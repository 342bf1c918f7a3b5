"""What a connection needs to know, and where each value comes from.

Precedence, highest first: arguments, environment (``PATHWAYS_JUPYTER_<FIELD>``), a named profile, defaults. Profiles
live in ``pathways.toml`` in Jupyter's config directory, one table a profile::

    [profiles.team]
    context = "gke_my-project_us-east5_tpus"
    pathways_service = "pathways-cluster-pathways-head-0-0.pathways-cluster:29001"
    tpu = "tpuv6e:2x2=2"

    [profiles.default]      # used when no profile is named
    namespace = "research"
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pathways_jupyter import tpu
from pathways_jupyter.errors import ConfigError

ENVIRONMENT_PREFIX = "PATHWAYS_JUPYTER_"

_SERVICE_ADDRESS = re.compile(r"(?P<host>[a-z0-9]([-a-z0-9.]*[a-z0-9])?):(?P<port>[0-9]{1,5})")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class ConnectConfig:
    """Everything `connect` was asked for, checked; see :func:`resolve` for how it is made.

    Attributes:
      instances: Slices wanted per instance type, e.g. ``{"tpuv6e:2x2": 2}``.
      pathways_service: ``host:port`` of the resource manager, the name of the service's JobSet, or empty to find the
        only service in the namespace.
      cluster: GKE cluster; with `project` and `region` it is reached without a kubeconfig.
      gcs_bucket: Scratch location of the proxy, ``gs://...``.
      wait: Seconds to wait for taken slices; 0 fails at once, ``inf`` waits for ever.
      linger: Seconds the proxy outlives its kernel, so that a restarted kernel can take it over.
      max_lifetime: Seconds after which the cluster ends the proxy by itself.
      lease_seconds: How long the proxy stays when nobody renews its Lease.
      timeout: Seconds until a proxy pod that does not start counts as failed.
      local: Use the embedded cluster.
    """

    instances: Mapping[str, int] = field(default_factory=dict)
    pathways_service: str = ""
    cluster: str = ""
    project: str = ""
    region: str = ""
    gcs_bucket: str = ""
    context: str = ""
    kubeconfig: str = ""
    namespace: str = ""
    profile: str = ""
    proxy_server_image: str = ""
    proxy_options: tuple[str, ...] = ()
    wait: float = 0.0
    linger: float = 0.0
    max_lifetime: float = 24 * 3600.0
    lease_seconds: float = 60.0
    timeout: float = 300.0
    local: bool = False


def resolve(arguments: Mapping[str, Any], *, environ: Mapping[str, str] | None = None) -> ConnectConfig:
    """Makes a checked config from `arguments`, the environment and the profile they name.

    Args:
      arguments: Field names of :class:`ConnectConfig`, or ``tpu``: ``instances`` as text. None means not given.
      environ: The environment to read instead of the process's own.

    Raises:
      ConfigError: A value is malformed, a name is not a field, or the profile does not exist.
    """
    environ = os.environ if environ is None else environ
    given = {name: value for name, value in arguments.items() if value is not None}
    from_environment = {
        name: environ[ENVIRONMENT_PREFIX + name.upper()]
        for name in (*_FIELDS, "tpu")
        if environ.get(ENVIRONMENT_PREFIX + name.upper())
    }
    name = str(given.get("profile") or from_environment.get("profile") or "")
    values = {**_profile(name), **_one_spelling(from_environment), **_one_spelling(given)}
    checked = {key: _check(key, value) for key, value in values.items()}
    config = ConnectConfig(**checked)
    if config.cluster and not (config.project and config.region):
        raise ConfigError(
            f"Cluster {config.cluster!r} needs its project and region.",
            hint="Add --project and --region, or use --context.",
        )
    return config


def profiles() -> dict[str, dict[str, Any]]:
    """All profiles by name.

    Raises:
      ConfigError: The file is not valid TOML, or its ``profiles`` is not a table of tables.
    """
    path = profiles_path()
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("profiles", {})
    except FileNotFoundError:
        return {}
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error}.", hint="Mend the file, or move it away to use the defaults."
        ) from error
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise ConfigError(f"{path}: profiles must be tables.", hint="Write each profile as [profiles.NAME].")
    return tables


def profiles_path() -> Path:
    """Where profiles are kept."""
    from jupyter_core.paths import jupyter_config_dir

    return Path(jupyter_config_dir()) / "pathways.toml"


def runtime_dir() -> Path:
    """The directory of everything that lives only as long as a process; made with mode 0700."""
    from jupyter_core.paths import jupyter_runtime_dir

    path = Path(jupyter_runtime_dir()) / "pathways"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Not when it is so already: on a file system that has become read-only a clean-up must still find its way here.
    if stat.S_IMODE(path.stat().st_mode) != 0o700:
        path.chmod(0o700)
    return path


_FIELDS = {each.name: each for each in fields(ConnectConfig)}
_NUMBERS = {"wait", "linger", "max_lifetime", "lease_seconds", "timeout"}
_POSITIVE = {"max_lifetime", "lease_seconds", "timeout"}


def _profile(name: str) -> dict[str, Any]:
    known = profiles()
    if name and name not in known:
        listed = ", ".join(sorted(known)) or "none yet"
        raise ConfigError(f"There is no profile {name!r}.", hint=f"Profiles in {profiles_path()}: {listed}.")
    return _one_spelling(known.get(name or "default", {}))


def _one_spelling(values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with ``tpu`` turned into ``instances``, so that a higher layer replaces a lower one."""
    merged = dict(values)
    if "tpu" in merged:
        merged["instances"] = merged.pop("tpu")
    return merged


def _check(name: str, value: Any) -> Any:
    if name not in _FIELDS:
        raise ConfigError(f"Unknown setting {name!r}.", hint=f"Settings: {', '.join(sorted({*_FIELDS, 'tpu'}))}.")
    if name == "instances":
        return _check_instances(value)
    if name in _NUMBERS:
        return _check_number(name, value)
    if name == "local":
        return _check_flag(value)
    if name == "proxy_options":
        return tuple(value.split()) if isinstance(value, str) else tuple(str(each) for each in value)
    text = str(value)
    if name == "pathways_service":
        return _check_service(text)
    if name == "namespace" and text and not _NAME.fullmatch(text):
        raise ConfigError(f"{text!r} is not a Kubernetes namespace.", hint="Use lower-case letters, digits and dashes.")
    if name == "gcs_bucket" and text and not text.startswith("gs://"):
        raise ConfigError(f"{text!r} is not a bucket address.", hint=f"Write it as gs://{text.strip('/')}.")
    return text


def _check_instances(value: Any) -> dict[str, int]:
    if isinstance(value, str):
        return tpu.parse_instances(value)
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{value!r} is not a mapping of instance types to slices.", hint='For example: {"tpuv6e:2x2": 2}.'
        )
    return {str(tpu.parse_instance_type(str(name))): tpu.parse_count(count, str(name)) for name, count in value.items()}


def _check_number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not number >= 0 or (name in _POSITIVE and number == 0):
        raise ConfigError(
            f"{name}={value}: this must be a number of seconds.", hint=f"For example: --{name.replace('_', '-')} 60."
        )
    return number


def _check_flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return str(value).strip().lower() in {"1", "true", "yes", "on"}


def _check_service(text: str) -> str:
    match = _SERVICE_ADDRESS.fullmatch(text)
    if text and not _NAME.fullmatch(text) and not (match and 0 < int(match["port"]) < 65536):
        raise ConfigError(
            f"{text!r} is not a Pathways service address.",
            hint="Give its name, or HOST:PORT, e.g. pathways-cluster-pathways-head-0-0.pathways-cluster:29001.",
        )
    return text
