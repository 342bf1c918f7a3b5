"""Options of the magics and the command line for many hosts."""

from __future__ import annotations

from pathways_jupyter.commands.declaration import CLUSTER, Command, Option, Source, ValueKind

_FLAG, _LIST, _NUMBER = ValueKind.FLAG, ValueKind.LIST, ValueKind.NUMBER

_PROJECT = Option("--project", "Google Cloud project", default="gcloud's")
_RUN_OPTIONS = (
    Option("--hosts", "file with one [USER@]HOST[:PORT] a line, or HOST,HOST", metavar="FILE", source=Source.FILES),
    Option("--tpu-prefix", "TPU VMs: exact name, or PREFIX of PREFIX-0, PREFIX-1 ...", metavar="PREFIX"),
    Option("--service", "the workers of a service", metavar="NAME", source=Source.SERVICES),
    Option("--job", "the workers of a PathwaysJob", metavar="NAME"),
    Option("--session", "the workers of a session's service", metavar="ID", source=Source.SESSIONS),
    Option("--user", "user name on the hosts", default="yours"),
    Option("--key", "private key; may be repeated", _LIST, name="keys", metavar="FILE", source=Source.FILES),
    Option("--known-hosts", "file with the hosts' keys", metavar="FILE", source=Source.FILES),
    Option("--accept-new", "accept the key of a host that is not known; never a changed one", _FLAG),
    Option("--internal-ip", "reach TPU VMs at their internal addresses", _FLAG),
    Option("--zone", "zone of the TPU VMs", default="gcloud's"),
    *(_PROJECT if each.flag == "--project" else each for each in CLUSTER),
    Option(
        "--dir", "what is sent", name="directory", metavar="DIR", source=Source.FILES, default="the current directory"
    ),
    Option(
        "--exclude", "leave out, a pattern as in .gitignore; may be repeated; !NAME sends what stays otherwise", _LIST
    ),
    Option("--dry-run", "list what would be sent, with sizes and what stays here; nothing is sent", _FLAG),
    Option("--run-name", "run directory on the hosts", name="name", metavar="NAME", default="the time"),
    Option("--use-existing-folder", "send nothing; the run directory is on the hosts", _FLAG, name="existing"),
    Option("--log-dir", "where the logs go", name="logs", metavar="DIR", source=Source.FILES, default="multihost-runs"),
    Option("--keep-going", "go on with the other hosts when one is missing or fails", _FLAG),
    Option("--free-chips", "first end your processes that hold the TPU chips of the hosts", _FLAG),
    Option("--grace", "time between SIGTERM and SIGKILL", _NUMBER, metavar="SECONDS", default="10"),
)
COMMANDS = (
    Command(
        "multihost run",
        "Send a directory to all hosts, and run a command on them.",
        options=_RUN_OPTIONS,
        examples={
            "multihost run --hosts hosts.txt -- python3 train.py": "the hosts of a file; this directory is sent",
            "multihost run --tpu-prefix my-tpu --dir maxtext -- bash setup.sh": "TPU VMs by name",
            "multihost run --service pathways-cluster --local -- nproc": "the workers of a service, by exec",
            "multihost run --dry-run": "what of this directory would be sent",
        },
        details="The command runs in the run directory, with SLICE and WORKER in its environment. The output of each "
        "host goes to output_slice_0000_worker_0000.txt and so on.",
        in_terminal="The exit code is the worst of all hosts; 255 for a host that could not be reached.",
        rest="command",
    ),
)
CELL = Command(
    "%%multihost",
    "Run this cell, a shell script, on all hosts.",
    options=_RUN_OPTIONS,
    examples={
        "%%multihost --hosts hosts.txt": "on the hosts of a file; the current directory is sent",
        "%%multihost --service pathways-cluster --local --dir code": "on the workers of a service",
    },
)
