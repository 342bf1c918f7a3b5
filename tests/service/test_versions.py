from pathways_jupyter.service.versions import Versions, differences, of_image


def test_tags_contain_versions_component_by_component():
    assert of_image("r/sidecar:20260423-python_3.12-jax_0.10.0") == Versions("3.12", "0.10.0")
    assert of_image("localhost:5000/server:jax-0.10.2@sha256:abc") == Versions(jax="0.10.2")
    assert of_image("localhost:5000/server") == Versions()
    assert of_image("r/server:latest") == Versions()


def test_versions_agree_as_far_as_both_are_spelled_out():
    assert differences(Versions("3.12.4", "0.10.2"), Versions("3.12", "0.10.2")) == ()
    assert differences(Versions("3.11.7", "0.10.2"), Versions("3.12", "0.9.0")) == (
        "python 3.11.7 here, 3.12 there",
        "jax 0.10.2 here, 0.9.0 there",
    )
    assert differences(Versions(), Versions("3.12", "0.9.0")) == ()
