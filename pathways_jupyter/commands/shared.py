"""The options that several commands share."""

from __future__ import annotations

from pathways_jupyter.commands.declaration import Kind, Option, Source

TPU = Option(
    "--tpu",
    "tpu",
    "slices wanted, TYPE=COUNT[,TYPE=COUNT]",
    metavar="TYPE=COUNT",
    source=Source.INSTANCES,
    aliases=("--expected-tpu-instances",),
)
SERVICE = Option(
    "--service",
    "service",
    "the Shared Pathways Service: its name, or host:port of its resource manager",
    metavar="SERVICE",
    source=Source.SERVICES,
    aliases=("--pathways-service",),
    default="the only one in the namespace",
)
LOCAL = Option("--local", "local", "use the embedded cluster on this machine, started when needed", kind=Kind.FLAG)
JSON = Option("--json", "json", "print the result as JSON", kind=Kind.FLAG)
CLUSTER = (
    LOCAL,
    Option("--context", "context", "context in the kubeconfig; your file is never modified", source=Source.CONTEXTS),
    Option("--kubeconfig", "kubeconfig", "another kubeconfig file", metavar="FILE", source=Source.FILES),
    Option("--namespace", "namespace", "Kubernetes namespace of the service", short="-n"),
    Option("--cluster", "cluster", "GKE cluster, reached without a kubeconfig; with --project and --region"),
    Option("--project", "project", "Google Cloud project of --cluster"),
    Option("--region", "region", "region or zone of --cluster"),
    Option("--profile", "profile", "name of a profile in pathways.toml", source=Source.PROFILES),
)
"""The options that select a cluster, the same for all commands."""
