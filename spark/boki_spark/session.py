"""A Spark session on this machine: for trying things out, tests and the pipeline. Clusters have a session of their own.

Workers run the Python of this process, everything listens on the loopback only, times are UTC, and files that Spark makes lie
in one folder of the caller. `register` is all that a program with a session of its own needs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from boki_spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHORT_RUN: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss2m"
"""Options of Java that halve its processor time in a run of a minute; in longer ones its own choice is faster."""

WORKER_START: Final = "180s"
"""What a Python worker may take to start: 15 s, Spark's own limit, are less than a machine takes whose cores are wanted twenty times."""


def local_session(
    scratch: Path, *, master: str = "local[2]", short: bool = True, options: Mapping[str, str] | None = None
) -> SparkSession:
    """Starts Spark in this process, with the format `boki`, or returns the session that runs already.

    Args:
        scratch: a folder for what Spark writes beside the results.
        short: the run takes a minute or two, not longer: see `SHORT_RUN`.
        options: more of Spark's own.

    Raises:
        JavaMissing. ImportError: without the extra `spark`.
    """
    from pyspark.sql import SparkSession

    from boki_spark import register

    scratch.mkdir(parents=True, exist_ok=True)
    os.environ["JAVA_HOME"] = str(java_home(scratch))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.python.authenticate.socketTimeout": WORKER_START,
        **({"spark.driver.extraJavaOptions": SHORT_RUN} if short else {}),
        **(options or {}),
    }
    builder = SparkSession.builder.master(master).appName("boki")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    register(session)
    return session
