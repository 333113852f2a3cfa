"""One Spark session and one `boki dev` for all tests of the run that want them; without the extra or Java these are skipped, and say so.

Tests that want the session are marked `alone`: run side by side, each of the processes of the run would start a Spark of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import boki
from boki_spark.java import JavaMissing
from boki_spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NewBook = Callable[[], str]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """local[2], with the format `boki`. Never stopped by a test."""
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)
    try:
        session = local_session(tmp_path_factory.mktemp("spark"), master="local[2,3]")
    except JavaMissing as error:
        pytest.skip(str(error))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def dev_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `dev` has its data."""
    return tmp_path_factory.mktemp("dev")


@pytest.fixture(scope="session")
def dev(dev_folder: Path) -> Iterator[str]:
    """The address of a `boki dev`."""
    folder = dev_folder
    command = [sys.executable, "-m", "boki_cli.main", "dev", "--data", str(folder / "data"), "--listen", "127.0.0.1:0"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BOKI_")}
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            found = (re.search(r"boki://[\w.]+:[1-9]\d*", line) for line in process.stdout)
            address = next((one[0] for one in found if one), None)
            assert address is not None, (folder / "log").read_text()
            yield address
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


@pytest.fixture
def client(dev: str) -> Iterator[boki.sync.Client]:
    """A client of `dev`."""
    with boki.sync.connect(dev) as one:
        yield one


_numbers = itertools.count(1)


@pytest.fixture
def name() -> str:
    """The name of a book that no other test has."""
    return f"book-{next(_numbers)}"
