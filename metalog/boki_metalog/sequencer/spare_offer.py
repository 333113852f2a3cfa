"""The spare ledger of a sequencer, and its listing: which ledger it would order its next term on.

    join    the incarnation is listed
    offer   a ledger that this incarnation made is there, and listed
    take    the offered ledger is a term's metalog now: its writer
    drop    it is of no use any more; the next offer makes another one

A sequencer writes only what it made, so a spare is offered by its maker alone, and once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from boki_common.errors import BadVersion
from boki_common.logs import get_logger
from boki_common.metadata.membership import Membership
from boki_common.metadata.store import MetadataStore
from boki_ledger.ledgers import Ledgers, LedgerWriter
from boki_metalog.follow.sequencer_member import sequencer_path
from boki_metalog.settings import SequencerSettings
from boki_metalog.terms.term_plan import Candidate

ROLE: Final = "boki.role"
METALOG: Final = b"metalog"
INCARNATION: Final = "boki.incarnation"
"""Custom metadata of the ledgers made here: for people who list them, and for whoever deletes spares that nobody needs."""

_log = get_logger("sequencer")


class SpareOffer:
    """See the module. Invariant: what is listed was made by this incarnation, and is no term's unless it was just taken."""

    def __init__(
        self,
        ledgers: Ledgers,
        incarnation: str,
        settings: SequencerSettings,
        member: Callable[[tuple[int, ...]], bytes],
    ) -> None:
        """`member`: what is listed of a sequencer with these spares."""
        self.writer: LedgerWriter | None = None
        """Of the spare; None: there is none now."""
        self.membership: Membership
        self._ledgers = ledgers
        self._incarnation = incarnation
        self._settings = settings
        self._member = member
        self._listed: bytes = b""
        """What the membership node is known to hold."""

    async def join(self, metadata: MetadataStore) -> Membership:
        """Lists the incarnation, without a spare yet. Raises MetadataUnavailable."""
        self.membership = await Membership.join(metadata, sequencer_path(self._incarnation), self._member(()))
        return self.membership

    @property
    def ledger_id(self) -> int | None:
        return None if self.writer is None else self.writer.ledger_id

    async def offer(self) -> Candidate:
        """A ledger that this incarnation made, listed for the next term. Raises NotEnoughBookies, MetadataUnavailable."""
        if self.writer is None:
            self.writer = await self._ledgers.create(
                replicas=self._settings.replicas,
                acks=self._settings.acks,
                custom={ROLE: METALOG, INCARNATION: self._incarnation.encode()},
                control=True,
            )
        member = self._member((self.writer.ledger_id,))
        if member != self._listed:
            try:
                await self.membership.update(member)
            except BadVersion as error:
                # The membership's own keeper wrote meanwhile. It goes on until the newest value is there.
                _log.debug("the listing was being written already", incarnation=self._incarnation, error=error)
            self._listed = member
        return Candidate(self._incarnation, self.writer.ledger_id)

    def take(self) -> LedgerWriter:
        """It is a metalog from here on."""
        writer, self.writer = self.writer, None
        assert writer is not None, "a term begins on the ledger that was offered"
        return writer

    def drop(self) -> None:
        """Forgets it, without touching it."""
        if self.writer is not None:
            self.writer.abandon()
            self.writer = None
