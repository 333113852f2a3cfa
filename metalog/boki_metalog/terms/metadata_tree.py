"""Reading and creating what the metalog keeps in the metadata store: the view, the term records.

Every function may raise MetadataUnavailable; those that write also MetadataUnknown, and may then simply be repeated: what
they create has the same bytes from anybody. The view's compare-and-swap is in `term_change`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from boki_common.errors import NodeExists, NoNode
from boki_common.metadata.membership import MEMBERS
from boki_common.metadata.store import MetadataStore, ensure_path
from boki_metalog.errors import TermRecordConflict
from boki_metalog.terms.term_record import TERMS_PATH, TermRecord, decode_record, encode_record, term_path
from boki_metalog.terms.view import VIEW_PATH, View, decode_view, encode_view, first_view

SEQUENCER_ROLE: Final = "sequencer"


class VersionedView(NamedTuple):
    """A view and the version it was read at."""

    view: View
    version: int


async def read_view(store: MetadataStore) -> VersionedView:
    """Raises NoNode when no process has created it yet."""
    value, version = await store.get(VIEW_PATH)
    return VersionedView(decode_view(value), version)


async def ensure_view(store: MetadataStore) -> VersionedView:
    """The view; the first process of a cluster creates it, and the folders around it."""
    try:
        return await read_view(store)
    except NoNode:
        await ensure_path(store, TERMS_PATH)
        await ensure_path(store, f"{MEMBERS}/{SEQUENCER_ROLE}")
        try:
            await store.create(VIEW_PATH, encode_view(first_view()))
        except NodeExists:
            pass  # somebody else was first
        return await read_view(store)


async def read_record(store: MetadataStore, term: int) -> TermRecord:
    """Raises NoNode when the term is not sealed."""
    return decode_record((await store.get(term_path(term))).value, term)


async def move_record(store: MetadataStore, term: int, kind: str, *, when: tuple[str, ...]) -> bool:
    """Says that the records of a sealed term are elsewhere now, if they are at one of `when`; whether they are there now.
    Raises NoNode: the term is not sealed; BadVersion: somebody else changed it meanwhile, look again."""
    value, version = await store.get(term_path(term))
    record = decode_record(value, term)
    if record.location.kind in when:
        await store.set(term_path(term), encode_record(record.at(kind)), version=version)
        return True
    return record.location.kind == kind


async def create_record(store: MetadataStore, record: TermRecord) -> None:
    """Creates the record of a sealed term, unless it exists with this content. Raises TermRecordConflict: it has another."""
    try:
        await store.create(term_path(record.term), encode_record(record))
    except NodeExists:
        found = await read_record(store, record.term)
        if not found.same_term_as(record):
            raise TermRecordConflict(
                f"{term_path(record.term)} says {found}, but the closed metalog says {record}: two drivers saw different "
                "ends of one ledger; do not go on before this is explained",
                term=record.term,
            ) from None
