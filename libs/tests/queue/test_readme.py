"""The program of the README runs against `boki dev`, and is short."""

from __future__ import annotations

from pathlib import Path

import pytest

from libs.tests.readme_programs import check_readme_program


@pytest.mark.processes
def test_the_program_runs_as_it_stands_and_once_more(dev_url: str, tmp_path: Path) -> None:
    check_readme_program("bokiqueue", dev_url, tmp_path, most_lines=15, times=2)
