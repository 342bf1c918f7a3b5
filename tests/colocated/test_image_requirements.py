from __future__ import annotations

import zipfile

import pytest
from hypothesis import given, settings, strategies
from packaging.specifiers import SpecifierSet

from pathways_jupyter.colocated import image_requirements as requirements
from pathways_jupyter.errors import ConfigError, PathwaysError

SERVER = requirements.server_requirements("0.10.0")


@pytest.mark.parametrize(
    "line",
    ["jax>=0.5.1", "jax", "jax[k8s]==0.10.0", "numpy", "numpy>=2.1", "numpy~=2.3", "tiktoken==0.7", "protobuf>=4,<7"],
)
def test_a_requirement_that_the_sidecar_can_satisfy_is_no_conflict(line: str) -> None:
    assert requirements.conflicts([line], SERVER, "3.12") == []


@pytest.mark.parametrize(
    ("line", "package"),
    [
        ("jax<0.10", "jax"),
        ("JAX==0.9.2", "JAX"),
        ("jaxlib!=0.10.0", "jaxlib"),
        ("numpy<2", "numpy"),
        ("numpy==1.26.*", "numpy"),
        ("ml-dtypes<0.4", "ml-dtypes"),
        ("jax @ https://example.com/jax.whl", "jax"),
    ],
)
def test_a_conflict_names_the_package_and_both_versions(line: str, package: str) -> None:
    (conflict,) = requirements.conflicts([line], SERVER, "3.12")
    assert conflict.package == package
    assert conflict.server in str(conflict)
    assert conflict.wanted in str(conflict)


def test_a_requirement_for_another_python_is_left_out() -> None:
    assert requirements.conflicts(['numpy<2; python_version < "3.10"'], SERVER, "3.12") == []
    assert requirements.conflicts(['numpy<2; python_version >= "3.12"'], SERVER, "3.12") != []


def test_comments_and_blank_lines_are_no_requirements(tmp_path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("# data\n\ntiktoken>=0.7  # tokens\ngrain-nightly \\\n  >=0.0.10\n")
    assert requirements.read(path) == ["tiktoken>=0.7", "grain-nightly >=0.0.10"]


@pytest.mark.parametrize("text", ["-r other.txt\n", "not a package\n"])
def test_a_line_that_is_no_requirement_is_named(tmp_path, text: str) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(text)
    with pytest.raises(ConfigError, match=text.split()[-1]):
        requirements.read(path)


def test_a_missing_file_is_named(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.txt cannot be read"):
        requirements.read(tmp_path / "missing.txt")


VERSIONS = [f"{major}.{minor}{patch}" for major in range(4) for minor in range(4) for patch in ("", ".1", ".99999")]
VERSIONS += [f"{number}.99999" for number in range(4)] + ["99999"]
CLAUSES = [f"{operator}{version}" for operator in ("<", "<=", ">", ">=", "==", "!=") for version in ("1", "1.1", "2.0")]
CLAUSES += [f"{operator}{version}" for operator in ("==", "!=") for version in ("0.*", "1.*", "1.1.*")] + ["~=1.1"]


@settings(max_examples=500, deadline=None)
@given(*(strategies.lists(strategies.sampled_from(CLAUSES), min_size=1, max_size=3) for _ in range(2)))
def test_two_requirements_conflict_where_no_version_fits_both(one: list[str], other: list[str]) -> None:
    """Held against trying every version of a grid that is finer than the clauses."""
    both = SpecifierSet(",".join([*one, *other]))
    fits = [version for version in VERSIONS if both.contains(version, prereleases=True)]
    found = requirements.conflicts([f"x{','.join(one)}"], [f"x{','.join(other)}"], "3.12")
    assert bool(found) is not bool(fits), fits[:3]


@pytest.mark.parametrize(
    ("one", "other"), [("<2", ">=1.9"), ("<2.0,!=1.*", "!=0"), ("<1,!=0.0", "<1"), ("<2", "!=0.*")]
)
def test_a_version_below_a_bound_is_found(one: str, other: str) -> None:
    assert requirements.conflicts([f"x{one}"], [f"x{other}"], "3.12") == []


@pytest.fixture
def index(tmp_path, monkeypatch):
    """The only wheels that pip finds: data 1.0 needs tokens 2 or later, of which there is none."""
    for name, needs in (("data", "Requires-Dist: tokens>=2\n"), ("tokens", "")):
        about = f"{name}-1.0.dist-info"
        with zipfile.ZipFile(tmp_path / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}")
            wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{about}/RECORD", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    return tmp_path


def test_pips_own_reason_for_a_conflict_is_shown(index) -> None:
    with pytest.raises(PathwaysError) as caught:
        requirements.lock(["data"], ["tokens==1.0"], "3.12")
    message = str(caught.value)
    assert "data 1.0 depends on tokens>=2" in message
    assert "The sidecar needs tokens==1.0" in message
    assert "Loosen a version" in caught.value.hint
    assert all(each not in message for each in ("ResolutionImpossible", "To fix this", "/tmp", "http"))


def test_pips_own_reason_for_a_version_that_does_not_exist_is_shown(index) -> None:
    with pytest.raises(PathwaysError) as caught:
        requirements.lock(["tokens==7"], ["jax==0.10.0"], "3.12")
    message = str(caught.value)
    assert "Could not find a version that satisfies the requirement tokens==7 (from versions: 1.0)" in message
    assert "ERROR" not in message


def test_an_index_that_cannot_be_reached_is_the_reason(monkeypatch) -> None:
    for name, value in (("CONFIG_FILE", "/dev/null"), ("INDEX_URL", "http://127.0.0.1:9/simple"), ("RETRIES", "1")):
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    with pytest.raises(PathwaysError) as caught:
        requirements.lock(["tokens"], ["jax==0.10.0"], "3.12")
    assert "refused" in str(caught.value)
    assert "Loosen" not in caught.value.hint
