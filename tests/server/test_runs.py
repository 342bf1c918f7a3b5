"""Runs on many hosts as the sidebar sees them, with real sshd processes as hosts."""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import pytest
import sshd
from pages import opened
from runs import DEADLINE, Lab

from pathways_jupyter.multihost import records
from pathways_jupyter.server.runwatch import RunWatch

ROUTES = [
    ("GET", "runs/x-00000000/logs?host=0-0"),
    ("POST", "runs/x-00000000/stop"),
    ("POST", "runs/x-00000000/refresh"),
]
BAD = [
    ("GET", "runs/x-00000000/logs?host=0-0&colour=blue", None, 400, "'colour'"),
    ("GET", "runs/x-00000000/logs?host=0-0", None, 404, "There is no run"),
    ("GET", "runs/..%2fx-00000000/logs?host=0-0", None, 404, "There is no run"),
    ("GET", "runs/" + "x" * 300 + "-00000000/logs?host=0-0", None, 404, "There is no run"),
    ("POST", "runs/x-00000000/stop", None, 404, "There is no run"),
    ("POST", "runs/x-00000000/refresh", None, 404, "There is no run"),
    ("POST", "runs/x-00000000/stop", b'{"grace": 0}', 400, "'grace'"),
]


@pytest.fixture
def lab(server, tmp_path, monkeypatch):
    """Runs of the server's user."""
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "HOME"):
        monkeypatch.setenv(name, server.environ[name])
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    # Not pytest's own directory, so that another user can be given access to it.
    with tempfile.TemporaryDirectory(prefix="pj-") as name, sshd.farm(Path(name) / "farm", 2) as farm:
        yield Lab(farm, tmp_path)
        assert farm.left() == []


def named(page, name):
    """The run of this name that a page has received; None if it has none yet."""
    return next((each for each in page.runs.values() if each["name"] == name), None)


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_runs_are_shown_to_authorized_users_only(server, strict_server, method, path):
    async with server.http(token="") as http, http.request(method, server.route(path), allow_redirects=False) as answer:
        assert answer.status in {401, 403}
    async with strict_server.http() as http, http.request(method, strict_server.route(path)) as answer:
        assert answer.status == 403


@pytest.mark.parametrize(("method", "path", "body", "status", "message"), BAD, ids=lambda value: str(value)[:40])
async def test_bad_input_is_answered_with_a_message(server, method, path, body, status, message):
    from yarl import URL

    url = URL(server.route(path), encoded=True)
    async with server.http() as http, http.request(method, url, data=body) as answer:
        assert answer.status == status
        said = await answer.json(content_type=None)
    assert message in said["message"]
    assert said["hint"]


async def test_a_run_is_listed_with_its_hosts_its_output_is_read_and_it_is_stopped(server, lab):
    def written(page):
        found = named(page, "mine")
        return found and [each["last_line"] for each in found["hosts"]] == ["at 0", "at 1"]

    async with opened(server) as page, server.http() as http:
        following = asyncio.create_task(lab.run("echo at $WORKER; sleep 300", name="mine"))
        await page.until(lambda page: following.done() or written(page))
        assert not following.done(), following.result()
        found = named(page, "mine")
        assert (found["state"], found["code"]) == ("running", None)
        assert [(each["label"], each["phase"], each["code"]) for each in found["hosts"]] == [
            ("0-0", "running", None),
            ("0-1", "running", None),
        ]
        assert 0 < found["started"] <= found["at"]
        async with http.get(server.route(f"runs/{found['id']}/logs?host=0-1")) as answer:
            assert answer.content_type == "text/plain"
            assert await answer.text() == "at 1\n"
        async with http.get(server.route(f"runs/{found['id']}/logs?host=9")) as answer:
            assert answer.status == 400
            assert "0-0, 0-1" in (await answer.json(content_type=None))["hint"]
        async with http.post(server.route(f"runs/{found['id']}/stop")) as answer:
            assert answer.status == 200, await answer.text()
            stopped = (await answer.json())["run"]
        assert (stopped["state"], {each["phase"] for each in stopped["hosts"]}) == ("ended", {"stopped"})
        assert {each.phase for each in (await following).ended.hosts} == {"stopped"}


