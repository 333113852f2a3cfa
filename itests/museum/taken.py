"""Mutations that the catalogue of defects has already."""

from __future__ import annotations

from itests.mutations.catalogue import MUTATIONS
from itests.mutations.mutation import Mutation


def taken(name: str) -> Mutation:
    """The mutation of that name. Raises KeyError naming it."""
    return {mutation.name: mutation for mutation in MUTATIONS}[name]
