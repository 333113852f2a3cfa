"""One Spark session for all tests of the run that want one; without the extra or without Java they are skipped, and say so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from boki_spark.java import JavaMissing
from boki_spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """local[2], with the format `boki`. Never stopped by a test."""
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed: make spark", exc_type=ImportError)
    try:
        session = local_session(tmp_path_factory.mktemp("spark"))
    except JavaMissing as error:
        pytest.skip(str(error))
    yield session
    session.stop()
