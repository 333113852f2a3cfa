"""`boki forget ROLE NAME`: what is gone for good is not expected any more.

A bookie is named by its cookie, an engine, sequencer or controller by its registration (`boki_common.metadata.registered`), until
it says goodbye itself. Whoever was killed cannot; this does it for them. What is up is not forgotten: it is stopped first.

A bookie without a cookie is retired: it does not start again on its directory, and nothing that it may have stored is ever
taken for absent. So ledgers that name it are listed first, and only `--with-ledgers` goes on: they lose one copy for good.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import click

from boki_cli.cluster.metadata_option import metadata_option, run_on_metadata
from boki_cli.options import Invocation, command
from boki_cli.wording import counted
from boki_common.bookkeeper import layout
from boki_common.errors import BadVersion, BokiError, CorruptData, InvalidArgument, LedgerError, NoNode
from boki_common.metadata import registered
from boki_common.metadata.membership import members
from boki_common.net.connection import Address

if TYPE_CHECKING:
    from boki_cli.roles import Parts
    from boki_common.metadata.store import MetadataStore

ROLES: Final = ("bookie", "engine", "sequencer", "controller")
READ_AT_ONCE: Final = 64
NAMED: Final = 10
"""Ledgers that a refusal names; the rest is counted."""


class StillNeeded(BokiError):
    """What should be forgotten is up, or ledgers count on it."""


@command(None, "forget", writes=True, short_help="Expect a role or a bookie that is gone for good no more.")
@metadata_option
@click.argument("role", type=click.Choice(ROLES), metavar="ROLE")
@click.argument("name", metavar="NAME")
@click.option("--with-ledgers", is_flag=True, help="Forget a bookie although ledgers have copies there.")
def forget(invocation: Invocation, metadata: str | None, role: str, name: str, with_ledgers: bool) -> int:
    """Expect a bookie, engine, sequencer or controller that is gone for good no more: boki status shows it as down till then.

    NAME is what boki status tells: a bookie's whole id, or the host/address of another role. One that is up is refused:
    stop it first. A bookie that is forgotten never starts again on its directory.

    \b
        boki forget engine node3/10.0.0.3:7040
        boki forget bookie 6f1c1f5e-8e25-4a77-9f38-2f1f0a4bb0d1 --with-ledgers
    """

    async def run(parts: Parts, _: object) -> None:
        if role == "bookie":
            await forget_bookie(parts.metadata, name, with_ledgers=with_ledgers)
        else:
            await forget_role(parts.metadata, role, name)
        if invocation.json:
            invocation.emit({"role": role, "name": name, "forgotten": True})
        else:
            click.echo(f"{role} {name} is not expected any more")

    return run_on_metadata(invocation, metadata, run)


async def forget_role(store: MetadataStore, role: str, name: str) -> None:
    """Removes the registration of a role that is not there. Raises InvalidArgument: no such role is expected; StillNeeded: it
    is up. MetadataError."""
    expected = await registered.registrations(store, role)
    if name not in expected:
        known = f"expected one of {', '.join(expected)}" if expected else f"no {role} is expected"
        raise InvalidArgument(f"{known}, found {name!r}", found=name)
    address = Address.parse(expected[name].address)
    for member in (await members(store, role)).values():
        texts = member.get("addresses") or [member.get("address", "")]
        if address in [Address.parse(str(text)) for text in texts if text]:
            raise StillNeeded(f"{role} {name} is up: stop it (SIGTERM), then it is not expected any more", name=name)
    await registered.forget(store, role, name)


async def forget_bookie(store: MetadataStore, bookie_id: str, *, with_ledgers: bool) -> None:
    """Retires a bookie that is not there, by removing its cookie. Raises InvalidArgument: there is no such bookie; StillNeeded:
    it is up, or ledgers name it. MetadataError."""
    path = layout.cookie_path(bookie_id)
    try:
        version = (await store.get(path)).version
    except NoNode:
        known = ", ".join(await layout.bookie_cookies(store)) or "none"
        raise InvalidArgument(f"expected the id of a bookie ({known}), found {bookie_id!r}", found=bookie_id) from None
    if any([bookie_id in await layout.available_bookies(store, read_only=one) for one in (False, True)]):
        raise StillNeeded(f"bookie {bookie_id} is up: stop it first", name=bookie_id)
    named = [] if with_ledgers else await _ledgers_of(store, bookie_id)
    if named:
        more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
        raise StillNeeded(
            f"{counted(len(named), 'ledger has', 'ledgers have')} copies on bookie {bookie_id}: "
            f"{', '.join(map(str, named[:NAMED]))}{more}. If its disk can be brought back, do that; --with-ledgers gives those "
            "copies up for good",
            name=bookie_id,
        )
    try:
        await store.delete(path, version=version)
    except NoNode:
        pass  # somebody else forgot it: that is what we want
    except BadVersion:
        raise StillNeeded(f"bookie {bookie_id} starts just now: stop it first", name=bookie_id) from None


async def _ledgers_of(store: MetadataStore, bookie_id: str) -> list[int]:
    """The ledgers that name a bookie, ascending. Raises LedgerError for one whose metadata cannot be read: it may name it."""
    ledgers = await layout.list_ledgers(store)
    known = await layout.read_layout(store)

    async def names(ledger_id: int) -> bool:
        from boki_common.bookkeeper import ledger_metadata

        try:
            found = ledger_metadata.decode((await store.get(known.path(ledger_id))).value)
        except NoNode:
            return False  # deleted meanwhile
        except CorruptData as error:
            raise LedgerError(
                f"ledger {ledger_id} may name bookie {bookie_id}: {error}", ledger_id=ledger_id
            ) from error
        return any(bookie_id in bookies for _, bookies in found.ensembles)

    found: list[int] = []
    for begin in range(0, len(ledgers), READ_AT_ONCE):
        some = ledgers[begin : begin + READ_AT_ONCE]
        marks = await asyncio.gather(*map(names, some))
        found += [ledger_id for ledger_id, mark in zip(some, marks, strict=True) if mark]
    return found
