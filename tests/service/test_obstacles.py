"""Flaws of a job, seen in its containers."""

import foreign_jobsets
import pytest
from pathways_jobs import headless

from pathways_jupyter.service.pathwaysjob import description, expansion, obstacles


def container(name="pathways-proxy", *, args=(), env=(), **more):
    return {"name": name, "args": list(args), "env": list(env), **more}


@pytest.mark.parametrize(
    ("given", "unset"),
    [
        (container(args=["--a=$(HEAD):1"]), ["HEAD"]),
        (container(args=["--a=$(HEAD):1"], env=[{"name": "HEAD", "value": "h"}]), []),
        (container(args=["--a=$(HEAD)$(PORT)", "--b=$(HEAD)"]), ["HEAD", "PORT"]),
        # Kubernetes makes $(HEAD) of it.
        (container(args=["--a=$$(HEAD)"]), []),
        (container(args=["--a=$$$(HEAD)"]), ["HEAD"]),
        (container(args=["--a=$HEAD", "--b=${HEAD}"]), []),
        (container(command=["/server", "$(HEAD)"]), ["HEAD"]),
        # A variable may refer to those before it, and to none after it.
        (container(env=[{"name": "A", "value": "$(B)"}, {"name": "B", "value": "$(A)"}]), ["B"]),
        (container(args=["$(HEAD)"], envFrom=[{"configMapRef": {"name": "c"}}]), []),
        # The kubelet sets these.
        (container(args=["$(RM_SERVICE_HOST):$(RM_SERVICE_PORT)"]), []),
        # In a shell this is a command.
        (container("main", args=["echo $(date)"]), []),
    ],
)
def test_references_to_variables_that_a_container_does_not_set(given, unset):
    assert list(obstacles.unset_references([given])) == [f"{given['name']}: $({each})" for each in unset]


def test_what_googles_tools_write():
    for name, made in foreign_jobsets.HEADLESS.items():
        for jobset in (made(), made("a", "python", "-c", "0")):
            info = description.job_info(jobset)
            # Only the Toolkit's proxy names a variable that it does not have, and only pathwaysutils' lets tunnels in.
            assert info.unset == (("pathways-proxy: $(PATHWAYS_HEAD)",) if name == "toolkit" else ())
            assert info.demands_alts == (info.headless and name != "pathwaysutils")


def test_what_this_package_writes_has_neither():
    job = headless("lab")
    info = description.job_info(job, expansion.expand(job))
    assert (info.headless, info.unset, info.demands_alts) == (True, (), False)
