"""The settings of a connection, each declared once: type, default, sentence, and how it is given.

A setting has the same name everywhere: as a keyword of :func:`pathways_jupyter.connect`, as a magic's flag, in a
profile and in the environment (``tpu``, ``--tpu``, ``tpu = ...``, ``PATHWAYS_JUPYTER_TPU``). The flags, their help and
the further fields of the sidebar's connect dialog are made from this table; tests hold the signature and docstring of
``connect`` and docs/settings.md against it.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from pathways_jupyter.base import setting_values as values
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.sentences import advice, option
from pathways_jupyter.base.setting_values import Check, PodFormat, UnfitError

ENVIRONMENT_PREFIX = "PATHWAYS_JUPYTER_"


@dataclass(frozen=True)
class SettingSpec:
    """Description of one setting, and the ways to give it.

    Attributes:
      about: The sentence for help and documentation, without a capital letter and a full stop.
      kind: Value of :class:`pathways_jupyter.commands.declaration.ValueKind` for its option; `completion`, of Source.
      convert: Checks and converts a value.
      example: A valid value as the option takes it. `toml` is the same in a profile; if empty, errors show the example
        alone.
      shown: The default in words.
      of: What it belongs to. Commands that only select a cluster have those of the cluster. Those of the proxy
        do not apply to a session that uses the proxy of a job.
      alias: Another name, pathwaysutils'.
      metavar: What stands for the value in help.
      short: Flag of one letter.
      label: That of its field under "More" in the connect dialog; without one it has none.
    """

    name: str
    about: str
    kind: str
    convert: Check
    example: str
    toml: str = ""
    shown: str = ""
    of: Literal["cluster", "session", "proxy"] = "proxy"
    alias: str = ""
    metavar: str = ""
    short: str = ""
    completion: str = "nothing"
    label: str = ""

    @property
    def flag(self) -> str:
        """The option that sets it."""
        return f"--{self.name.replace('_', '-')}"

    def check(self, value: Any, label: str) -> Any:
        """Validate `value` and convert it to the setting's type.

        Args:
          label: Where it was given: the name of an argument, an environment variable, or a setting in a profile.

        Raises:
          ConfigError: The value is invalid; the message says where it was given.
        """
        try:
            return self.convert(value, label)
        except UnfitError as problem:
            hint = advice("For example: {example}.", example=self._example(label))
            raise ConfigError(f"{label} {problem}.", hint=hint) from None

    def _example(self, label: str) -> str:
        if not self.toml:
            return self.example
        if label.startswith(ENVIRONMENT_PREFIX):
            return f"{label}={self.example or self.toml}"
        return f"{self.name} = {self.toml}" if " " in label else option(self.name, self.example)


def _setting(default: Any, about: str, kind: str, convert: Check, example: str, shown: str = "", **more: Any) -> Any:
    """Declare a field of :class:`ConnectConfig`: `shown` is the default in words, or what follows its number."""
    if isinstance(default, float):
        shown = f"{default:.10g}" + (f", {shown}" if shown else "")
    metadata = {"about": about, "kind": kind, "convert": convert, "example": example, "shown": shown, **more}
    # Dataclasses refuse a dictionary as a default.
    initial: Any = {"default_factory": dict} if default == {} else {"default": default}
    return field(**initial, metadata=metadata)


def _flag(about: str, shown: str = "", *, default: bool | None = False, **more: Any) -> Any:
    return _setting(default, about, "flag", values.flag, "", shown, toml="true", **more)


def _text(
    about: str,
    validate: Callable[[str], None] | None = None,
    shown: str = "",
    example: str = "NAME",
    **more: Any,
) -> Any:
    return _setting("", about, "text", values.text(validate), example, shown, toml=f'"{example}"', **more)


def _seconds(default: float, about: str, convert: Check, shown: str = "", example: str = "60", **more: Any) -> Any:
    more = {"kind": "number", "metavar": "SECONDS", "toml": example, **more}
    return _setting(default, about, convert=convert, example=example, shown=shown, **more)


def _pod_value(about: str, pod_format: PodFormat, example: str, shown: str = "", default: str = "", **more: Any) -> Any:
    return _setting(
        default, about, "text", pod_format.check, example, shown or default, **{"metavar": pod_format.metavar, **more}
    )


def _pod_values(about: str, pod_format: PodFormat, example: str, label: str) -> Any:
    return _setting((), about, "list", pod_format.check_list, example, metavar=pod_format.metavar, label=label)


@dataclass(frozen=True)
class ConnectConfig:
    """The validated settings of a connection; made by :func:`pathways_jupyter.base.setting_sources.resolve`.

    The field `instances` is the setting ``tpu``. An empty string is no value, 0 for `at_least` means all or none, and
    None for `relay`: wherever the tunnel leads through an API server that is not the embedded cluster's.
    """

    instances: Mapping[str, int] = _setting(
        {},
        "slices per instance type, TYPE=COUNT[,TYPE=COUNT], such as tpuv6e:2x2=2",
        "text",
        values.instances,
        "tpuv6e:2x2=2",
        toml='{ "tpuv6e:2x2" = 2 }',
        name="tpu",
        alias="expected_tpu_instances",
        metavar="TYPE=COUNT",
        completion="instances",
    )
    service: str = _text(
        "the Shared Pathways Service: its name, or host:port of its resource manager",
        values.service_address,
        "the only one in the namespace",
        alias="pathways_service",
        metavar="SERVICE",
        completion="services",
    )
    local: bool = _flag("use the embedded cluster on this machine", of="cluster")
    context: str = _text(
        "context in the kubeconfig, if not the current one; the file is never modified",
        of="cluster",
        completion="contexts",
    )
    kubeconfig: str = _text("another kubeconfig file", of="cluster", metavar="FILE", completion="files")
    namespace: str = _text(
        "Kubernetes namespace of the service, if not the context's", values.namespace, of="cluster", short="-n"
    )
    cluster: str = _text("GKE cluster, reached without a kubeconfig; with its project and region", of="cluster")
    project: str = _text("Google Cloud project of the cluster", of="cluster")
    region: str = _text("region or zone of the cluster", of="cluster")
    profile: str = _text(
        "name of a profile in pathways.toml, if not the one named default", of="cluster", completion="profiles"
    )
    yes: bool = _flag(
        "let the embedded cluster have more hosts than this machine runs well, without a question", of="session"
    )
    wait: float = _seconds(
        0.0,
        "seconds to wait for taken slices; true, or the flag alone, for no limit",
        values.wait,
        "fail at once",
        kind="seconds",
        metavar="",
        of="session",
    )
    at_least: int = _setting(
        0,
        "take fewer slices if not all are free, but at least so many",
        "number",
        values.slices,
        "1",
        "all or none",
        toml="1",
        label="At least so many slices",
    )
    queue: str = _pod_value("wait in this queue of Kueue's for quota", values.NAME, "team")
    priority: str = _pod_value(
        "its WorkloadPriorityClass in that queue", values.NAME, "high", "none, which is 0", metavar="CLASS"
    )
    gcs_bucket: str = _text(
        "where arrays are saved, and scratch location of the proxy, gs://BUCKET/PATH",
        values.bucket_address,
        "none; on the embedded cluster its own",
        "gs://bucket/path",
        of="session",
        metavar="gs://...",
        label="Bucket",
    )
    linger: float = _seconds(
        0.0, "seconds that the proxy outlives the kernel or script", values.seconds(endless=True), "not at all"
    )
    suspend_after: float = _seconds(
        0.0,
        "save the arrays of a notebook and free its slices when nothing was computed for so long: seconds, or 2h, 90m",
        values.duration,
        "never",
        "2h",
        toml='"2h"',
        kind="text",
        metavar="TIME",
    )
    max_lifetime: float = _seconds(
        24 * 3600.0,
        "seconds after which the cluster ends the proxy, even if it is in use; at least 60, inf for no limit",
        values.seconds(least=60.0, integer=True, endless=True),
        "which is 24 h",
        example="86400",
    )
    lease_seconds: float = _seconds(
        60.0,
        "seconds that the proxy stays when this machine cannot be reached, at least 10; with a relay it stays for "
        "keep, until its slices are needed",
        values.seconds(least=10.0, integer=True),
    )
    relay: bool | None = _flag(
        "put a relay beside the proxy, so that the session and its arrays outlive interruptions of the network",
        "true where the connection goes through an API server, except on the embedded cluster",
        default=None,
    )
    keep: float = _seconds(
        2 * 3600.0,
        "seconds for which the relay keeps arrays without a connection",
        values.seconds(positive=True, integer=True),
        "which is 2 h",
        example="7200",
    )
    relay_image: str = _text(
        "image of the relay, any with Python 3.9 or later, such as that of the colocated sidecar",
        shown="mirror.gcr.io/library/python:3.13-slim",
    )
    timeout: float = _seconds(
        300.0,
        "seconds that the proxy's pod may take to start",
        values.seconds(positive=True, endless=True),
        of="session",
    )
    tunnel: bool = _flag(
        "in a pod of the cluster: go through the API server instead of connecting directly", of="session"
    )
    job: str = _text(
        "attach to the proxy of this headless job, which stays, instead of making one",
        values.job_name,
        of="session",
        metavar="NAME",
    )
    proxy_image: str = _text(
        "image of the proxy",
        shown="the one of the service's version",
        example="registry/image:tag",
        alias="proxy_server_image",
        label="Proxy image",
    )
    proxy_options: tuple[str, ...] = _setting(
        (),
        "additional flags for the proxy, also XLA's",
        "list",
        values.words,
        "sidecar:true",
        toml='["sidecar:true"]',
        label="Proxy options",
    )
    proxy_cpu: str = _pod_value("CPUs that the proxy may use", values.QUANTITY, "8", default="16", label="CPUs")
    proxy_memory: str = _pod_value(
        "memory that the proxy may use", values.QUANTITY, "32G", default="100G", label="Memory"
    )
    proxy_node_selector: tuple[str, ...] = _pod_values(
        "labels of the nodes that the proxy may run on, each KEY=VALUE",
        values.LABEL,
        "cloud.google.com/gke-nodepool=cpu-np",
        "Node labels",
    )
    proxy_tolerations: tuple[str, ...] = _pod_values(
        "taints that the proxy tolerates, each KEY[=VALUE][:EFFECT]",
        values.TOLERATION,
        "dedicated=research:NoSchedule",
        "Tolerations",
    )
    proxy_priority_class: str = _pod_value(
        "priority class of the proxy's pod", values.NAME, "high", label="Priority class"
    )
    proxy_service_account: str = _pod_value(
        "the Kubernetes account with which the proxy uses the bucket",
        values.NAME,
        "pathways",
        "the namespace's default",
        label="Service account",
    )
    proxy_labels: tuple[str, ...] = _pod_values(
        "labels for the proxy's Job and pod, each KEY=VALUE", values.OWN_LABEL, "team=research", "Labels"
    )
    proxy_env: tuple[str, ...] = _pod_values(
        "variables of the proxy's program, each NAME=VALUE",
        values.VARIABLE,
        "TF_CPP_MIN_LOG_LEVEL=0",
        "Variables",
    )
    unpickle: bool = _flag(
        "trust the TPU hosts to run code here: take any object, and show any HTML, that colocated code sends back",
        of="session",
    )


SETTINGS: Mapping[str, SettingSpec] = {
    spec.name: spec for spec in (SettingSpec(**{"name": each.name, **each.metadata}) for each in fields(ConnectConfig))
}
"""All settings by name."""
ALIASES: Mapping[str, str] = {each.alias: each.name for each in SETTINGS.values() if each.alias}
"""Other names of settings: those of pathwaysutils."""


def for_next_proxy(
    config: ConnectConfig, *, tpu: str | Mapping[str, int] | None, wait: float | str | None
) -> ConnectConfig:
    """Return the settings of a session's next proxy.

    Args:
      config: Those that the session has.
      tpu: Another number of slices of the same type; None for as many.
      wait: How long to wait for taken slices; None for as long as before.

    Raises:
      ConfigError: A value cannot be used, the slices are of another type, or it has those of a job.
    """
    changes: dict[str, Any] = {} if wait is None else {"wait": SETTINGS["wait"].check(wait, "wait")}
    if tpu is not None and config.job:
        raise ConfigError(
            f"This session has the slices of job {config.job}, and no others.",
            hint=advice("Leave out {tpu}; or disconnect, connect to slices of your own, and load a save."),
        )
    if tpu is not None:
        changes["instances"] = SETTINGS["tpu"].check(tpu, "tpu")
        if changes["instances"].keys() != config.instances.keys():
            raise ConfigError(
                f"This session is on slices of {' and '.join(config.instances)}.",
                hint="Keep to that type. A save of variables can be loaded in a session on another one.",
            )
        changes["at_least"] = min(config.at_least, sum(changes["instances"].values()))
    return replace(config, **changes)


def runtime_dir() -> Path:
    """Return the directory for files that live as long as a process; created with mode 0700.

    Raises:
      ConfigError: It cannot be created, e.g. because the home directory is read-only.
    """
    from jupyter_core.paths import jupyter_runtime_dir

    path = Path(jupyter_runtime_dir()) / "pathways"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Only if needed: on a file system that has become read-only, a clean-up must still find the directory.
        if stat.S_IMODE(path.stat().st_mode) != 0o700:
            path.chmod(0o700)
    except OSError as error:
        raise ConfigError(
            f"The directory {path} cannot be created: {error.strerror or error}.",
            hint="Set JUPYTER_RUNTIME_DIR to a directory that you can write to.",
        ) from error
    return path
