"""``doctor``: everything that a connection needs."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from platform import python_version

from pathways_jupyter.actions import cluster
from pathways_jupyter.actions.shell import Action, Shell, Values
from pathways_jupyter.base import tasks
from pathways_jupyter.base.config import SETTINGS, ConnectConfig, runtime_dir
from pathways_jupyter.base.errors import ConfigError, PathwaysError
from pathways_jupyter.base.sentences import advice, with_options, worded
from pathways_jupyter.base.text import last_upload, size
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.render import checks as render
from pathways_jupyter.render.view import View
from pathways_jupyter.service import checks, permissions
from pathways_jupyter.service import doctor as checking
from pathways_jupyter.service.checks import Finding
from pathways_jupyter.service.images import Versions
from pathways_jupyter.session import client, clusters, native_environment, orphan_files, registry, sweep
from pathways_jupyter.session.kernel import jax_internals, process

_SESSION_BYTES = 100_000
"""More than the record and the first log of a session."""
_LITTLE_BYTES = 20_000_000


def examine(
    config: ConnectConfig, *, lab: bool = False, platform: bool = False, jobs: bool = False, faults: bool = False
) -> tuple[Finding, ...]:
    """Return the doctor's findings for a connection from this process to the cluster of `config`.

    Args:
      lab: Also check what `pathways-jupyter lab` needs.
      platform: Also check what deploying services and installing the operator need.
      jobs: Also check what jobs need.
      faults: Also check what faults on purpose need.
    """
    embedded = clusters.Embedded.of(config)
    try:
        native_environment.check(is_kernel=process.shell() is not None, has_clients=jax_internals.has_clients())
        here: tuple[Finding, ...] = ()
    except ConfigError as error:
        here = (checks.failed("environment", error),)
    here = (*here, _files())
    try:
        # From the metadata, because importing JAX takes longer than all checks together.
        versions = Versions(python=python_version(), jax=version("jax"), jaxlib=version("jaxlib"))
    except PackageNotFoundError:
        versions = Versions(python=python_version())
    left = [f"session {record.id} (its supervisor is gone)" for record in sweep.dead()]
    orphans = orphan_files.find()
    left += [f"files of session {each.session} (its supervisor died before writing a record)" for each in orphans]
    further = (
        *(permissions.IN_CLUSTER_NEEDS if lab or "KUBERNETES_SERVICE_HOST" in os.environ else ()),
        *(permissions.LAB_NEEDS if lab else ()),
        *(permissions.PLATFORM_NEEDS if platform else ()),
        *(permissions.JOB_NEEDS if jobs else ()),
        *(permissions.FAULT_NEEDS if faults else ()),
    )
    findings = tasks.run(
        checking.examine(config, versions=versions, leftovers=left, further=further, uploads=tasks.run(_uploads()))
    )
    failed = {each.name for each in findings if each.level is Tone.FAIL}
    if embedded is not None and failed & {"cluster", "reachable"}:
        has_ended = tasks.run(embedded.is_ending())
        why = clusters.embedded_ended(embedded) if has_ended else clusters.embedded_silent(embedded)

        def is_of_it(finding: Finding) -> bool:
            return finding.level is Tone.FAIL and (has_ended or finding.name == "reachable")

        findings = tuple(checks.failed(each.name, why) if is_of_it(each) else each for each in findings)
        if any(map(is_of_it, findings)):
            return here + findings
    hint = clusters.embedded_hint(config)
    return here + tuple(
        dataclasses.replace(each, hint=advice("{here} {hint}", here=hint, hint=each.hint))
        if each.name == "cluster" and each.hint and hint
        else each
        for each in findings
    )


def _files() -> Finding:
    """Check that sessions can write their files."""
    try:
        folder = runtime_dir()
        # A quota shows only when it is written to.
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(bytes(_SESSION_BYTES))
        free = shutil.disk_usage(folder).free
    except ConfigError as error:
        return checks.failed("files", error)
    except OSError as error:
        return Finding(
            "files",
            Tone.FAIL,
            f"Sessions cannot write their files in {folder}: {error.strerror}.",
            "Free space there, or name another directory with JUPYTER_RUNTIME_DIR.",
        )
    if free < _LITTLE_BYTES:
        return Finding(
            "files",
            Tone.WARN,
            f"Only {size(free)} are left for sessions' files, in {folder}.",
            "Free space there: a session ends when its files cannot be written.",
        )
    return Finding("files", Tone.OK, f"{folder} can be written; {size(free)} are left")


async def _uploads() -> dict[str, str]:
    """Return how fast the sessions of this machine sent data lately, by the URL of their API server."""
    targets = {}
    running = [each for each in registry.sessions() if each.is_here and each.state.is_connected]
    for record in sorted(await client.present(running), key=lambda each: each.upload_measured):
        if words := last_upload(record.upload_rate, record.upload_measured):
            # The kubeconfig may be gone by now.
            with contextlib.suppress(PathwaysError):
                targets[(await clusters.resolve(record)).server] = words
    return targets


def doctor(shell: Shell, values: Values) -> View:
    """Return the findings, with exit code 1 if a problem must be fixed before a notebook can connect."""
    where = cluster.where(values)
    if values.get("queue"):
        where = dataclasses.replace(where, queue=SETTINGS["queue"].check(values["queue"], "queue"))
    options = cluster.named_options(values)
    findings = [
        dataclasses.replace(each, hint=worded(with_options(each.hint, options), shell.face))
        for each in examine(where, **{name: bool(values.get(name)) for name in ("lab", "platform", "jobs", "faults")})
    ]
    failed = any(each.level is Tone.FAIL for each in findings)
    return dataclasses.replace(render.findings(findings, shell.face), exit_code=int(failed))


ACTIONS: Mapping[str, Action] = {"doctor": doctor}
