"""Calls as users write them, for mypy alone (``make lint``): what is public is typed, and stays so.

Nothing here runs. A line that stops to type-check is a change that breaks a user's program.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import assert_type

import pathways_jupyter
from pathways_jupyter import (
    Ended,
    Event,
    EventKind,
    NamedArray,
    Session,
    SessionRecord,
    SessionSlice,
    SessionState,
    Switched,
    colocated,
)


def connect() -> Session:
    with pathways_jupyter.connect(local=True, tpu={"tpuv6e:2x2": 2}) as inside:
        assert_type(inside, Session)
    pathways_jupyter.connect(tpu="tpuv6e:2x2=2", service="pathways-cluster", wait=True, progress=False)
    pathways_jupyter.connect(profile="team", wait=60, linger=30.0, max_lifetime=3600, lease_seconds=60, timeout=300)
    pathways_jupyter.connect(tpu={"tpuv6e:2x2": 1}, proxy_image="proxy:1", proxy_options=["sidecar:true"])
    return pathways_jupyter.connect(
        cluster="my-cluster",
        project="my-project",
        region="us-east5",
        gcs_bucket="gs://my-bucket",
        pathways_service="pathways-cluster-pathways-head-0-0.pathways-cluster:29001",
        expected_tpu_instances={"tpuv6e:2x2": 2},
        proxy_server_image="proxy:1",
    )


def look(session: Session) -> None:
    assert_type(session.id, str)
    assert_type(session.state, SessionState)
    status = session.status()
    assert_type(status, SessionRecord)
    assert_type(status.instances, Mapping[str, int])
    assert_type(status.slices, tuple[SessionSlice, ...])
    assert_type(status.since, float)
    assert_type(session.events(), list[Event])
    assert_type([event.kind for event in session.events()], list[EventKind])
    assert_type(session.follow(), Iterator[Event])
    for index, devices in session.slices().items():
        print(index, [device.device_kind for device in devices])
    print(len(session.devices()), status)


def end(session: Session) -> Sequence[NamedArray]:
    switched = session.reconnect()
    assert_type(switched, Switched)
    assert_type(switched.left, tuple[NamedArray, ...])
    ended = session.disconnect({"x": 1})
    assert_type(ended, Ended)
    assert_type(ended.left, str)
    assert_type(pathways_jupyter.current_session(), Session | None)
    return ended.unusable


def fail() -> str:
    try:
        pathways_jupyter.connect()
    except pathways_jupyter.CapacityError as error:
        return error.hint
    except (pathways_jupyter.ConfigError, pathways_jupyter.ClusterError, pathways_jupyter.SessionError) as error:
        return str(error)
    except pathways_jupyter.PathwaysError:
        raise
    return ""


@colocated.function
def lines(path: str) -> int:
    with open(path) as file:
        return sum(1 for _ in file)


@colocated.function(slices=[0], quiet=True)
def double(number: float) -> float:
    return 2 * number


def on_hosts() -> None:
    assert_type(lines("/etc/hosts"), int)
    assert_type(lines.on_each("/etc/hosts"), dict[int, int])
    assert_type(double(1.0), float)
    lines(1)  # type: ignore[arg-type]
    for host in colocated.hosts():
        print(host.index)
