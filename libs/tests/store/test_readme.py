"""The program of the README runs against `boki dev`, and is short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from libs.tests.readme_programs import check_readme_program

README = Path(__file__).parents[2] / "bokistore" / "README.md"


@pytest.mark.processes
def test_the_program_runs_as_it_stands(dev_url: str, tmp_path: Path) -> None:
    check_readme_program("bokistore", dev_url, tmp_path, most_lines=15)


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target
