"""Which digest the entries of a ledger carry, so that an add that was damaged on its way is refused before it is stored.

The metadata of a ledger names its digest and password. Both are learned at first validation, and for a ledger that was validated
before this process began, or that gets recovery adds first, by reading the metadata when its first add comes: that add and those
that come until the answer is there are stored unchecked, as Apache's bookie stores all. Readers check every entry.

| the ledger's digest | what is checked, by the setting `check_digests` |
|---|---|
| CRC32C, CRC32 | with `crc` and `all`: under a microsecond for 1 KiB |
| HMAC | with `all`: 2 to 3 microseconds for 1 KiB |
| DUMMY, or not named (metadata of version 1) | nothing |

What is learned is kept in memory, for `limits.BOOKIE_LEDGERS_REMEMBERED` ledgers; of a ledger that was forgotten it is learned again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Literal

from boki_bookie import metric_definitions
from boki_common import limits
from boki_common.background_tasks import BackgroundTasks
from boki_common.bookkeeper.digests import Matches, crc32c_matches, matcher_for, sum_of_matching
from boki_common.bookkeeper.layout import read_layout
from boki_common.bookkeeper.ledger_metadata import NO_DIGEST, LedgerMetadata, decode
from boki_common.errors import BokiError, CorruptData, MetadataUnavailable, MetadataUnknown, NoNode
from boki_common.logs import get_logger
from boki_common.metadata.store import MetadataStore
from boki_common.metrics import Metrics

RETRY_S: Final = 1.0
"""After the metadata store did not answer."""

Checked = Literal["none", "crc", "all"]

_CHECKED_KINDS: Final[dict[Checked, tuple[str, ...]]] = {
    "none": (),
    "crc": ("CRC32C", "CRC32"),
    "all": ("CRC32C", "CRC32", "HMAC"),
}

_log = get_logger("bookie")


def _anything(bodies: Sequence[memoryview]) -> bool:
    return True


def matcher_of(metadata: LedgerMetadata, checked: Checked) -> Matches:
    """How the bodies of a ledger are checked, see the table. Pure."""
    kind = metadata.digest_type
    if kind == NO_DIGEST or kind not in _CHECKED_KINDS[checked]:
        return _anything
    return matcher_for(kind, metadata.password)


class LedgerDigests:
    """The checks of all ledgers that get adds."""

    def __init__(self, metadata: MetadataStore, checked: Checked, metrics: Metrics) -> None:
        self._metadata = metadata
        self._checked: Checked = checked
        self._matchers: dict[int, Matches] = {}
        self._reading = 0
        self._tasks = BackgroundTasks()
        self._mismatches = metrics.counter(metric_definitions.DIGEST_MISMATCHES)

    def matches(self, ledger_id: int, body: memoryview) -> bool:
        """Whether the body may be stored: its digest is right, or how to check it is not known (yet)."""
        matcher = self._matchers.get(ledger_id)
        if matcher is None:
            self._begin_to_learn(ledger_id)
            return True
        return matcher((body,)) or self._refuse(ledger_id, body)

    def all_match(self, ledger_id: int, bodies: Sequence[memoryview]) -> bool:
        """Whether each passes `matches`."""
        matcher = self._matchers.get(ledger_id)
        return matcher is not None and matcher(bodies)

    def sums_of(self, ledger_id: int, bodies: Sequence[memoryview]) -> list[int]:
        """crc32c of each of some bodies that passed `all_match`; empty where they would have to be read for that."""
        if self._matchers.get(ledger_id) is not crc32c_matches:
            return []
        return list(map(sum_of_matching, bodies))

    def learn(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """Sets the check that the metadata of a ledger names."""
        self._keep(ledger_id, matcher_of(metadata, self._checked))

    async def close(self) -> None:
        """Learns nothing more."""
        await self._tasks.close()

    def _refuse(self, ledger_id: int, body: memoryview) -> bool:
        self._mismatches.inc()
        entry_id = int.from_bytes(body[8:16], "big", signed=True)
        _log.error(
            "refused an add whose digest does not match: it was damaged on its way, or its writer uses another digest or "
            "password than the metadata of the ledger names",
            ledger_id=ledger_id,
            entry_id=entry_id,
            sent_bytes=len(body),
        )
        return False

    def _begin_to_learn(self, ledger_id: int) -> None:
        if self._checked == "none":
            self._keep(ledger_id, _anything)
        elif self._reading < limits.BOOKIE_DIGESTS_READ:
            self._reading += 1
            self._keep(ledger_id, _anything)  # until the answer is there
            self._tasks.spawn(self._learn(ledger_id), "bookie ledger digest")

    async def _learn(self, ledger_id: int) -> None:
        try:
            path = (await read_layout(self._metadata)).path(ledger_id)
            self.learn(ledger_id, decode((await self._metadata.get(path)).value))
        except NoNode:
            return  # deleted, or not yet to be seen: first validation reports a ledger that is made
        except CorruptData as error:
            _log.error(
                "the metadata of a ledger cannot be read: its adds are not checked", ledger_id=ledger_id, error=error
            )
        except (MetadataUnavailable, MetadataUnknown) as error:
            _log.debug("the metadata store is away: adds are not checked", ledger_id=ledger_id, error=error)
            asyncio.get_running_loop().call_later(RETRY_S, self._matchers.pop, ledger_id, None)
        except BokiError as error:
            _log.warning("adds of a ledger are not checked", ledger_id=ledger_id, error=error)
        finally:
            self._reading -= 1

    def _keep(self, ledger_id: int, matcher: Matches) -> None:
        self._matchers.pop(ledger_id, None)
        if len(self._matchers) >= limits.BOOKIE_LEDGERS_REMEMBERED:
            del self._matchers[next(iter(self._matchers))]
        self._matchers[ledger_id] = matcher