async def test_a_detached_run_is_brought_up_to_date_on_request(server, lab):
    release = lab.directory / "release"
    await lab.run(f"while [ ! -e {release} ]; do sleep 0.05; done; echo end $WORKER", name="alone", detach=True)
    release.touch()
    async with opened(server) as page, server.http() as http:
        await page.until(lambda page: named(page, "alone"))
        before = named(page, "alone")
        assert (before["state"], {each["phase"] for each in before["hosts"]}) == ("detached", {"running"})
        async with asyncio.timeout(DEADLINE):
            found = before
            while found["state"] != "ended":
                async with http.post(server.route(f"runs/{before['id']}/refresh")) as answer:
                    assert answer.status == 200, await answer.text()
                    found = (await answer.json())["run"]
        assert found["code"] == 0
        assert [(each["phase"], each["last_line"]) for each in found["hosts"]] == [
            ("exited", "end 0"),
            ("exited", "end 1"),
        ]


async def test_a_page_receives_the_runs_and_every_change_of_them(server, lab):
    def mine(page):
        return named(page, "watched")

    def written(page):
        return mine(page) and [each["last_line"] for each in mine(page)["hosts"]] == ["at 0", "at 1"]

    async with opened(server) as page:
        following = asyncio.create_task(lab.run("echo at $WORKER; sleep 300", name="watched"))
        await page.until(lambda page: following.done() or written(page))
        assert not following.done(), following.result()
        assert mine(page)["state"] == "running"
        run = mine(page)["id"]
        async with opened(server) as later:
            # A page that opens later receives what is known.
            await later.until(written)
        async with server.http() as http, http.post(server.route(f"runs/{run}/stop")) as answer:
            assert answer.status == 200, await answer.text()
        await page.until(lambda page: mine(page)["state"] == "ended")
        await following


async def test_a_followed_log_goes_on_until_the_run_has_ended(server, lab):
    release = lab.directory / "release"
    command = f"echo before; while [ ! -e {release} ]; do sleep 0.05; done; printf after"
    async with opened(server) as page, server.http() as http:
        following = asyncio.create_task(lab.run(command, name="followed"))
        await page.until(
            lambda page: following.done() or any(each["name"] == "followed" for each in page.runs.values())
        )
        run = next(each["id"] for each in page.runs.values() if each["name"] == "followed")
        async with asyncio.timeout(DEADLINE), http.get(server.route(f"runs/{run}/logs?host=0-1&follow=true")) as answer:
            assert answer.status == 200
            assert await answer.content.readline() == b"before\n"
            release.touch()
            # The last line has no end, and is there anyway.
            assert await answer.content.read() == b"after\n"
        assert (await following).code == 0


async def test_a_run_that_is_gone_from_the_disk_is_gone_from_the_pages(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    now = time.time()
    made = records.RunRecord("over-00000000", "over", "true", (), str(tmp_path), started=now, ended=now, code=0)
    made.save()
    received, watch = asyncio.Queue(), RunWatch()
    watch.add(received.put_nowait)
    try:
        async with asyncio.timeout(DEADLINE):
            first = await received.get()
            assert (first["reset"], [each["name"] for each in first["put"]]) == (True, ["over"])
            made.forget()
            assert await received.get() == {"type": "multihost", "reset": False, "put": [], "drop": ["over-00000000"]}
    finally:
        await asyncio.gather(*watch.stop(), return_exceptions=True)


async def test_a_run_whose_process_was_killed_is_shown_as_not_followed(server, lab):
    # In a process of its own, which dies without a word; its death changes no file.
    code = (
        "import sys\n"
        "from pathways_jupyter.multihost.records import RunRecord\n"
        "record = RunRecord('killed-00000000', 'killed', 'true', (), '/nowhere', started=1.0)\n"
        "with record.attending():\n"
        "    record.save()\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=server.environ
    )
    try:
        async with opened(server) as page:
            await page.until(lambda page: page.runs.get("killed-00000000", {}).get("state") == "running")
            process.kill()
            await page.until(lambda page: page.runs["killed-00000000"]["state"] == "left")
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        records.read("killed-00000000").forget()
