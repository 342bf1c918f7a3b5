"""What the commands about jobs do, for the magic and the command line: they differ only in how they show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pathways_jupyter import config, entry, offers, tpu
from pathways_jupyter.commands.declaration import CLUSTER
from pathways_jupyter.config import ConnectConfig
from pathways_jupyter.errors import ConfigError
from pathways_jupyter.offers import SeenJob
from pathways_jupyter.service import jobs
from pathways_jupyter.service.jobs import JobPicture
from pathways_jupyter.service.pathwaysjob import description, submission, yaml_text
from pathways_jupyter.service.pathwaysjob.description import JobInfo
from pathways_jupyter.service.pathwaysjob.validation import InvalidJob

_PLACE = {option.name for option in CLUSTER}

Values = Mapping[str, Any]


def where(values: Values) -> ConnectConfig:
    """Return the cluster that the options name."""
    return entry.where({name: value for name, value in config.canonical(values).items() if name in _PLACE})


def names_cluster(values: Values) -> bool:
    """Whether the options name a cluster, and not only a namespace."""
    return bool((_PLACE - {"namespace"}) & set(config.canonical(values)))


def new(name: str, program: Sequence[str], values: Values) -> str:
    """Return the YAML of a usual job.

    Raises:
      ConfigError: An option is missing or invalid.
    """
    if not values.get("tpu"):
        raise ConfigError("A job needs slices.", hint="For example: --tpu tpuv6e:2x2=2.")
    numbers = {
        key: entry.whole_number(f"--{key.replace('_', '-')}", values.get(key) or 0)
        for key in ("elastic_slices", "max_restarts", "max_slice_restarts")
    }
    manifest = submission.new(
        name,
        tpu.parse_instances(values["tpu"]),
        program,
        image=values.get("image", ""),
        directory=values.get("gcs_bucket", ""),
        colocate=bool(values.get("colocate")),
        version=values.get("version", ""),
        sidecar_image=values.get("sidecar_image", ""),
        **numbers,
    )
    return yaml_text.dump(manifest)


def read(path: str) -> str:
    """Return a manifest's text; standard input for ``-``.

    Raises:
      ConfigError: It cannot be read.
    """
    import sys

    try:
        # Not all of it: a wrong file, such as /dev/zero, has no end.
        if path == "-":
            text = sys.stdin.read(yaml_text.MOST + 1)
        else:
            with Path(path).expanduser().open(encoding="utf-8") as file:
                text = file.read(yaml_text.MOST + 1)
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.", hint="Check the path.") from None
    if len(text) > yaml_text.MOST:
        raise ConfigError(f"{path} is too large for a job.", hint="Give one PathwaysJob, in YAML or JSON.")
    return text


def apply(given: str, values: Values, *, source: str = "") -> tuple[str, str]:
    """Have the cluster check a job, and create it unless it is a dry run.

    Args:
      source: Where the text is from, for errors.

    Returns:
      The job's name, and what was done: ``created``, ``updated``, ``unchanged`` or ``valid``.

    Raises:
      InvalidJob: The text or the cluster says what is wrong, with the lines.
    """
    manifest = yaml_text.parse(given)
    as_jobset, place = bool(values.get("as_jobset")), where(values)
    try:
        # Checked first also when it is created: nothing is half done when the cluster refuses it.
        entry.ask(
            place,
            lambda client, namespace: submission.check(client, manifest, namespace=namespace, as_jobset=as_jobset),
        )
        if values.get("dry_run"):
            return str(manifest["metadata"]["name"]), "valid"
        done = entry.ask(
            place,
            lambda client, namespace: submission.apply(client, manifest, namespace=namespace, as_jobset=as_jobset),
        )
    except InvalidJob as error:
        raise _located(error, given, source) from None
    name = str(manifest["metadata"]["name"])
    # One that is unchanged may be over already, if it is known.
    made = SeenJob(description.is_headless(manifest))
    _remember(place, lambda known: {**known, name: known.get(name, made) if done == "unchanged" else made})
    return name, done


def list_(values: Values) -> tuple[JobInfo, ...]:
    """Return the jobs of the namespace."""
    place = where(values)
    found = entry.ask(place, jobs.list_jobs)
    _remember(place, lambda known: {each.name: _seen(each) for each in found})
    return found


def show(name: str, values: Values) -> JobPicture:
    """Return everything about a job."""
    place = where(values)
    found = entry.ask(place, lambda client, namespace: jobs.picture(client, name, namespace=namespace))
    _remember_one(place, found.job)
    return found


def follow(name: str, values: Values) -> Iterator[JobInfo]:
    """Yield the states of a job until it is over; of a headless one, which does not end by itself, until it runs."""
    place = where(values)
    for info in entry.stream(place, lambda client, namespace: jobs.until_settled(client, name, namespace=namespace)):
        _remember_one(place, info)
        yield info


def idling(job: JobInfo) -> str:
    """Return what to say of a headless job that runs; empty for others."""
    if not jobs.idles(job):
        return ""
    return f"It is headless, so it does not end by itself: job delete {job.name} ends it."


def logs(name: str, values: Values) -> Iterator[str]:
    """Yield the lines of a log of a job."""
    tail = entry.whole_number("--tail", values["tail"]) if values.get("tail") else None
    return entry.stream(
        where(values),
        lambda client, namespace: jobs.log(
            client,
            name,
            namespace=namespace,
            program=values.get("program") or "main",
            which=values.get("slice") or "0-0",
            follow=bool(values.get("follow")),
            tail=tail,
        ),
    )


def suspend(name: str, values: Values, *, suspended: bool) -> None:
    """Suspend or resume a job."""
    entry.ask(
        where(values),
        lambda client, namespace: jobs.suspend(client, name, namespace=namespace, suspended=suspended),
    )


def find(name: str, values: Values) -> JobInfo:
    """Return a job, for the question before it is deleted."""
    return entry.ask(where(values), lambda client, namespace: jobs.find(client, name, namespace=namespace))


def delete(name: str, values: Values) -> bool:
    """Delete a job; False if there was none."""
    place = where(values)
    deleted = entry.ask(place, lambda client, namespace: jobs.delete(client, name, namespace=namespace))
    _remember(place, lambda known: {other: seen for other, seen in known.items() if other != name})
    return deleted


def outcome(name: str, *, deleted: bool) -> str:
    """Return what :func:`delete` did, in a sentence."""
    return f"Job {name} is deleted." if deleted else f"Job {name} was gone already."


def question(job: JobInfo) -> str:
    """Return the question before a job is deleted."""
    return f"Delete job {job.name} ({job.state.lower()}) from namespace {job.namespace}, with its pods and logs?"


def _seen(job: JobInfo) -> SeenJob:
    return SeenJob(job.headless, job.state in jobs.OVER)


def _remember_one(place: ConnectConfig, job: JobInfo) -> None:
    _remember(place, lambda known: {**known, job.name: _seen(job)})


def _remember(place: ConnectConfig, change: Callable[[Mapping[str, SeenJob]], Mapping[str, SeenJob]]) -> None:
    """Keep what is known of jobs for tab completion, which asks no cluster."""
    cluster = place.context or place.cluster or place.kubeconfig
    offers.remember_jobs(f"{cluster}/{place.namespace}", change)


def _located(error: InvalidJob, given: str, source: str) -> InvalidJob:
    """The error with the line of each field."""
    place = " of standard input" if source == "-" else f" of {source}" if source else ""
    lines = [
        f"Line {yaml_text.line_of(given, each.path)}{place}: {each.path}: {each.message}" if each.path else each.message
        for each in error.problems
    ]
    return InvalidJob("\n".join(lines), error.problems, hint=error.hint)
