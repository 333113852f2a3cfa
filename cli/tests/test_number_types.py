"""What stands for a number in help and in errors is a person's word."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from boki_cli.number_types import Real, Whole


@click.command()
@click.option("--count", type=Whole(1, 9))
@click.option("--minutes", type=Real(0.5))
def counted(count: int | None, minutes: float | None) -> None:
    click.echo(f"{count} {minutes}")


def test_help_shows_a_letter() -> None:
    text = CliRunner().invoke(counted, ["--help"]).output
    assert "--count N" in text and "[1<=x<=9]" in text
    assert "--minutes X" in text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--count", "x"], "'x' is not a valid whole number."),
        (["--minutes", "soon"], "'soon' is not a valid number."),
        (["--count", "10"], "10 is not in the range 1<=x<=9."),
        (["--count", "3", "--minutes", "1"], "3 1.0\n"),
    ],
)
def test_numbers_are_checked(arguments: list[str], expected: str) -> None:
    assert expected in CliRunner().invoke(counted, arguments).output
