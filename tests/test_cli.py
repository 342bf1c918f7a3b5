"""The command line: what it prints, to whom, and with which exit code."""

import contextlib
import dataclasses
import json
import os
import pty
import signal
import socket
import subprocess
import sys

import kubeconfigs
import pytest
import yaml
from waits import frozen

from pathways_jupyter.cli import main


def test_an_error_is_on_stderr_with_its_hint_and_no_colours(machine):
    failed = machine.cli("slices", "--kubeconfig", "/nowhere")
    assert failed.returncode == 1
    assert failed.stdout == ""
    assert failed.stderr.splitlines()[0] == "Error: There is no kubeconfig /nowhere."
    assert len(failed.stderr.splitlines()) == 2
    assert "\x1b" not in failed.stderr


def test_an_error_is_an_object_on_stdout_for_programs(machine):
    failed = machine.cli("slices", "--kubeconfig", "/nowhere", "--json")
    error = json.loads(failed.stdout)["error"]
    assert failed.returncode == 1
    assert (error["type"], error["message"]) == ("ConfigError", "There is no kubeconfig /nowhere.")
    assert error["hint"] == "Check --kubeconfig, or leave it out."
    assert failed.stderr == machine.cli("slices", "--kubeconfig", "/nowhere").stderr
    assert machine.cli("explain", error["topic"]).returncode == 0


def test_an_error_of_a_log_for_programs_is_its_last_line(machine, at):
    failed = machine.cli("logs", "worker", "7", "--json", *at)
    error = json.loads(failed.stdout.splitlines()[-1])["error"]
    assert (failed.returncode, error["message"] in failed.stderr) == (1, True)


def test_the_embedded_bucket_is_not_looked_for_at_google_where_no_such_cluster_runs(machine):
    with machine.another() as made:
        # What one that was killed has left.
        left = made.runtime / "pathways" / "local" / "local"
        left.mkdir(parents=True)
        variables = {"STORAGE_EMULATOR_HOST": "http://127.0.0.1:9"}
        (left / "storage.json").write_text(json.dumps({"bucket": "gs://pathways-local", "variables": variables}))
        for line in (
            ("profile", "show", "gs://pathways-local/traces/plugins/profile/1"),
            ("saved", "--gcs-bucket", "gs://pathways-local"),
        ):
            failed = made.cli(*line)
            assert failed.returncode == 1
            assert "gs://pathways-local is the embedded cluster's bucket" in failed.stderr, line


def test_a_line_that_cannot_be_read_exits_with_2(machine):
    assert machine.cli("sessions", "--colour").returncode == 2
    assert machine.cli("nonsense").returncode == 2


def test_sessions_are_listed_for_people_and_for_programs(machine):
    assert machine.cli("sessions").stdout.strip() == "No sessions on this machine."
    assert json.loads(machine.cli("sessions", "--json").stdout) == []


def test_no_color_is_honoured_on_a_terminal(machine):
    command = [sys.executable, "-m", "pathways_jupyter", "slices", "--kubeconfig", "/nowhere"]
    with_colours = on_a_terminal(command, machine.environ)
    without = on_a_terminal(command, {**machine.environ, "NO_COLOR": "1"})
    assert "\x1b[" in with_colours
    assert "\x1b" not in without
    assert "There is no kubeconfig /nowhere." in without


