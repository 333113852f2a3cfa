"""`boki forget ROLE NAME`: what is gone for good is not expected any more.

A bookie is named by its cookie, an engine, sequencer or controller by its registration (`boki_common.metadata.registered`), until
it says goodbye itself. Whoever was killed cannot; this does it for them. What is up is not forgotten: it is stopped first.

A bookie without a cookie is retired: it does not start again on its directory, and nothing that it may have stored is ever
taken for absent. So ledgers that name it are listed first, and only `--with-ledgers` goes on: they lose one copy for good, and are
named. `boki drain` retires a bookie without that.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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


class GivenUp(NamedTuple):
    """The copies that are given up with a bookie, by ledger."""

    ledgers: tuple[int, ...] = ()
    """Ledgers that named it."""
    last_copies: tuple[int, ...] = ()
    """Those of them with entries of which all other bookies are gone as well."""
    unreadable: tuple[int, ...] = ()
    """Ledgers whose metadata cannot be read: they may have named it."""

    def lines(self) -> list[str]:
        """Return lines for a person."""
        found = []
        if self.ledgers:
            found.append(
                f"given up: the copies of {counted(len(self.ledgers), 'ledger')} there: {_listed(self.ledgers)}"
            )
        if self.last_copies:
            found.append(
                f"LOST unless another of their bookies returns: entries of {counted(len(self.last_copies), 'ledger')}: "
                f"{_listed(self.last_copies)}"
            )
        if self.unreadable:
            found.append(f"metadata that cannot be read, which may have named it: {_listed(self.unreadable)}")
        return found


def _listed(ledgers: tuple[int, ...]) -> str:
    more = f" and {len(ledgers) - NAMED} more" if len(ledgers) > NAMED else ""
    return ", ".join(map(str, ledgers[:NAMED])) + more


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
        given_up = GivenUp()
        if role == "bookie":
            given_up = await forget_bookie(parts.metadata, name, with_ledgers=with_ledgers)
        else:
            await forget_role(parts.metadata, role, name)
        if invocation.json:
            facts: dict[str, Any] = {"role": role, "name": name, "forgotten": True}
            if role == "bookie":
                facts |= {
                    "ledgers": given_up.ledgers,
                    "last_copies": given_up.last_copies,
                    "unreadable": given_up.unreadable,
                }
            invocation.emit(facts)
        else:
            click.echo("\n".join([f"{role} {name} is not expected any more", *given_up.lines()]))

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


async def forget_bookie(store: MetadataStore, bookie_id: str, *, with_ledgers: bool) -> GivenUp:
    """Retires a bookie that is not there, by removing its cookie; returns what is given up with it. Raises InvalidArgument: there is no
    such bookie; StillNeeded: it is up, or ledgers name it. MetadataError."""
    path = layout.cookie_path(bookie_id)
    try:
        version = (await store.get(path)).version
    except NoNode:
        known = ", ".join(await layout.bookie_cookies(store)) or "none"
        raise InvalidArgument(f"expected the id of a bookie ({known}), found {bookie_id!r}", found=bookie_id) from None
    if any([bookie_id in await layout.available_bookies(store, read_only=one) for one in (False, True)]):
        raise StillNeeded(f"bookie {bookie_id} is up: stop it first", name=bookie_id)
    given_up = await _ledgers_of(store, bookie_id)
    named = given_up.ledgers
    if given_up.unreadable and not with_ledgers:
        raise LedgerError(
            f"ledger {given_up.unreadable[0]} may name bookie {bookie_id}: its metadata cannot be read",
            ledger_id=given_up.unreadable[0],
        )
    if named and not with_ledgers:
        raise StillNeeded(
            f"{counted(len(named), 'ledger has', 'ledgers have')} copies on bookie {bookie_id}: "
            f"{_listed(named)}. If its disk can be brought back, do that; boki drain {bookie_id} has them copied from other bookies "
            "first; --with-ledgers gives those copies up for good",
            name=bookie_id,
        )
    try:
        await store.delete(path, version=version)
    except NoNode:
        pass  # somebody else forgot it: that is what we want
    except BadVersion:
        raise StillNeeded(f"bookie {bookie_id} starts just now: stop it first", name=bookie_id) from None
    return given_up


async def _ledgers_of(store: MetadataStore, bookie_id: str) -> GivenUp:
    """The ledgers that name a bookie, ascending, and those of which no other bookie that is there has all entries."""
    from boki_common.bookkeeper import ledger_metadata
    from boki_ledger.repair.plan import copies_left

    ledgers = await layout.list_ledgers(store)
    known = await layout.read_layout(store)
    there = {
        bookie for read_only in (False, True) for bookie in await layout.available_bookies(store, read_only=read_only)
    }
    named: list[int] = []
    last_copies: list[int] = []
    unreadable: list[int] = []

    async def look(ledger_id: int) -> None:
        try:
            metadata = ledger_metadata.decode((await store.get(known.path(ledger_id))).value)
        except NoNode:
            return  # deleted meanwhile
        except CorruptData:
            unreadable.append(ledger_id)
            return
        members = {bookie for _, bookies in metadata.ensembles for bookie in bookies}
        if bookie_id in members:
            named.append(ledger_id)
            if copies_left(metadata, members - there) < 1:
                last_copies.append(ledger_id)

    for begin in range(0, len(ledgers), READ_AT_ONCE):
        await asyncio.gather(*map(look, ledgers[begin : begin + READ_AT_ONCE]))
    return GivenUp(*(tuple(sorted(one)) for one in (named, last_copies, unreadable)))
