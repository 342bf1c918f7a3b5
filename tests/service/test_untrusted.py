"""Input of other users: every reader of the cluster's objects, fed with what an API server would store."""

import json
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from pathways_jupyter.base import tpu
from pathways_jupyter.operator import metrics_server
from pathways_jupyter.render import slices
from pathways_jupyter.service import (
    derivation,
    discovery,
    leases,
    names,
    placement,
    service_jobset,
    tables,
    unreadable,
    untrusted,
)
from pathways_jupyter.service.namespacestate import PodIndex
from pathways_jupyter.service.pathwaysjob import description
from pathways_jupyter.service.session_figures import SessionFigures

NOW = 1_800_000_000.0
HUGE = "1" + "0" * 400
TYPE = "tpuv6e:2x2"

DEEP = "[" * 3000
NUMBERS = st.one_of(
    st.sampled_from([HUGE, "9" * 5000, "1e999", "-1", "NaN", "Infinity", "٣", "²", "0x1", "1_0", " 1", "", "60"]),
    st.integers().map(str),
    st.floats().map(str),
    st.text(max_size=20),
)
TEXTS = st.one_of(st.sampled_from(["<img src=x onerror=alert(1)>", "\x1b[2J", "‮", DEEP, "x" * 70000]), st.text())
VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS, st.just(int(HUGE)), st.just([{}]))
# What Go's time package reads and writes: a year of four digits.
TIMES = st.sampled_from(
    ["0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "2026-11-23T10:00:00.000000Z"]
)
LABELS = st.from_regex(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,20}[A-Za-z0-9])?)?", fullmatch=True)
FIGURES = st.one_of(
    TEXTS,
    st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("waited", "reconnects", "sent", "received", "state", "service", "user"), VALUES)
    ).map(json.dumps),
    st.just(f'{{"waited": {HUGE}, "reconnects": 0, "service": "x", "state": "connected"}}'),
    st.just('{"waited": 1e999, "reconnects": 0, "service": "x", "state": "connected"}'),
    st.just('{"waited": ' + "9" * 5000 + "}"),
)
INT32 = st.integers(1, 2**31 - 1)
OWNERS = st.sampled_from([[], [{"name": "a", "uid": "u"}], [{"name": "foreign", "uid": "u"}], [{"uid": ""}] * 3])


def metadata(kind_labels=()):
    return st.fixed_dictionaries(
        {"name": st.just("a"), "namespace": st.just("default"), "creationTimestamp": st.just("2026-11-23T10:00:00Z")},
        optional={
            "uid": st.just("u"),
            "ownerReferences": OWNERS,
            "labels": st.dictionaries(
                st.sampled_from([names.SESSION_LABEL, names.USER_LABEL, names.SERVICE_LABEL, *kind_labels]), LABELS
            ),
            "annotations": st.fixed_dictionaries(
                {},
                optional={
                    names.KEEP_ANNOTATION: NUMBERS,
                    names.FIGURES_ANNOTATION: FIGURES,
                    names.NOTEBOOK_ANNOTATION: TEXTS,
                    names.RECLAIMED_ANNOTATION: TEXTS,
                    names.POD_INDEX_LABEL: NUMBERS,
                },
            ),
        },
    )


