"""The account with which Google's services are used."""

from __future__ import annotations

import pytest

from pathways_jupyter.base.errors import ClusterError
from pathways_jupyter.base.google import open_bucket


@pytest.fixture
def signed_out(monkeypatch, tmp_path):
    for name in ("HOME", "CLOUDSDK_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("signed_out")
def test_a_bucket_without_credentials_is_an_error_that_says_how_to_sign_in():
    with pytest.raises(ClusterError, match="There are no Google credentials on this machine") as refused:
        open_bucket()
    assert "gcloud auth application-default login" in refused.value.hint


@pytest.mark.usefixtures("signed_out")
def test_a_storage_of_ones_own_is_not_sent_the_users_token(monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/there/is/none.json")
    assert open_bucket().credentials.credentials is None
