"""``job``: PathwaysJobs, from their manifest to their end."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from functools import partial

from pathways_jupyter.actions import cluster
from pathways_jupyter.actions.shell import Action, CommandInterrupted, Shell, Values, show_lines
from pathways_jupyter.base import text_files, tpu
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.sentences import advice, with_options
from pathways_jupyter.base.text import count, parse_path, parse_whole_number, some
from pathways_jupyter.kube.client import Client
from pathways_jupyter.render import jobs as render
from pathways_jupyter.render.view import View, preformatted, said
from pathways_jupyter.service import job_parts, jobs, queues
from pathways_jupyter.service.pathwaysjob import conditions, submission, yaml_text
from pathways_jupyter.service.pathwaysjob.description import JobInfo
from pathways_jupyter.service.pathwaysjob.validation import InvalidJob
from pathways_jupyter.session import clusters, registry


def new(shell: Shell, values: Values) -> View | None:
    """Return the manifest of a usual job, or write it to a file.

    Raises:
      ConfigError: An option is missing or invalid, or the file cannot be written.
    """
    if not values.get("tpu"):
        raise ConfigError("A job needs slices.", hint=advice("For example: {tpu:tpuv6e:2x2=2}."))
    queue, priority = queues.requested(values)
    made = submission.new(
        values["name"],
        tpu.parse_instances(values["tpu"]),
        values.get("program", ()),
        image=values.get("image", ""),
        directory=values.get("gcs_bucket", ""),
        version=values.get("version", ""),
        sidecar_image=values.get("sidecar_image", ""),
        queue=queue,
        priority=priority,
    )
    manifest = yaml_text.dump(made)
    path = values.get("output")
    if not path:
        return preformatted(manifest, made)
    try:
        # Never over a file that exists: it may have been edited.
        with parse_path(path).open("x", encoding="utf-8") as written:
            try:
                written.write(manifest)
                written.flush()
            except OSError:
                parse_path(path).unlink()
                raise
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.", hint="Choose another file.") from None
    shell.say(advice("Wrote {path}. Create the job: {job_apply:{path}}", path=path))
    return None


def apply(shell: Shell, values: Values) -> View:
    """Create the job of a file; ``-`` is standard input.

    Raises:
      ConfigError: The file cannot be read, or is no job.
    """
    named = [values[each] for each in ("file", "filename") if values.get(each)]
    if len(named) != 1:
        what = "Two files are named" if named else "No file is named"
        raise ConfigError(f"{what}.", hint=advice("{job_apply:FILE} creates the job of one; - is standard input."))
    (path,) = named
    try:
        # Not all of it: a wrong file, such as /dev/zero, has no end.
        if path == "-":
            data = sys.stdin.buffer.read(yaml_text.MOST + 1)
        else:
            with parse_path(path).open("rb") as manifest:
                data = manifest.read(yaml_text.MOST + 1)
        if len(data) > yaml_text.MOST:
            raise ConfigError(f"{path} is too large for a job.", hint="Give one PathwaysJob, in YAML or JSON.")
        text = text_files.decode(data)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"{path} cannot be read: {why}.", hint="Check the path; a manifest is text in UTF-8."
        ) from None
    return create(shell, text, values, source="standard input" if path == "-" else path)


def create(shell: Shell, text: str, values: Values, *, source: str) -> View:
    """Create the job that `text` describes after the cluster has checked it, and follow it if wanted.

    Args:
      source: Where the text is from, for errors.

    Raises:
      InvalidJob: The text or the cluster says what is wrong, with the lines.
    """
    marks = queues.labels(*queues.requested(values))
    where, manifest = cluster.where(values), yaml_text.parse(text)
    as_jobset = bool(values.get("as_jobset"))

    async def checked(client: Client, namespace: str) -> str:
        # Checked first also when it is created: nothing is half done when the cluster refuses it.
        apply = partial(submission.apply, client, manifest, namespace=namespace, as_jobset=as_jobset, labels=marks)
        valid = await apply(dry_run=True)
        return valid if values.get("dry_run") else await apply()

    try:
        done = clusters.ask(where, checked)
    except InvalidJob as error:
        lines = [
            f"Line {yaml_text.line_of(text, each.path)} of {source}: {each.path}: {each.message}"
            if each.path
            else each.message
            for each in error.problems
        ]
        raise InvalidJob("\n".join(lines), error.problems, hint=error.hint) from None
    name = str(manifest["metadata"]["name"])
    if not values.get("wait") or values.get("dry_run"):
        return said(f"Job {name}: {done}.", {"name": name, "done": done})
    shell.say(f"Job {name}: {done}.")
    state = _follow(shell, where, name, cluster.named_options(values))
    # What a program gets is short; the view is for the user.
    return dataclasses.replace(
        show(shell, {**values, "name": name}),
        value={"name": name, "done": done, "state": state},
        exit_code=int(state == conditions.FAILED),
    )


def _follow(shell: Shell, where: ConnectConfig, name: str, options: str) -> str:
    """Show what becomes of a job until it is over, or runs if it is headless; return its last state.

    Args:
      options: Those that name its cluster.
    """
    try:
        with clusters.stream(
            where, lambda client, namespace: jobs.until_settled(client, name, namespace=namespace)
        ) as infos:
            for info in infos:
                shell.say(render.summary(info))
    except KeyboardInterrupt:
        raise CommandInterrupted(f"No longer following; job {name} stays as it is.") from None
    if jobs.idles(info):
        ends = advice("It is headless, so it does not end by itself: {job_delete:{name}} ends it.", name=name)
        shell.say(with_options(ends, options))
    return info.state


def list_(shell: Shell, values: Values) -> View:
    """Return the jobs of the namespace."""
    return render.view(clusters.ask(cluster.where(values), jobs.list_jobs))


def show(shell: Shell, values: Values) -> View:
    """Return everything about a job."""
    name = values["name"]
    return render.details(
        clusters.ask(cluster.where(values), lambda client, namespace: jobs.details(client, name, namespace=namespace))
    )


def logs(shell: Shell, values: Values) -> None:
    """Show the log of a container of a job."""
    follow = bool(values.get("follow"))
    # Before the cluster is contacted.
    tail = parse_whole_number("--tail", values["tail"]) if values.get("tail") else None
    lines = clusters.stream(
        cluster.where(values),
        lambda client, namespace: jobs.log(
            client,
            values["name"],
            namespace=namespace,
            container=values.get("container") or job_parts.MAIN,
            which=values.get("slice") or "",
            follow=follow,
            tail=tail,
        ),
    )
    show_lines(shell, lines, follow=follow)


def suspend(shell: Shell, values: Values) -> View:
    """Suspend a job, after a question."""
    where, name = cluster.where(values), values["name"]
    job = clusters.ask(where, lambda client, namespace: jobs.find(client, name, namespace=namespace))
    question = (
        f"Suspend job {name} ({job.state.lower()}) in namespace {job.namespace}? Its pods end with all that they hold, "
        f"and after a resume its program starts from the beginning.{_attached(job)}"
    )
    if job.state not in conditions.FINAL and not values.get("yes") and not shell.confirm(question):
        return said("Not suspended.")
    clusters.ask(where, lambda client, namespace: jobs.suspend(client, name, namespace=namespace))
    return said(f"Job {name} is suspended.", {"name": name, "suspended": True})


def resume(shell: Shell, values: Values) -> View:
    """Resume a suspended job."""
    name = values["name"]
    clusters.ask(
        cluster.where(values),
        lambda client, namespace: jobs.suspend(client, name, namespace=namespace, suspended=False),
    )
    return said(f"Job {name} is resumed.", {"name": name, "suspended": False})


def delete(shell: Shell, values: Values) -> View:
    """Delete a job, after a question."""
    where, name = cluster.where(values), values["name"]
    job = clusters.ask(where, lambda client, namespace: jobs.find(client, name, namespace=namespace))
    question = f"Delete job {name} ({job.state.lower()}) from namespace {job.namespace}, with its pods and logs?"
    question += _attached(job)
    if not values.get("yes") and not shell.confirm(question):
        return said("Not deleted.")
    deleted = clusters.ask(where, lambda client, namespace: jobs.delete(client, name, namespace=namespace))
    return said(f"Job {name} {'is deleted' if deleted else 'was gone already'}.", {"name": name, "deleted": deleted})


def _attached(job: JobInfo) -> str:
    """Return a sentence about the sessions of this machine that would lose their arrays with the job's proxy."""
    those = [
        f"{each.id} ({each.notebook})" if each.notebook else each.id
        for each in registry.sessions()
        if (each.pathways_job, each.namespace) == (job.name, job.namespace) and each.state.is_connected
    ]
    return f" With it, the arrays are lost of {count(len(those), 'attached session')}: {some(those)}." if those else ""


ACTIONS: Mapping[str, Action] = {
    "job new": new,
    "job apply": apply,
    "job list": list_,
    "job show": show,
    "job logs": logs,
    "job suspend": suspend,
    "job resume": resume,
    "job delete": delete,
}