def on_a_terminal(command, environ):
    """Return a program's output on its standard error when that is a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, env=environ, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        written = b""
        # Reading a terminal whose writer has gone raises an error on Linux.
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 4096):
                written += piece
        process.wait(timeout=60)
    os.close(ours)
    return written.decode()


def test_a_home_that_cannot_be_written_to_is_one_sentence(machine):
    (machine.directory / "a-file").touch()
    environ = {**machine.environ, "JUPYTER_RUNTIME_DIR": str(machine.directory / "a-file" / "runtime")}
    for command in ("sessions", "doctor", "clean"):
        failed = dataclasses.replace(machine, environ=environ).cli(command)
        assert failed.returncode == 1
        assert failed.stderr.splitlines()[0].startswith("Error: The directory ")
        assert "JUPYTER_RUNTIME_DIR" in failed.stderr.splitlines()[1]


def test_a_variable_that_is_not_a_setting_is_named(machine):
    environ = {**machine.environ, "PATHWAYS_JUPYTER_TPUS": "tpuv6e:2x2=1"}
    failed = dataclasses.replace(machine, environ=environ).cli("slices")
    assert failed.returncode == 1
    assert "Unknown setting PATHWAYS_JUPYTER_TPUS." in failed.stderr
    assert "Did you mean PATHWAYS_JUPYTER_TPU?" in failed.stderr


def test_a_sidecar_is_built_for_the_jax_that_is_installed(tmp_path):
    from importlib.metadata import version

    from click.testing import CliRunner

    (tmp_path / "requirements.txt").write_text("")
    arguments = ["sidecar", "build", "--requirements", str(tmp_path / "requirements.txt"), "--dry-run"]
    shown = CliRunner().invoke(main, [*arguments, "--base-image", "sidecar:1-python_3.12-jax_0.1.0"])
    assert "--jax-version 0.1.0" in shown.output
    assert f"has JAX 0.1.0, not {version('jax')}" in shown.output


def test_ending_a_session_that_is_not_there_says_so(machine):
    failed = machine.cli("sessions", "disconnect", "4f2a")
    assert failed.returncode == 1
    assert "no session" in failed.stderr


def test_a_cluster_that_cannot_be_is_refused(machine):
    failed = machine.cli("local", "up", "--tpu", "tpuv6e:3x3")
    assert failed.returncode == 1
    assert "no topology" in failed.stderr


def test_a_cluster_that_does_not_run_has_a_status_of_its_own(machine):
    status = machine.cli("local", "status", "--name", "another")
    assert (status.returncode, machine.cli("local", "status", "--name", "another", "--json").stdout) == (3, "null\n")
    assert "pathways-jupyter local up" in status.stdout


@pytest.mark.thorough
def test_everything_about_the_cluster_is_there_for_programs_too(machine):
    name = ("--name", "spoken")
    up = json.loads(machine.cli("local", "up", "--tpu", "tpuv5e:2x2=1", "--json", *name).stdout)
    assert json.loads(machine.cli("local", "status", "--json", *name).stdout) == up
    at = json.loads(machine.cli("local", "kubeconfig", "--json", *name).stdout)
    assert at == {"kubeconfig": up["kubeconfig"], "context": up["context"]}
    assert json.loads(machine.cli("local", "restart-api", "--json", *name).stdout) == up
    shown = machine.cli("local", "status", *name).stdout
    assert "1 slice of tpuv5e:2x2 (4 chips)" in shown
    assert f"%pathways connect --kubeconfig {up['kubeconfig']} --tpu tpuv5e:2x2=1" in shown
    assert json.loads(machine.cli("local", "down", "--json", *name).stdout) == {"name": "spoken", "ended": True}
    assert json.loads(machine.cli("local", "down", "--json", *name).stdout) == {"name": "spoken", "ended": False}


def test_what_only_a_notebook_can_is_refused_as_that(machine):
    shown = machine.cli("connect", "--local")
    assert shown.returncode == 2
    assert "%pathways connect" in shown.stderr
    assert "pathways_jupyter.connect()" in shown.stderr


def test_cleaning_needs_no_cluster_unless_one_is_named(machine):
    # Temporary directories of sessions that were killed long ago lie in /tmp, from whatever ran on this machine.
    assert machine.cli("clean").returncode == 0
    clean = machine.cli("clean")
    assert (clean.returncode, clean.stderr) == (0, "")
    assert clean.stdout.splitlines()[0] == "✓ Nothing to clean on this machine."
    assert "No cluster was checked. There is no kubeconfig" in clean.stdout
    assert json.loads(machine.cli("clean", "--json").stdout) == []
    assert machine.cli("clean", "--context", "nowhere").returncode == 1


def test_a_port_that_is_taken_is_reported_and_leaves_no_cluster(machine):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = machine.cli("local", "up", "--name", "taken", "--port", str(port))
    assert failed.returncode == 1
    assert str(port) in failed.stderr
    assert len(failed.stderr.splitlines()) <= 2
    assert machine.cli("local", "status", "--name", "taken").returncode == 3


@pytest.fixture(scope="module")
def at(cluster):
    return ("--kubeconfig", str(cluster))


def test_slices_show_who_holds_what(machine, at):
    assert "2 slices of tpuv6e:2x2, 2 free" in machine.cli("slices", *at).stdout
    (service,) = json.loads(machine.cli("slices", "--json", *at).stdout)
    assert service["state"] == "ready"
    assert [(each["index"], each["state"], each["held_by"]) for each in service["slices"]] == [
        (0, "ready", None),
        (1, "ready", None),
    ]


# Each session of the tests before has left some lines in the log of the resource manager, of which 100 are shown.
WHOLE = ("logs", "rm", "--tail", "1000000")


def test_logs_are_lines_or_objects(machine, at):
    assert "2/2 Pathways Slices Now Ready" in machine.cli(*WHOLE, *at).stdout
    lines = machine.cli("logs", "worker", "1", "--tail", "3", "--json", *at).stdout.splitlines()
    assert len(lines) == 3
    assert all(json.loads(line)["pod"].startswith("pathways-cluster-worker-1-0-") for line in lines)


ASK_TO_DISCONNECT = """
from pathways_jupyter.session import client, registry
from pathways_jupyter.session.protocol import Method
(record,) = registry.sessions()
client.request(record, Method.DISCONNECT, patience=60)
"""


@pytest.fixture
def connected(machine, at):
    """A script that is connected, and its session."""
    script = (
        "import sys, pathways_jupyter\n"
        "with pathways_jupyter.connect(kubeconfig=sys.argv[1], tpu={'tpuv6e:2x2': 1}) as session:\n"
        "    print(session.id, flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, at[1]],
        env=machine.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process.stdout.readline().strip()
        process.communicate("\n", timeout=60)
        assert process.returncode == 0


@pytest.mark.thorough
def test_who_names_no_cluster_means_that_of_the_only_session(machine, connected):
    assert connected in machine.cli("slices").stdout
    assert "2/2 Pathways Slices Now Ready" in machine.cli(*WHOLE).stdout
    assert machine.cli("doctor").stdout.splitlines()[-1] == "✓ All is well."
    # A cluster that is named is used, or the failure is reported.
    assert machine.cli("slices", "--context", "nowhere").returncode == 1


@pytest.mark.thorough
def test_a_session_that_was_ended_is_printed_as_it_is_now(machine, connected):
    (record,) = json.loads(machine.cli("sessions", "--json").stdout)
    assert (record["id"], record["state"]) == (connected, "connected")
    ended = json.loads(machine.cli("sessions", "disconnect", connected, "--json").stdout)
    assert (ended["id"], ended["state"]) == (connected, "closed")
    assert ended["state_since"] > record["state_since"]
    assert json.loads(machine.cli("sessions", "--json").stdout) == []


@pytest.mark.thorough
def test_a_supervisor_that_does_not_answer_is_said_to_and_nothing_is_asked_of_it(machine, connected):
    (record,) = json.loads(machine.cli("sessions", "--json").stdout)
    sentence = f"The supervisor of session {connected}, process {record['pid']}, does not answer."
    with frozen(record["pid"]):
        ended = machine.cli("sessions", "disconnect", connected)
        traced = machine.cli("profile", "--session", connected, "--seconds", "1")
        # As the sidebar asks, which has looked at nothing.
        asked = machine.python("-c", ASK_TO_DISCONNECT)
    for failed in (ended, traced, asked):
        assert failed.returncode == 1, failed.stdout
        assert sentence in failed.stderr
    for failed in (ended, traced):
        assert f"kill -CONT {record['pid']}" in failed.stderr
    assert "Waiting for it" in ended.stderr
    # It answers in the order in which it was asked: nothing of what it was asked meanwhile ends it now.
    assert [each["state"] for each in json.loads(machine.cli("sessions", "--json").stdout)] == ["connected"]


@pytest.mark.thorough
def test_a_disconnect_goes_on_once_the_supervisor_answers(machine, connected):
    (record,) = json.loads(machine.cli("sessions", "--json").stdout)
    command = [sys.executable, "-m", "pathways_jupyter", "sessions", "disconnect", connected]
    with subprocess.Popen(
        command, env=machine.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as ending:
        with frozen(record["pid"]):
            assert "Waiting for it" in ending.stderr.readline()
        said, errors = ending.communicate(timeout=60)
    assert ending.returncode == 0, errors
    assert f"Session {connected} has ended" in said


def test_a_shell_completes_ids_of_sessions(machine, connected):
    for words in ("pathways-jupyter sessions disconnect ", "pathways-jupyter logs proxy --session "):
        environ = {
            **machine.environ,
            "_PATHWAYS_JUPYTER_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split())),
        }
        program = "from pathways_jupyter.cli import main; main(prog_name='pathways-jupyter')"
        offered = subprocess.run(
            [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False, timeout=60
        )
        assert offered.stdout.splitlines() == [f"plain,{connected}"], offered.stderr


@pytest.mark.thorough
def test_a_notebook_that_is_not_connected_means_the_only_session_too(machine, connected, shared_notebook):
    shared_notebook.run("%load_ext pathways_jupyter")
    shown = shared_notebook.run("%pathways slices")
    assert connected in shown.text, shown.shown


def test_the_supervisors_log_is_there_for_people_and_for_programs(machine, connected):
    # It may grow meanwhile: a supervisor also reports the sessions of others that it removes.
    shown = machine.cli("logs", "supervisor").stdout.splitlines()
    assert any("INFO state: Connected. (state=connected, generation=1, pod=" in line for line in shown)
    lines = machine.cli("logs", "supervisor", "--json").stdout.splitlines()
    assert [json.loads(each)["line"] for each in lines][: len(shown)] == shown
    last = machine.cli("logs", "supervisor", "--tail", "2").stdout.splitlines()
    assert len(last) == 2
    assert set(last).isdisjoint(shown[:-2])
    assert machine.cli("logs", "supervisor", "--tail", "0").stdout == ""


def test_following_a_log_ends_with_an_interrupt(machine, at):
    with subprocess.Popen(
        [sys.executable, "-m", "pathways_jupyter", *WHOLE, "-f", *at],
        env=machine.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as following:
        while "Slices Now Ready" not in (line := following.stdout.readline()):
            assert line, following.stderr.read()
        following.send_signal(signal.SIGINT)
        _, errors = following.communicate(timeout=60)
    assert (following.returncode, errors) == (0, "")


def test_doctor_finds_a_healthy_cluster_healthy(machine, at):
    healthy = machine.cli("doctor", *at)
    assert healthy.returncode == 0, healthy.stdout
    assert healthy.stdout.splitlines()[-1] == "✓ All is well."
    findings = json.loads(machine.cli("doctor", "--json", *at).stdout)
    assert {"cluster", "reachable", "service", "slices", "jax", "leftovers"} <= {each["name"] for each in findings}


def test_the_printed_policies_are_what_kubectl_applies(machine, at):
    printed = machine.cli("network-policy", "--service", "pathways-cluster", "--nodes", "10.0.0.0/8").stdout
    policies = list(yaml.safe_load_all(printed))
    assert [each["metadata"]["name"] for each in policies] == ["pathways-proxies", "pathways-cluster-resource-manager"]
    kubectl = ["kubectl", "--kubeconfig", machine.cli("local", "kubeconfig").stdout.strip()]
    for command in ("apply", "delete"):
        ran = subprocess.run([*kubectl, command, "-f", "-"], input=printed, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
    # The embedded cluster has had the first one from the beginning.
    again = machine.cli("network-policy").stdout
    subprocess.run([*kubectl, "apply", "-f", "-"], input=again, capture_output=True, text=True, check=True)
    assert machine.cli("network-policy", "--service", "x").returncode == 2


def test_doctor_says_what_to_do_about_a_cluster_that_is_not_there(machine):
    sick = machine.cli("doctor")
    assert sick.returncode == 1
    assert "✗ cluster" in sick.stdout
    assert "--local" in sick.stdout


def test_the_embedded_cluster_is_named_where_no_cluster_is_set_up(machine, shared_notebook):
    assert machine.cli("local", "up", "--tpu", "tpuv6e:2x2=1", "--json").returncode == 0
    hint = "The embedded cluster is running on this machine: add --local to use it."
    assert hint in machine.cli("slices").stderr
    assert hint in machine.cli("elastic", "inject", "slice-down", "0", "--job", "x").stderr
    assert hint in machine.cli("doctor").stdout
    shared_notebook.run("%load_ext pathways_jupyter")
    assert hint in shared_notebook.run("%pathways slices").shown
    assert "gcloud container clusters get-credentials" in shared_notebook.run("%pathways slices").shown


@pytest.mark.thorough
def test_a_killed_session_is_cleaned_after_a_look(machine, at):
    script = (
        "import os, signal, sys, pathways_jupyter\n"
        "session = pathways_jupyter.connect(kubeconfig=sys.argv[1], tpu={'tpuv6e:2x2': 1})\n"
        "print(session.id, session.record.job, flush=True)\n"
        "os.kill(session.record.pid, signal.SIGKILL)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    # What other tests have left in the cluster is not what is looked for.
    assert machine.cli("clean", *at).returncode == 0
    killed = machine.python("-c", script, at[1])
    session, _ = killed.stdout.split()
    (record,) = json.loads(machine.cli("sessions", "--json").stdout)
    assert record["id"] == session
    (looked,) = json.loads(machine.cli("clean", "--dry-run", "--json", *at).stdout)
    assert (looked["what"], looked["name"]) == ("session", session)
    assert session in machine.cli("sessions").stdout
    (cleaned,) = json.loads(machine.cli("clean", "--json", *at).stdout)
    assert (cleaned["name"], cleaned["error"]) == (session, "")
    assert json.loads(machine.cli("sessions", "--json").stdout) == []
    assert "2 free" in machine.cli("slices", *at).stdout
    assert machine.cli("clean", *at).stdout.strip() == "✓ Nothing to clean."


def test_the_api_server_restarts_in_place(machine, at):
    before = json.loads(machine.cli("local", "status", "--json").stdout)
    assert machine.cli("local", "restart-api").returncode == 0
    assert json.loads(machine.cli("local", "status", "--json").stdout) == before
    assert "2 free" in machine.cli("slices", *at).stdout


@pytest.mark.parametrize(
    "line",
    [
        "multihost run --dry-run",
        "multihost run --hosts a -- true",
        "multihost run --dir /etc/ssl --dry-run",
        "multihost run --hosts a --use-existing-folder --run-name x -- true",
        "local up --bucket files",
        "job new x --tpu v6e-4 -o file",
        "job apply file",
        "operator image --dry-run",
        "doctor",
    ],
)
def test_a_current_directory_that_is_gone_is_no_traceback(line, tmp_path):
    (tmp_path / "gone").mkdir()
    script = f'cd "{tmp_path}/gone" && rmdir "{tmp_path}/gone" && exec "{sys.executable}" -m pathways_jupyter {line}'
    own = {"HOME": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(tmp_path / "rt"), "KUBECONFIG": "relative"}
    words = ["/bin/sh", "-c", script]
    said = subprocess.run(words, env={**os.environ, **own}, capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 1, said.stderr
    assert "Traceback" not in said.stderr
    if line.startswith(("multihost", "local")):
        assert "The current directory is gone, so " in said.stderr
        assert "Change to a directory that exists." in said.stderr


def test_a_file_that_cannot_be_written_leaves_no_part_of_it(tmp_path):
    kubeconfig = kubeconfigs.write(tmp_path / "config", {"server": "https://127.0.0.1:1"}, {"token": "t"})
    own = {"HOME": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(tmp_path / "rt"), "JUPYTER_DATA_DIR": str(tmp_path)}

    def cli(*words, limit="unlimited"):
        # Of files of 0 bytes, as many as one likes can be made, as on a disk that is full.
        line = ["/bin/sh", "-c", f'ulimit -f {limit}; exec "$@"', "sh", sys.executable, "-m", "pathways_jupyter"]
        environ = {**os.environ, **own, "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [*line, *words], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )

    add = ("kernel", "add", "--kubeconfig", kubeconfig)
    new = ("job", "new", "x", "--tpu", "tpuv6e:2x2=1", "-o", "x.yaml")
    for words in (add, new):
        failed = cli(*words, limit="0")
        assert failed.returncode == 1
        assert "cannot be written: File too large." in failed.stderr
    assert not (tmp_path / "x.yaml").exists()
    kernels = tmp_path / "kernels"
    assert list(kernels.iterdir()) == []
    assert cli(*add).returncode == cli(*new).returncode == 0
    (spec,) = kernels.glob("*/*")
    before = spec.read_bytes()
    # The one that is there stays, and so does a job's file.
    assert cli(*add, "--image", "other", limit="0").returncode == cli(*new, limit="0").returncode == 1
    assert list(kernels.glob("*/*")) == [spec]
    assert spec.read_bytes() == before
    assert yaml.safe_load((tmp_path / "x.yaml").read_text())["kind"] == "PathwaysJob"


@pytest.mark.parametrize("line", ["slices", "job list", "clean", "lab down"])
def test_a_namespace_that_does_not_exist_is_not_taken_for_an_empty_one(line, machine, at):
    failed = machine.cli(*line.split(), *at, "-n", "nope")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("Error: There is no namespace nope in cluster")
