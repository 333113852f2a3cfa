"""Commands run in this process see what a shell would give them."""

from __future__ import annotations

from boki_cli.testing.commands import run_command_line


def test_outputs_and_exit_codes_are_apart() -> None:
    version = run_command_line("--version")
    assert (version.code, version.err) == (0, "")
    assert version.out.startswith("boki, version ")
    wrong = run_command_line("nonsense", stdin=b"x" * 200_000)
    assert (wrong.code, wrong.out) == (2, "")
    assert "no such command 'nonsense'" in wrong.err
