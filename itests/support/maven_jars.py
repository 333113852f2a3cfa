"""Jars of Java programs that tests start, copied once into a folder of the repository's `.cache`.

    folder = cached(CACHE, pom=POM, checksums=CHECKSUMS)    # raises JarsMissing with every reason

They come by the first that works of: Maven, with whatever repository it is set up with, and a download of the pinned files from
the Maven repository that `BOKI_MAVEN_REPOSITORY` or the mirror in ~/.m2/settings.xml names. A file of checksums has a line
for each jar: its SHA-256, and its path in a Maven repository; the pom names the same versions. The folder appears whole or
not at all, also when several test runs fill it at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import urllib.request
import xml.etree.ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

MAVEN_TIMEOUT_S: Final = 300.0
DOWNLOAD_TIMEOUT_S: Final = 60.0
DOWNLOADS_AT_ONCE: Final = 8


class JarsMissing(Exception):
    """The jars are not there and cannot be brought; the message says why."""


def cached(cache: Path, *, pom: Path, checksums: Path) -> Path:
    """The folder `cache`, filled when it is not there. Raises JarsMissing."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    with (cache.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not cache.is_dir():
            _fill(cache, pom, checksums)
    return cache


def _fill(cache: Path, pom: Path, checksums: Path) -> None:
    reasons = []
    for fill, source in ((_copy_with_maven, pom), (download, checksums)):
        made = Path(tempfile.mkdtemp(dir=cache.parent))
        try:
            fill(made, source)
            made.rename(cache)
            return
        except (OSError, subprocess.SubprocessError, JarsMissing) as error:
            reasons.append(str(error))
            shutil.rmtree(made)
    raise JarsMissing("; ".join(reasons))


def _copy_with_maven(folder: Path, pom: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsMissing("no mvn on PATH")
    # Maven writes below the pom's folder, so it gets a copy.
    with tempfile.TemporaryDirectory() as work:
        copy = shutil.copy(pom, Path(work) / "pom.xml")
        command = [maven, "-B", "-q", "-f", str(copy), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        ran = subprocess.run(
            [*command, f"-DoutputDirectory={folder}"],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=MAVEN_TIMEOUT_S,
        )
    if ran.returncode != 0:
        raise JarsMissing(f"mvn ended with {ran.returncode}: {ran.stdout[-1_000:].strip()}")


def download(folder: Path, checksums: Path) -> None:
    """Brings every file of the list into the folder, checked. Raises JarsMissing, OSError."""
    repository = os.environ.get("BOKI_MAVEN_REPOSITORY") or mirror_of_settings(Path.home() / ".m2" / "settings.xml")
    if repository is None:
        raise JarsMissing("no Maven repository is named by BOKI_MAVEN_REPOSITORY or ~/.m2/settings.xml")
    lines = [line.split() for line in checksums.read_text().splitlines()]

    def bring(line: list[str]) -> None:
        expected, path = line
        data = _fetch(f"{repository.rstrip('/')}/{path}")
        found = hashlib.sha256(data).hexdigest()
        if found != expected:
            raise JarsMissing(f"expected SHA-256 {expected} of {path}, found {found}")
        (folder / Path(path).name).write_bytes(data)

    with ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool:
        list(pool.map(bring, lines))


def _fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT_S) as answer:
        data: bytes = answer.read()
        return data


def mirror_of_settings(settings: Path) -> str | None:
    """The address of the first mirror that Maven's settings name."""
    if not settings.is_file():
        return None
    for element in xml.etree.ElementTree.parse(settings).iter():
        if element.tag.endswith("mirror"):
            for child in element:
                if child.tag.endswith("url") and child.text:
                    return child.text.strip()
    return None
