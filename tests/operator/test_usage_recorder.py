"""Chip-hours of sessions that have ended: what the operator records, and what the command says of it."""

import asyncio
import contextlib
import json
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner
from program_log import Log

from pathways_jupyter.base.events import SessionState
from pathways_jupyter.cli import main
from pathways_jupyter.kube import objects
from pathways_jupyter.operator import usage_recorder
from pathways_jupyter.operator.usage_recorder import UsageRecorder
from pathways_jupyter.service import leases, names, usage_records
from pathways_jupyter.service.session_figures import SessionFigures
from pathways_jupyter.service.usage_records import OTHERS, Pending, Share

JANE = Share("default", "jane", "team", "tpus")


def lease(now, chips, state=SessionState.CONNECTED):
    figures = SessionFigures("s", "jane", "default", "whatever it says", state, 0.0, 0, chips=chips)
    labels = {names.SESSION_LABEL: "s", names.USER_LABEL: "jane", names.CHIPS_QUEUE_LABEL: "tpus"}
    labels[names.SERVICE_LABEL] = "team"
    return {
        "metadata": {
            "uid": "u",
            "namespace": "default",
            "labels": labels,
            "annotations": {names.FIGURES_ANNOTATION: figures.to_json()},
        },
        "spec": {"renewTime": leases.stamp(now), "leaseDurationSeconds": 60},
    }


@contextlib.asynccontextmanager
async def recording(client, monkeypatch, say=print):
    monkeypatch.setattr(usage_recorder, "WRITE_SECONDS", 0.1)
    recorder = UsageRecorder(client, "default", say=say)
    running = asyncio.create_task(recorder.run())
    await asyncio.sleep(0)
    yield recorder
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def hours(client, expected):
    """Wait until this is recorded."""
    async with asyncio.timeout(30):
        while True:
            found = await usage_records.fetch(client, "default", "", 86400)
            if found is not None and sum(found.shares.values()) == pytest.approx(expected, abs=2):
                return found
            await asyncio.sleep(0.05)


async def test_what_a_session_held_is_recorded_and_outlives_it(bench, monkeypatch):
    async with bench.client() as client, recording(client, monkeypatch) as recorder:
        now = client.now()
        for at, chips, state in (
            (now - 100, 8, SessionState.WAITING),
            (now - 80, 8, SessionState.CONNECTED),
            (now - 60, 8, SessionState.CONNECTED),
            (now - 20, 4, SessionState.DEGRADED),
        ):
            recorder.take(lease(at, chips, state))
        # 20 s waiting count nothing; 60 s of 8 chips; then 4 chips until its end.
        recorder.forget(lease(now - 20, 4))
        found = await hours(client, 60 * 8 + 20 * 4)
        assert set(found.shares) == {JANE}
        assert list(found.by("queue")) == ["tpus"]


async def test_renewals_out_of_order_count_no_time_twice(bench, monkeypatch):
    async with bench.client() as client, recording(client, monkeypatch) as recorder:
        now = client.now()
        for before in (60, 20, 60, 20, 10**9, 20):
            recorder.take(lease(now - before, 4))
        await hours(client, 40 * 4)


async def test_old_records_are_deleted_and_a_failure_to_do_so_ends_nothing(bench, monkeypatch):
    lines, verbs = Log(), ["get", "create", "update"]
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]
    async with bench.client() as client:
        old = Pending()
        old.add(JANE, 1, client.now() - 100 * 86400, client.now() - 100 * 86400 + 10)
        ((day, added),) = old.days.items()
        await usage_records.write(client, "default", day, added)
        async with (
            bench.client(rules=rules, name="no-deleting") as limited,
            recording(limited, monkeypatch, lines.write) as recorder,
        ):
            await lines.until("You are not allowed to list configmaps")
            now = client.now()
            recorder.take(lease(now - 30, 4))
            recorder.take(lease(now, 4))
            await hours(client, 30 * 4)
        async with recording(client, monkeypatch):
            name = f"{usage_records.PREFIX}{day}"
            await bench.until(client, name, lambda found: found is None, usage_records.CONFIG_MAPS)


async def test_an_operator_that_takes_over_adds_to_the_record(bench, monkeypatch):
    async with bench.client() as client:
        for _ in range(2):
            async with recording(client, monkeypatch) as recorder:
                now = client.now()
                recorder.take(lease(now - 30, 4))
                recorder.take(lease(now, 4))
                await hours(client, 30 * 4 * (_ + 1))


async def test_an_operator_that_does_not_lead_records_nothing(bench):
    async with bench.client() as client:
        recorder = UsageRecorder(client, "default", say=print)
        recorder.take(lease(client.now() - 30, 4))
        recorder.take(lease(client.now(), 4))
        recorder.forget(lease(client.now(), 4))
        assert await usage_records.fetch(client, "default", "", 86400) is None


async def test_old_days_are_deleted_and_others_lines_are_left_out(bench):
    async with bench.client() as client:
        pending = Pending()
        pending.add(JANE, 1, client.now() - 100 * 86400, client.now() - 100 * 86400 + 10)
        pending.add(JANE, 1, client.now() - 10, client.now())
        for day, added in pending.days.items():
            await usage_records.write(client, "default", day, added)
        await usage_records.delete_old(client, "default")
        left = await objects.list_(client, usage_records.CONFIG_MAPS, namespace="default", labels=names.USAGE_LABEL)
        assert len(left.items) == 1
        (only,) = left.items
        lines = json.loads(only["data"]["shares.json"])
        broken = {"data": {"shares.json": json.dumps([*lines, ["x"], 3, ["a", "b", "c", "d", ["NaN"] * 24]])}}
        await objects.patch(client, usage_records.CONFIG_MAPS, only["metadata"]["name"], broken, namespace="default")
        found = await usage_records.fetch(client, "default", "default", 86400)
        assert found.shares[JANE] == pytest.approx(10, abs=2)
        assert (await usage_records.fetch(client, "default", "elsewhere", 86400)).shares == {}


def test_time_is_divided_into_hours_and_days():
    pending = Pending()
    midnight = datetime(2026, 11, 25, tzinfo=UTC).timestamp()
    pending.add(JANE, 2, midnight - 1800, midnight + 5400)
    assert pending.days["2026-11-24"][JANE][23] == 3600
    assert pending.days["2026-11-25"][JANE][:3] == [7200, 3600, 0]


def test_of_one_renewal_no_more_than_a_day_is_counted():
    pending = Pending()
    pending.add(JANE, 1, 0.0, 20_000 * 86400.0)
    assert list(pending.days) == ["2024-10-03"]


async def test_a_record_has_a_bound(bench, monkeypatch):
    monkeypatch.setattr(usage_records, "_MOST_SHARES", 2)
    async with bench.client() as client:
        added = {Share("default", f"user{number}", "team", ""): [1.0] + [0.0] * 23 for number in range(5)}
        await usage_records.write(client, "default", "2026-11-25", added)
        found = await objects.list_(client, usage_records.CONFIG_MAPS, namespace="default")
        lines = json.loads(found.items[0]["data"]["shares.json"])
    assert [(line[1], line[4][0]) for line in lines] == [(OTHERS, 3), ("user0", 1), ("user1", 1)]


def test_the_command_refuses_what_it_cannot_sum_up():
    done = CliRunner().invoke(main, ["usage", "--by", "colour"])
    assert done.exit_code != 0
    assert "user, service, queue" in done.output
