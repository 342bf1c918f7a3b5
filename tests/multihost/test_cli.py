"""The command line, on real sshd processes."""

import json
import os
import re
import signal
import socket
import subprocess
import sys

import kubeconfigs
import pytest

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\n" + "A" * 64 + "\n-----END OPENSSH PRIVATE KEY-----\n"


@pytest.fixture
def cli(lab):
    """Run ``pathways-jupyter multihost`` in the directory of the code."""
    login = ["--hosts", str(lab.farm.inventory), "--key", str(lab.farm.key), "--known-hosts", str(lab.farm.known_hosts)]

    def run(*arguments, on_hosts=False, cwd=lab.code, **options):
        first, *rest = arguments
        return subprocess.run(
            [sys.executable, "-m", "pathways_jupyter", "multihost", first, *(login if on_hosts else ()), *rest],
            cwd=cwd,
            env=os.environ,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
            **options,
        )

    run.login = login
    return run


def empty_columns(shown):
    """The columns of a table of hosts in which no host has anything."""
    lines = shown.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.split()[:2] == ["host", "name"])
    end = next(number for number, line in enumerate(lines) if line.startswith("Logs: "))
    starts = [(match.group(), match.start()) for match in re.finditer(r"\S+(?: \S+)*", lines[begin])]
    ends = [start for _, start in starts[1:]] + [None]
    return {
        name
        for (name, start), stop in zip(starts, ends, strict=True)
        if not any(line[start:stop].strip() for line in lines[begin + 1 : end])
    }


def test_a_run_prints_its_output_its_table_and_exits_with_the_worst_code(cli, lab):
    # The others fail, and so end it, only once the first has written what is looked for.
    first = lab.directory / "first"
    wait = f"[ $WORKER = 0 ] || while [ ! -e {first} ]; do sleep 0.05; done"
    command = f"{wait}; echo at $WORKER; touch {first}; exit $WORKER"
    done = cli("run", "--run-name", "shown", "--", "sh", "-c", command, on_hosts=True)
    assert done.returncode in {1, 2}
    assert "[0-0] at 0\n" in done.stdout
    assert "Run shown:" in done.stdout
    assert (lab.code / "multihost-runs" / "shown" / "output_slice_0000_worker_0000.txt").read_text() == "at 0\n"
    assert f"The output is in {lab.code / 'multihost-runs' / 'shown'}." in done.stderr


def test_a_run_is_also_json(cli):
    done = json.loads(cli("run", "--json", "--", "true", on_hosts=True).stdout)
    assert (done["run"]["code"], [each["code"] for each in done["hosts"]]) == (0, [0, 0, 0])


def test_interrupt_ends_the_run_on_the_hosts(cli, lab):
    command = [sys.executable, "-m", "pathways_jupyter", "multihost", "run", *cli.login, "--grace", "60"]
    # The programs end only once the user has read what is going on.
    said_so = lab.directory / "said-so"
    wait = f"while [ ! -e {said_so} ]; do sleep 0.05; done"
    with subprocess.Popen(
        [*command, "--", f"trap '{wait}; exit' TERM; echo up; while true; do sleep 0.05; done"],
        cwd=lab.code,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert [running.stdout.readline()[5:] for _ in range(3)] == [" up\n"] * 3
        running.send_signal(signal.SIGINT)
        ending = next(line for line in running.stderr if line.startswith("Interrupted"))
        assert ending == "Interrupted. Ending the run on 3 hosts, which may take 60 s …\n"
        said_so.touch()
        shown, said = running.communicate(timeout=60)
    assert (running.returncode, "Aborted" in said) == (130, False)
    assert lab.farm.left() == []
    # The same as at any other end, and true.
    assert "3 stopped" in shown
    assert empty_columns(shown) == set(), shown
    assert f"Logs: {lab.code / 'multihost-runs'}" in shown


def test_interrupting_the_search_for_hosts_starts_nothing(lab, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = {"server": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        kubeconfig = kubeconfigs.write(tmp_path / "kubeconfig", server, {"token": "t"})
        where = ["--service", "any", "--kubeconfig", kubeconfig]
        command = [sys.executable, "-m", "pathways_jupyter", "multihost", "run", *where, "--", "true"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as searching:
            connection, _ = silent.accept()
            searching.send_signal(signal.SIGINT)
            _, said = searching.communicate(timeout=60)
        connection.close()
    assert (searching.returncode, said) == (130, "Interrupted; nothing was started.\n")


def test_mistakes_are_explained(cli):
    assert "Which hosts?" in cli("run", "--", "true").stderr
    assert "Which command?" in cli("run", "--hosts", "a").stderr
    assert "cannot be the name of a run" in cli("run", "--run-name", "../x", "--", "true", on_hosts=True).stderr
    both = cli("--COMMAND", "true", "run")
    assert both.returncode == 2
    assert "replace a command" in both.stderr


def test_the_home_directory_is_sent_only_by_name_and_never_with_secrets(cli, lab, monkeypatch):
    home = lab.directory
    monkeypatch.setenv("KUBECONFIG", str(home / "clusters" / "mine"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(home / "code" / "jupyter"))
    secret = {".ssh/id_ed25519", ".kube/config", ".config/gcloud/token", ".netrc", "code/.env", "clusters/mine"}
    for path in (*secret, "code/venv/pyvenv.cfg", "code/venv/bin/python"):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text("fake")
    (home / "code" / "notes.txt").write_text(KEY)
    refused = cli("run", "--", "true", on_hosts=True, cwd=home)
    assert refused.returncode == 1
    assert "is your home directory, which is not sent unless it is named" in refused.stderr
    assert "--dir" in refused.stderr
    assert "is your home directory" in cli("--TPU_PREFIX", "any", "--COMMAND", "true", cwd=home).stderr
    done = cli("run", "--dir", "~", "--run-name", "all", "--", "find . -type f", on_hosts=True, cwd=home)
    assert done.returncode == 0, done.stderr
    sent = {line.removeprefix("[0-0] ./") for line in done.stdout.splitlines() if line.startswith("[0-0] ./")}
    assert "code/main.py" in sent
    assert not {each for each in sent if each in secret or "venv" in each or "jupyter" in each or "notes" in each}
    assert "Not sent, a secret: .config/gcloud/, .kube/, .netrc, .ssh/, clusters/mine and 2 more" in done.stderr
    listed = json.loads(cli("run", "--dir", "~", "--dry-run", "--json", cwd=home).stdout)
    left = {each["path"]: each["reason"] for each in listed["left_out"]}
    assert left.items() >= {".ssh/": "a secret", "code/.env": "a secret", "code/notes.txt": "a secret"}.items()
    assert left["code/venv/"] == "a virtual environment"


def test_what_would_be_sent_is_listed_with_sizes_and_nothing_is_started(cli, lab):
    (lab.code / ".pathwaysignore").write_text("*.npz\n!keep.npz\n")
    for name in ("large.npz", "keep.npz"):
        (lab.code / name).write_bytes(b"1" * 2000)
    shown = cli("run", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert f"{lab.code}: 3 files, 2.0 kB" in shown.stdout
    assert "keep.npz" in shown.stdout
    assert "large.npz" not in shown.stdout
    assert not (lab.code / "multihost-runs").exists()
