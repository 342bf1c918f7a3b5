from __future__ import annotations

from importlib import metadata

import pytest

from pathways_jupyter.local.node import programs
from pathways_jupyter.local.node.programs import ImageError, resolve
from pathways_jupyter.service import names

JAX = metadata.version("jax")
SERVER = f"{names.IMAGE_REPOSITORY}/server"


def test_the_server_image_is_a_worker_or_the_resource_manager():
    worker, args = resolve(f"{SERVER}:jax-{JAX}", [], ["--server_port=29005"])
    assert worker.main is programs.worker
    assert args == ["--server_port=29005"]
    manager, _ = resolve(f"{SERVER}:latest", [], ["--node_type=resource_manager"])
    assert manager.main is programs.resource_manager


def test_only_programs_that_need_jax_are_forked_from_the_process_that_has_it():
    assert resolve(programs.reference("proxy_server"), [], [])[0].warm
    assert not resolve(SERVER, [], [])[0].warm


def test_an_unknown_tag_does_not_exist():
    with pytest.raises(ImageError, match=f'"{SERVER}:jax-0.0.1": not found; tags here: jax-{JAX}, latest'):
        resolve(f"{SERVER}:jax-0.0.1", [], [])
    with pytest.raises(ImageError):
        resolve(f"{SERVER}@sha256:0000", [], [])


def test_any_other_image_needs_a_command():
    assert resolve("python:3.12", ["python", "-c"], ["pass"])[1] == ["python", "-c", "pass"]
    with pytest.raises(ImageError, match="only with a command"):
        resolve("registry.example:5000/python:3.12", [], ["pass"])


def test_any_image_is_played_in_the_role_of_the_colocated_sidecar():
    for image in ("registry.example/mine:1", f"{names.SIDECAR_REPOSITORY}/sidecar:20250522-python_3.10-jax_0.6.0"):
        played, _ = resolve(image, [], [], container=names.SIDECAR_CONTAINER)
        assert played == resolve(programs.reference("sidecar"), [], [])[0]
    command, _ = resolve("registry.example/mine:1", ["./serve"], [], container=names.SIDECAR_CONTAINER)
    assert command.main is None


def test_a_reference_resolves():
    for name in ("server", "proxy_server", "sidecar", "operator"):
        assert resolve(programs.reference(name), [], [])[0].main is not None
