"""Without an sshd, the tests of many hosts are skipped with the reason, instead of failing."""

import pytest
import sshd


def test_without_sshd_a_farm_skips_its_tests(monkeypatch, tmp_path):
    monkeypatch.setattr(sshd, "SSHD", None)
    with pytest.raises(pytest.skip.Exception, match="openssh-server"), sshd.farm(tmp_path / "farm", 1):
        pass
