"""The Java that runs Spark, and the script around one that lacks a module."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from boki_spark import session as session_module
from boki_spark.session import JavaMissing, java_home, version_in, version_of, write_script


def fake(folder: Path, prints: str) -> Path:
    """Make a `java` that prints its version, or its other arguments."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/bash\nif [ "$1" = -version ]; then echo \'{prints}\' >&2; else printf "%s\\n" "$@"; fi\n'
    )
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16 LTS', 25),
        ("no such command", 0),
    ],
)
def test_the_version_is_read_from_what_java_prints(printed: str, version: int) -> None:
    assert version_in(printed) == version


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home = fake(tmp_path / "home", 'openjdk version "21.0.1"').parents[1]
    other = fake(tmp_path / "other", 'openjdk version "17.0.1"').parent
    assert java_home(tmp_path, {"JAVA_HOME": str(home), "PATH": str(other)}) == home
    assert java_home(tmp_path, {"PATH": f"{other}:/usr/bin:/bin"}) == other.parent


def test_java_that_is_too_old_is_named_when_no_other_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake(tmp_path / "home", 'java version "1.8.0_402"').parents[1]
    monkeypatch.setattr(session_module, "_wheel", lambda: None)
    with pytest.raises(JavaMissing, match=r"\$JAVA_HOME is Java 8"):
        java_home(tmp_path, {"JAVA_HOME": str(home), "PATH": ""})
    with pytest.raises(JavaMissing, match="no java on PATH"):
        java_home(tmp_path, {"PATH": ""})


def test_the_wheel_is_taken_when_nothing_newer_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = fake(tmp_path / "wheel", 'openjdk version "21.0.8"')
    monkeypatch.setattr(session_module, "_wheel", lambda: wheel)
    home = java_home(tmp_path / "scratch", {"PATH": ""})
    assert home == tmp_path / "scratch" / "java" and version_of(home / "bin" / "java") == 21


def test_the_script_leaves_out_the_module_that_the_wheel_lacks(tmp_path: Path) -> None:
    home = write_script(fake(tmp_path / "wheel", "-"), tmp_path)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main"]
    printed = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert printed.stdout.splitlines() == ["-Xmx1g", "-cp", "a b", "Main"]


def test_what_is_no_program_has_no_version(tmp_path: Path) -> None:
    assert version_of(tmp_path / "nothing") == 0
