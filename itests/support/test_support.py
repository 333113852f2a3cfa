"""The starter of ZooKeeper: where it finds the jars, and what it says when it cannot."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from itests.support import zookeeper
from itests.support.zookeeper import ZookeeperMissing


def test_the_pom_and_the_checksums_name_the_same_versions() -> None:
    pom = zookeeper.POM.read_text()
    lines = [line.split() for line in zookeeper.CHECKSUMS.read_text().splitlines()]
    assert all(len(checksum) == 64 for checksum, _path in lines)
    for artifact in ("zookeeper", "metrics-core", "snappy-java", "slf4j-simple"):
        version = next(path.split("/")[-2] for _checksum, path in lines if path.split("/")[-3] == artifact)
        assert f"<artifactId>{artifact}</artifactId>" in pom
        assert f"<version>{version}</version>" in pom
    assert f"/{zookeeper.VERSION}/" in lines[0][1]


def test_a_download_checks_what_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = {"g/one/1/one-1.jar": b"one", "g/two/2/two-2.jar": b"two"}
    checksums = tmp_path / "checksums"
    checksums.write_text("".join(f"{hashlib.sha256(data).hexdigest()}  {path}\n" for path, data in jars.items()))
    monkeypatch.setattr(zookeeper, "CHECKSUMS", checksums)
    monkeypatch.setenv("BOKI_MAVEN_REPOSITORY", (tmp_path / "repository").as_uri() + "/")
    for path, data in jars.items():
        target = tmp_path / "repository" / path
        target.parent.mkdir(parents=True)
        target.write_bytes(data)
    (tmp_path / "jars").mkdir()
    zookeeper._download(tmp_path / "jars")
    assert {path.name: path.read_bytes() for path in (tmp_path / "jars").iterdir()} == {
        "one-1.jar": b"one",
        "two-2.jar": b"two",
    }
    (tmp_path / "repository/g/two/2/two-2.jar").write_bytes(b"other")
    with pytest.raises(ZookeeperMissing, match="expected SHA-256"):
        zookeeper._download(tmp_path / "jars")


def test_the_mirror_of_the_settings(tmp_path: Path) -> None:
    settings = tmp_path / "settings.xml"
    assert zookeeper._mirror_of_settings(settings) is None
    settings.write_text("<settings/>")
    assert zookeeper._mirror_of_settings(settings) is None
    settings.write_text(
        '<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><mirrors><mirror><id>m</id>'
        "<url> https://mirror.example/maven </url></mirror></mirrors></settings>"
    )
    assert zookeeper._mirror_of_settings(settings) == "https://mirror.example/maven"


def test_without_maven_and_repository_the_reason_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("BOKI_MAVEN_REPOSITORY", raising=False)
    monkeypatch.delenv("BOKI_ZOOKEEPER_JARS", raising=False)
    monkeypatch.setattr(zookeeper, "CACHE", tmp_path / "cache" / "1")
    with pytest.raises(ZookeeperMissing, match="no mvn on PATH; no Maven repository is named by BOKI_MAVEN_REPOSITORY"):
        zookeeper.find_jars()
    assert not (tmp_path / "cache" / "1").exists()
