"""What the starter of Apache BookKeeper says when it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from itests.support import apache_bookkeeper
from itests.support.apache_bookkeeper import BookkeeperMissing

pytestmark = [pytest.mark.bookkeeper, pytest.mark.nightly, pytest.mark.processes, pytest.mark.zookeeper]


def test_without_maven_the_reason_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("BOKI_BOOKKEEPER_JARS", raising=False)
    monkeypatch.setattr(apache_bookkeeper, "CACHE", tmp_path / "cache" / "version")
    with pytest.raises(BookkeeperMissing, match="no mvn on PATH"):
        apache_bookkeeper.find_jars()
    assert not apache_bookkeeper.CACHE.exists()


def test_a_folder_of_jars_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOKI_BOOKKEEPER_JARS", str(tmp_path))
    assert apache_bookkeeper.find_jars() == tmp_path


def test_the_pom_names_the_version() -> None:
    assert f"<version>{apache_bookkeeper.VERSION}</version>" in apache_bookkeeper.POM.read_text()
