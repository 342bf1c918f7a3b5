"""Report of a run, in a form that can be attached to an issue: without names of users, addresses and tokens."""

from __future__ import annotations

import dataclasses
import hashlib
import platform
import re
from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from pathways_jupyter.accept.plan import CheckResult, Outcome
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.tpu import format_instances
from pathways_jupyter.kube.cluster_access import Cluster
from pathways_jupyter.service.names import current_user

_PACKAGES = ("pathways_jupyter", "jax", "jaxlib", "kubernetes")
_SECRETS = {
    r"\beyJ[\w-]+\.[\w-]+\.[\w-]*|\bya29\.[\w.-]+": "<token>",
    r"[\w.+-]+@[\w-]+(\.[\w-]+)+": "<e-mail>",
    r"gs://[^\s/\"']+": "gs://<bucket>",
    # In the name of a proxy, before the session's id; and who holds slices.
    r"\bpathways-proxy-[a-z0-9-]+?(?=-[0-9a-f]{10}\b)": "pathways-proxy-<user>",
    r"[^\s,:]+( \([^)]*\))?(?= holds \d)": "<user>",
    r'(?<=User ")[^"]+|(?<=accepted, as ).+': "<user>",
    r"\b\d{1,3}(\.\d{1,3}){3}\b": "<address>",
    # The project or the registry of one's own.
    r"\b[\w.-]+\.(?:pkg\.dev|gcr\.io)/[\w./<>-]+/(?=[\w.-]+[:@])": "<registry>/",
}


@dataclasses.dataclass(frozen=True)
class Report:
    """Report of a run.

    Attributes:
      at: When it began, in seconds since the epoch.
      left: What is left behind; empty when nothing is.
      interrupted: Whether an Interrupt ended it.
      environment: Versions, and what was connected to.
    """

    at: float
    seconds: float
    results: tuple[CheckResult, ...]
    left: tuple[str, ...]
    interrupted: bool
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def count(self, outcome: Outcome) -> int:
        """Return how many checks came to `outcome`."""
        return sum(each.outcome is outcome for each in self.results)

    @property
    def failed(self) -> bool:
        """Return whether a check failed, or something is left behind."""
        return bool(self.left) or self.count(Outcome.FAILED) > 0


def publishable(report: Report, config: ConnectConfig, cluster: Cluster) -> Report:
    """Return `report` with versions, and without what names a person, a machine or a project, and without tokens.

    Args:
      config: What was connected to.
      cluster: Its cluster, of which a hash of the address is left.
    """
    words = {
        str(Path.home()): "~",
        cluster.server: "<server>",
        urlsplit(cluster.server).hostname or "": "<server>",
        **dict.fromkeys((cluster.name, config.context, config.cluster), "<cluster>"),
        config.project: "<project>",
        platform.node(): "<machine>",
        current_user(): "<user>",
    }

    def cleared(line: str) -> str:
        # The longest first: a name may be a part of another.
        for word in sorted(filter(None, words), key=len, reverse=True):
            line = re.sub(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", words[word], line)
        for pattern, instead in _SECRETS.items():
            line = re.sub(pattern, instead, line)
        return line

    environment = {
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in _PACKAGES if find_spec(name)},
        "system": f"{platform.system()} {platform.machine()}",
        "slices": format_instances(config.instances),
        "server": f"sha256:{hashlib.sha256(cluster.server.encode()).hexdigest()[:8]}",
    }
    results = tuple(dataclasses.replace(each, lines=tuple(map(cleared, each.lines))) for each in report.results)
    return dataclasses.replace(report, results=results, left=tuple(map(cleared, report.left)), environment=environment)


def markdown(report: Report, verdict: str) -> str:
    """Return the report as a file's content."""

    def parts() -> Iterator[str]:
        yield f"# pathways-jupyter accept: {verdict}\n"
        yield "| check | | seconds | |\n| --- | --- | ---: | --- |"
        for each in report.results:
            why = f": {each.lines[-1]}" if each.outcome is Outcome.SKIPPED else ""
            yield f"| {each.name} | {each.outcome}{why} | {each.seconds:.1f} | {each.title} |"
        yield f"\nLeft behind: {'; '.join(report.left) or 'nothing'}.\n"
        for name, value in report.environment.items():
            yield f"- {name}: {value}"
        for each in report.results:
            if each.outcome is not Outcome.SKIPPED:
                yield f"\n## {each.name}\n"
                yield from (f"    {line}" for entry in each.lines for line in entry.splitlines())

    return "\n".join(parts()) + "\n"
