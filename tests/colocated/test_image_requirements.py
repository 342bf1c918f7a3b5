from __future__ import annotations

import zipfile

import pytest

from pathways_jupyter.base.errors import ConfigError, PathwaysError
from pathways_jupyter.colocated import image_requirements as requirements


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


def test_what_contradicts_the_sidecar_itself_is_named_with_both_versions(index) -> None:
    with pytest.raises(PathwaysError) as caught:
        requirements.lock(["tokens<1"], ["tokens>=1.0"], "3.12")
    assert str(caught.value).splitlines()[1:] == [
        "    The user requested tokens<1",
        "    The sidecar needs tokens>=1.0",
    ]


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
