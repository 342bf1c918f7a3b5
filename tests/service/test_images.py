from pathways_jupyter.service.images import Image, Versions, agree, differences, of_image


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


def test_a_reference_is_taken_apart_and_put_together_again():
    for reference, parts in {
        "server": Image("", "server"),
        "localhost:5000/server": Image("localhost:5000/", "server"),
        "localhost:5000/team/server:jax-0.10.2": Image("localhost:5000/team/", "server", "jax-0.10.2"),
        "r/server:1@sha256:abc": Image("r/", "server", "1", "sha256:abc"),
        "r/server@sha256:abc": Image("r/", "server", digest="sha256:abc"),
    }.items():
        assert Image.parse(reference) == parts
        assert str(parts) == reference


def test_minor_versions_agree():
    assert agree("3.12.4", "3.12.1", parts=2)
    assert not agree("3.12.4", "3.11.4", parts=2)
    assert not agree("3.12.4", "3.12.1")