LEASE = st.fixed_dictionaries(
    {
        "kind": st.just("Lease"),
        "metadata": metadata(),
        "spec": st.fixed_dictionaries(
            {},
            optional={"renewTime": TIMES, "acquireTime": TIMES, "leaseDurationSeconds": INT32, "holderIdentity": TEXTS},
        ),
    }
)
ARGUMENTS = st.lists(
    st.one_of(
        TEXTS,
        st.sampled_from(
            [
                f"--resource_manager_address={service_jobset.address(names.DEFAULT_SERVICE)}",
                f"--virtual_slices={','.join([TYPE] * 50)}",
                "--virtual_slices=" + "tpuv5:9996x9996x9996,",
                "--virtual_slices=" + "a," * 100_000,
                "--virtual_slices=\x1b[2J,v6e-" + "9" * 5000,
                "--virtual_slices=" + ",".join(map(str, range(5000))),
            ]
        ),
    ),
    max_size=4,
)
JOB = st.fixed_dictionaries(
    {
        "kind": st.just("Job"),
        "metadata": metadata(),
        "spec": st.fixed_dictionaries(
            {
                "template": st.fixed_dictionaries(
                    {
                        "spec": ARGUMENTS.map(
                            lambda given: {
                                "containers": [
                                    {
                                        "name": names.PROXY_CONTAINER,
                                        "args": [
                                            f"--resource_manager_address="
                                            f"{service_jobset.address(names.DEFAULT_SERVICE)}",
                                            *given,
                                        ],
                                    }
                                ]
                            }
                        )
                    }
                )
            },
            optional={"activeDeadlineSeconds": st.integers(0, 2**63 - 1)},
        ),
    },
    optional={"status": st.fixed_dictionaries({}, optional={"startTime": TIMES, "ready": st.integers(0, 2**31 - 1)})},
)
PARTS = (names.JOB_NAME_LABEL, names.JOBSET_NAME_LABEL, names.REPLICATED_JOB_LABEL, names.JOB_INDEX_LABEL)
POD = st.fixed_dictionaries(
    {
        "metadata": metadata((*PARTS, names.POD_INDEX_LABEL)),
        "spec": st.just({"nodeName": "n"}),
        "status": st.fixed_dictionaries({"phase": st.sampled_from(["Running", "Failed"])}, optional={"reason": TEXTS}),
    }
)
SERVICE = service_jobset.manifest(
    service_jobset.ServiceSpec(tpu.parse_instance_type(TYPE), 2, "r/pathways/server:jax-0.10.2")
)


def jobset(arguments, replicas, parallelism):
    """A service as someone who may create JobSets writes it."""
    made = json.loads(json.dumps(SERVICE))
    made["metadata"] |= {"creationTimestamp": "2026-11-23T10:00:00Z", "namespace": "default"}
    for part in made["spec"]["replicatedJobs"]:
        spec = part["template"]["spec"]
        if part["name"] == names.HEAD_JOB:
            for each in spec["template"]["spec"]["containers"]:
                each.setdefault("args", []).extend(arguments)
        else:
            part["replicas"], spec["parallelism"] = replicas, parallelism
    return made


SERVICE_ARGUMENTS = st.lists(
    st.one_of(
        TEXTS,
        NUMBERS.map(lambda value: f"--instance_count={value}"),
        st.sampled_from(["--instance_count=2147483647", "--instance_type=tpuv5:9996x9996x9996", "--server_port=\n"]),
    ),
    max_size=3,
)
JOBSET = st.builds(jobset, SERVICE_ARGUMENTS, st.sampled_from([1, 2**31 - 1]), st.sampled_from([1, 2, 2**31 - 1]))
LINES = st.lists(
    st.one_of(
        TEXTS,
        NUMBERS.map(lambda value: f"Transition slice {value} (t) pending -> placed on worker-{value}"),
    ),
    max_size=5,
)
EVENT = st.fixed_dictionaries(
    {"metadata": st.just({})}, optional={"lastTimestamp": TIMES, "eventTime": TIMES, "message": TEXTS, "reason": TEXTS}
)
QUICK = settings(max_examples=150)


def dump(value):
    """Return `value` as strict JSON."""
    return json.dumps(value, allow_nan=False, default=str)


@QUICK
@given(st.lists(LEASE, max_size=3))
def test_leases_end_at_some_time_and_their_figures_can_be_scraped(found):
    for lease in found:
        assert 0 <= leases.end(lease, NOW) <= leases.kept_until(lease, NOW) < 2 * untrusted.LATEST
        assert all(math.isfinite(each.kept_until) for each in leases.reclaimable([lease], NOW).values())
        assert all(len(said) < 200 and said.isprintable() for said in unreadable.values_of(lease))
    figures = [each for lease in found if (each := SessionFigures.read(lease)) is not None]
    registry = CollectorRegistry()
    registry.register(type("Found", (), {"collect": lambda self: metrics_server.of_sessions(figures)})())
    scraped = generate_latest(registry).decode()
    assert "Inf" not in scraped
    assert "NaN" not in scraped


