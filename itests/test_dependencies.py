"""Dependencies are pinned, explained, and come from no particular place."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[1]
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK: Final = (ROOT / "requirements.lock").read_text() + (ROOT / "requirements-spark.lock").read_text()
LOCKED: Final = {
    canonicalize_name(found[1]): found[2] for found in re.finditer(r"^([\w.-]+)==(\S+)", LOCK, re.MULTILINE)
}


def test_what_spark_needs_agrees_with_the_rest() -> None:
    """The lock of the extra, which is installed over the other, repeats what they share."""
    main, spark = (_versions((ROOT / name).read_text()) for name in ("requirements.lock", "requirements-spark.lock"))
    assert main and spark
    assert not {name: (main[name], found) for name, found in spark.items() if main.get(name, found) != found}, (
        "make lock"
    )


def _versions(lock: str) -> dict[str, set[str]]:
    """Of each package the versions that are locked: for several versions of Python there may be several."""
    versions: dict[str, set[str]] = {}
    for found in re.finditer(r"^([\w.-]+)==([^\s;]+)", lock, re.MULTILINE):
        versions.setdefault(canonicalize_name(found[1]), set()).add(found[2])
    return versions


def declared() -> list[Requirement]:
    """Every requirement, of the extras too, but for the extras that name this project itself."""
    lines = [*PROJECT["dependencies"], *(line for extra in PROJECT["optional-dependencies"].values() for line in extra)]
    return [found for found in map(Requirement, lines) if found.name != PROJECT["name"]]


def test_each_is_locked_at_a_version_it_allows() -> None:
    wrong = [
        f"{requirement}: locked {LOCKED.get(canonicalize_name(requirement.name))}"
        for requirement in declared()
        if not requirement.specifier.contains(LOCKED.get(canonicalize_name(requirement.name), "0"))
    ]
    assert not wrong, f"make lock: {wrong}"


def test_each_has_both_bounds() -> None:
    open_ended = [
        str(requirement)
        for requirement in declared()
        if {specifier.operator for specifier in requirement.specifier} != {">=", "<"}
    ]
    assert not open_ended, f"a dependency has a lowest version and one it stays below: {open_ended}"


def test_each_is_explained() -> None:
    page = (ROOT / "docs/dependencies.md").read_text()
    missing = [requirement.name for requirement in declared() if not re.search(rf"\b{requirement.name}\b", page)]
    assert not missing, f"say in docs/dependencies.md why: {missing}"


def test_everything_locked_has_hashes() -> None:
    blocks = re.split(r"^(?=[\w.-]+==)", LOCK, flags=re.MULTILINE)[1:]
    assert len(blocks) >= len(LOCKED) > 0
    assert not [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block]


def test_the_lock_names_no_host_and_no_path() -> None:
    lines = [line for line in LOCK.splitlines() if not line.strip().startswith(("#", "--hash"))]
    assert not [line for line in lines if "/" in line or "@" in line]
    assert "://" not in LOCK and "--index" not in LOCK and "--find-links" not in LOCK
