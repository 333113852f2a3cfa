"""Mutations as they are written down: the text of a patch without files and line numbers.

    what is taken out, as docs/defects.md has it
    package path/of/test.py::name_of_test
    -text that is there
    +text that comes in its place
     text that stays, in between
    @@
    -where another edit begins

A blank line ends a mutation. Text may be a part of a line. An edit of `-` alone takes whole lines out; where less is to
go, a bare `+` follows.
"""

from __future__ import annotations

from textwrap import dedent

from itests.mutations.mutation import Mutation


def patches(text: str) -> tuple[Mutation, ...]:
    """All mutations of a text."""
    return tuple(patch(one) for one in text.strip("\n").split("\n\n"))


def patch(text: str) -> Mutation:
    """A single one; it may be indented."""
    name, head, *lines = dedent(text).strip("\n").rstrip(" ").split("\n")
    package, _, test = head.partition(" ")
    edits: list[list[str]] = [[]]
    for line in lines:
        if line == "@@":
            edits.append([])
        else:
            edits[-1].append(line)
    return Mutation(name, package, tuple(_edit(edit) for edit in edits), test)


def _edit(lines: list[str]) -> tuple[str, str]:
    assert all(line[:1] in ("-", "+", " ") for line in lines), lines
    old = "\n".join(line[1:] for line in lines if line[0] != "+")
    if all(line[0] == "-" for line in lines):
        return old + "\n", ""
    return old, "\n".join(line[1:] for line in lines if line[0] != "-")
