"""Numbers on a command line, in the words of a person: click would call them "integer range" in help and errors."""

from __future__ import annotations

import click


class Whole(click.IntRange):
    """A whole number, perhaps between bounds."""

    name = "whole number"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "N"


class Real(click.FloatRange):
    """A number, perhaps between bounds."""

    name = "number"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "X"
