"""Expiry of objects: an object with an expiry time is entered into a collection that no user can name, which a sweep reads.

An entry is `<at_ms>/<name>`. If its object has got another time since, or no longer exists, the entry is dropped when it is due.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from bokilib.records.tags import bucket_of
from bokistore.commit.group_commit import GroupCommit
from bokistore.commit.transactions import Transaction
from bokistore.model.directory_rules import SEPARATOR, TIMES
from bokistore.model.subjects import of_bucket

SWEPT_AT_ONCE: Final = 10_000
"""Entries of one sweep; the next sweep continues."""


async def sweep_all(commits: GroupCommit, now_ms: int) -> list[str]:
    """Delete expired objects; return their names."""
    entries = [id for directory in await commits.views.directories(TIMES) for id in directory.ids]
    due = sorted(
        (int(at_ms), name) for at_ms, _, name in (id.partition(SEPARATOR) for id in entries) if int(at_ms) <= now_ms
    )
    swept = []
    for at_ms, name in due[:SWEPT_AT_ONCE]:
        if await commits.run(partial(_sweep, name, at_ms)):
            swept.append(name)
    return swept


async def _sweep(name: str, at_ms: int, tx: Transaction) -> bool:
    """Drop an entry, and delete the object if this is still its time; return whether it was deleted."""
    view = await tx.view(name)
    tx.enter(TIMES, f"{at_ms}{SEPARATOR}{name}", there=False)
    if not view.exists or view.expires_ms != at_ms:
        return False
    await delete_with_entry(tx, name)
    return True


async def delete_with_entry(tx: Transaction, name: str) -> None:
    """Delete an object, and remove its name from its collection."""
    collection, _, id = name.partition(SEPARATOR)
    if collection and id and id in await tx.bucket(of_bucket(collection, bucket_of(id))):
        tx.enter(collection, id, there=False)
    tx.delete(name)