@QUICK
@given(JOBSET, st.lists(JOB, max_size=2), st.lists(POD, max_size=3), st.lists(LEASE, max_size=1), LINES)
def test_a_service_can_be_drawn_whatever_others_write_beside_it(jobset, jobs, pods, found, lines):
    read = placement.Placement()
    for line in lines:
        read.feed(line)
    for service in discovery.of_jobsets([jobset]):
        drawn = derivation.derive(
            service,
            pods=PodIndex(pods),
            jobs=jobs,
            placements={"a": read},
            reclaimable=leases.reclaimable(found, NOW),
        )
        view = slices.view([drawn])
        dump(view.value)
        assert all(each.isprintable() for each in view.text.replace("\n", ""))
        dump(tables.tables([(service, drawn)], heads={}, me="me", jobs=[jobset, *jobs]))
        derivation.outline(service, jobs)
    unreadable.number_of([jobset, *jobs])


def without(*path):
    """A service without one of its parts, which a JobSet may lack too."""
    made = jobset([], 1, 1)
    for part in made["spec"]["replicatedJobs"]:
        place = part
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]
    return made


@pytest.mark.parametrize(
    "odd",
    [
        without("template", "spec"),
        without("template", "spec", "template"),
        without("template", "spec", "template", "spec"),
        without("template", "spec", "template", "spec", "containers"),
        {**jobset([], 1, 1), "spec": {}},
    ],
)
def test_a_job_that_lacks_a_part_is_listed(odd):
    info = description.job_info({**odd, "kind": "JobSet"})
    assert (info.name, info.headless) == (odd["metadata"]["name"], False)
    assert description.main_container({**odd, "kind": "JobSet"})
    assert description.main_container({"kind": "PathwaysJob", "metadata": {}, "spec": {}}) == "main"


@QUICK
@given(JOBSET)
def test_a_job_is_described_whatever_its_jobset_says(odd):
    dump(vars(description.job_info({**odd, "kind": "JobSet"})))


PATHS = (
    ("workers",),
    ("workers", 0),
    *(("workers", 0, name) for name in ("type", "topology", "numSlices", "maxSliceRestarts", "nodeSelector")),
    ("controller",),
    *(("controller", name) for name in ("deploymentMode", "elasticSlices", "template")),
    ("maxRestarts",),
    ("customComponents",),
    ("customComponents", 0),
    *(("customComponents", 0, name) for name in ("componentType", "customFlags", "image")),
)


def job_spec(path, value):
    """A job of which one value is another, as where a definition of the API is installed that does not check it."""
    workers = {"type": "ct6e-standard-4t", "topology": "2x2", "numSlices": 1, "maxSliceRestarts": 1, "nodeSelector": {}}
    controller = {"deploymentMode": "default", "elasticSlices": 0, "template": None}
    component = {"componentType": "worker", "customFlags": ["--a"], "image": "i"}
    spec = {"workers": [workers], "controller": controller, "maxRestarts": 1, "customComponents": [component]}
    place = spec
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return spec


OTHER_VERSION = st.builds(job_spec, st.sampled_from(PATHS), VALUES)


@QUICK
@given(OTHER_VERSION, VALUES, TEXTS)
def test_a_job_of_another_version_of_the_api_is_described_and_drawn(spec, restarts, message):
    kept = {"conditions": [{"type": "Failed", "status": "True", "message": message}], "restarts": restarts}
    metadata = {"name": "a", "namespace": "default", "creationTimestamp": "2026-11-23T10:00:00Z"}
    job = {"kind": "PathwaysJob", "metadata": metadata, "spec": spec, "status": kept}
    dump(vars(description.job_info(job)))
    shown = tables.tables([], heads={}, me="me", jobs=[job])
    dump(shown)
    (row,) = shown["jobs"].values()
    assert row["message"].isprintable()


@QUICK
@given(EVENT)
@example({"metadata": {}, "lastTimestamp": "0000-01-01T00:00:00Z"})
def test_an_event_can_be_shown_whenever_it_says_it_was(event):
    dump(vars(description.event_info(event)))


@QUICK
@given(VALUES, TEXTS)
def test_a_value_is_in_range_or_absent(value, written):
    assert untrusted.number(value, 10.0) is None or 0 <= untrusted.number(value, 10.0) <= 10
    assert untrusted.text(written).isprintable()
    assert len(untrusted.text(written)) <= untrusted.LONGEST_TEXT
    assert 0 <= untrusted.time(value) <= untrusted.LATEST
    untrusted.mapping(written)
