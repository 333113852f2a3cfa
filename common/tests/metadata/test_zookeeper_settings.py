"""The file with the credential."""

from __future__ import annotations

import pytest

from boki_common.metadata.zookeeper_settings import ZookeeperSettings, parse_digest


def test_the_first_line_counts() -> None:
    assert parse_digest("boki:se:cret\nnothing\n") == "boki:se:cret"
    assert parse_digest("  boki:secret \r\n") == "boki:secret"


@pytest.mark.parametrize("text", ["", "\nboki:secret", "boki", "boki:", ":secret"])
def test_what_is_no_credential_is_said_without_telling_it(text: str) -> None:
    with pytest.raises(ValueError, match="expected user:password") as caught:
        parse_digest(text)
    assert "secret" not in str(caught.value)


def test_settings_of_tls_belong_together() -> None:
    assert list(ZookeeperSettings().faults()) == []
    assert list(ZookeeperSettings(tls=True, tls_certificate_file="c", tls_key_file="k").faults()) == []
    assert "belong together" in next(iter(ZookeeperSettings(tls=True, tls_key_file="k").faults()))
    assert "tls is off" in next(iter(ZookeeperSettings(tls_ca_file="c").faults()))
