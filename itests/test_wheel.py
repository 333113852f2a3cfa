"""The wheel that `make wheel` builds is what the `pip install` lines of README and docs name, and it works where the tree is not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from email.parser import Parser
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]

ROOT: Final = Path(__file__).parents[1]
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME: Final = f"boki-{PROJECT['version']}-py3-none-any.whl"
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("libs/*/README.md"))]
OF_OURS: Final = re.compile(r"pip install ['\"]?([^\s'\"`]*\bboki\b[^\s'\"`]*)")
OTHERS: Final = re.compile(r"pip install ([a-z][a-z0-9-]*)[`;) ]")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(to)], check=True, cwd=ROOT)
    (made,) = to.iterdir()
    return made


def test_pages_install_the_wheel_and_never_the_name() -> None:
    """Whoever registered the name on PyPI would be installed in its place."""
    found = [name for page in PAGES for name in OF_OURS.findall(page.read_text())]
    extras = PROJECT["optional-dependencies"].keys()
    assert found
    for name in found:
        path, bracket, inside = name.partition("[")
        assert path == f"dist/{NAME}", name
        assert not bracket or set(inside.removesuffix("]").split(",")) <= extras, name


def test_other_packages_that_pages_install_are_those_of_extras() -> None:
    known = {re.split(r"[<>=\[]", one)[0] for packages in PROJECT["optional-dependencies"].values() for one in packages}
    found = {name for page in PAGES for name in OTHERS.findall(page.read_text())}
    assert found and found <= known, found - known


def test_it_has_the_extras_and_runs_without_the_tree(wheel: Path, tmp_path: Path) -> None:
    assert wheel.name == NAME
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    assert set(metadata.get_all("Provides-Extra", [])) == PROJECT["optional-dependencies"].keys()
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(tmp_path)]
    subprocess.run([*install, f"{wheel}[zookeeper,uvloop]"], check=True, cwd=tmp_path)
    program = "import boki, boki_cli, boki_spark, bokiflow; print(boki.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)
    help_text = subprocess.run(
        [sys.executable, str(tmp_path / "bin" / "boki"), "offload", "--help"],
        cwd=tmp_path, env=environment, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert "Parquet" in help_text
