"""One Spark session and one `boki dev` for all tests of a run that need them; without the extra or Java these tests are skipped.

Tests that need the session are marked `alone`, because each process of a parallel run would start a Spark of its own.
"""

from __future__ import annotations

import asyncio
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
from boki_spark.plan.cluster import Cluster, ClusterOptions
from boki_spark.session import JavaMissing, local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NewBook = Callable[[], str]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Start local[2] with the format `boki`. No test may stop it."""
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)
    try:
        session = local_session(tmp_path_factory.mktemp("spark"), master="local[2,3]")
    except JavaMissing as error:
        pytest.skip(str(error))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def dev_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the data of `dev`."""
    return tmp_path_factory.mktemp("dev")


@pytest.fixture(scope="session")
def dev(dev_folder: Path) -> Iterator[str]:
    """Run a `boki dev` and return its address."""
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
    """Return a client of `dev`."""
    with boki.sync.connect(dev) as one:
        yield one


Offload = Callable[[int, Path], str]


@pytest.fixture
def offload(dev: str, dev_folder: Path) -> Offload:
    """Return a function that ends a term of log 0, offloads it into a folder and returns the path of its manifest."""

    def run(term: int, folder: Path) -> str:
        store = f"sqlite://{dev_folder / 'data' / 'metadata.db'}"
        roll = ["log", "roll", "0", "--metadata", store]
        subprocess.run([sys.executable, "-m", "boki_cli.main", *roll], check=True, capture_output=True)
        return asyncio.run(offloaded(ClusterOptions(url=dev), f"file://{folder}", term))

    return run


async def offloaded(where: ClusterOptions, folder: str, term: int) -> str:
    """Offload a sealed term once an index snapshot covers it, and return the path of its manifest."""
    from boki_spark.cold_terms.files import FsspecFiles
    from boki_spark.offload.offloader import Offloader

    cluster = await Cluster.open(where)
    try:
        work = Offloader(cluster, FsspecFiles(), folder, rng=boki.SystemRandom(), retry_for_s=10.0)
        while not (made := await work.offload(term)).manifest:
            assert made.why.startswith("no index snapshot"), made.why
        return made.manifest
    finally:
        await cluster.close()


_numbers = itertools.count(1)


@pytest.fixture
def name() -> str:
    """Return the name of a book that no other test has."""
    return f"book-{next(_numbers)}"
