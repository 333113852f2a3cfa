"""What an administrator and the controller do to logs: roll, move, spread, add, remove. By anybody, with or without a leader.

    changes = LogChanges(metadata, ledgers, rng)
    await changes.roll(0)                     # the next term of log 0, now
    await changes.move(range(100), to=1)
    log = await changes.add(); await changes.spread({0: 1, log: 1}); await changes.remove(0)

Rules:
- Each is a change of terms (`term_change`) with spares of sequencers that are listed and answered a direct call just now. A log
  keeps its sequencer when that lives.
- What may pass (a spare was taken, no standby yet, bookies away) is retried for `retry_for_s`; then its error is
  raised. Each may be repeated, whatever became of it before: what is done is not done again.
- A sequencer that answered is asked to end its term itself, which takes half as long as fencing it and shortens the pause of
  its log. It has `YIELD_TIMEOUT_S`; then, and if nobody is to be asked (`asking=False`), its metalog is fenced and recovered.
- A new log gets its term from a sequencer that stands by, without slots; slots come by `spread` or `move`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeVar

from boki_common import limits
from boki_common.backoff import Backoff
from boki_common.cluster_token import NO_TOKEN, ClusterToken
from boki_common.errors import BadVersion, BokiError, InvalidArgument, NoSequencer
from boki_common.log_pace import LogPace
from boki_common.logs import get_logger
from boki_common.metadata.settle import compare_and_set
from boki_common.metadata.store import MetadataStore
from boki_common.net.connection import Address
from boki_common.retry import retry
from boki_common.runtime.ports import Random
from boki_ledger.ledgers import Ledgers
from boki_metalog.entries.permissions import ADMINISTRATOR
from boki_metalog.follow.sequencer_member import SequencerMember, ask_to_yield, living_sequencers
from boki_metalog.terms import term_plan
from boki_metalog.terms.metadata_tree import VersionedView, ensure_view, read_record
from boki_metalog.terms.term_change import NO_DECISIONS, Decide, Decisions, change_terms
from boki_metalog.terms.term_end import Decision
from boki_metalog.terms.term_plan import Candidate, Offer
from boki_metalog.terms.view import VIEW_PATH, Installed, View, encode_view

T = TypeVar("T")

RETRY_FOR_S: Final = 10.0
YIELD_TIMEOUT_S: Final = 0.5
LOGS_MAX: Final = 256
"""Bound of the logs of one cluster: a view stays small."""

_log = get_logger("log_changes")


class LogChanges:
    """See the module."""

    def __init__(
        self,
        metadata: MetadataStore,
        ledgers: Ledgers,
        rng: Random,
        *,
        retry_for_s: float = RETRY_FOR_S,
        confirm_timeout_s: float = limits.CONNECT_TIMEOUT_S,
        retry_first_s: float = 0.02,
        retry_limit_s: float = 0.5,
        asking: bool = True,
        token: ClusterToken = NO_TOKEN,
        role: str = ADMINISTRATOR,
        without: str = "",
    ) -> None:
        """`without`: the incarnation of a sequencer that gets no term, because it is about to end."""
        self._without = without
        self._token = token
        self._role = role
        self._metadata = metadata
        self._ledgers = ledgers
        self._rng = rng
        self._retry_for_s = retry_for_s
        self._confirm_timeout_s = confirm_timeout_s
        self._retry_first_s = retry_first_s
        self._retry_limit_s = retry_limit_s
        self._retries = LogPace(_log.info, "not yet, trying again")
        self._asking = asking
        self._living: dict[str, SequencerMember] | None = None
        """Who answered just now; None: to be asked."""
        self._answered: dict[str, Address] = {}
        """Where those are who answered last."""

    def close(self) -> None:
        """Write the log line that is held back. Idempotent."""
        self._retries.flush()

    async def roll(self, log: int, *, suspect: int | None = None) -> VersionedView:
        """The log's next term. `suspect`: only if this is still its term; None: the term of now.

        Raises:
            InvalidArgument: no such log. NoSequencer, SpareTaken, RecoveryFailed, MetadataUnavailable, …: not within
                `retry_for_s`. TermRecordConflict, …: a person must look.
        """
        found = await self._look()
        if log not in found.view.logs:
            raise InvalidArgument(f"expected one of the logs {sorted(found.view.logs)}, found {log}", found=log)
        term = found.view.term_of(log) if suspect is None else suspect
        return await self._change(partial(term_plan.replace, log=log, suspect=term), known=found)

    async def give_up(self, log: int, term: int, decision: Decision) -> VersionedView:
        """The log's term ends before an entry of its metalog that nobody can read, and the next one begins (`term_end`).

        Raises:
            InvalidArgument: the entry can be read, is not the first that cannot, or the term is over and its record says otherwise.
                As `roll`.
        """
        found = await self._look()
        if found.view.term_of(log) == term:
            decide = partial(term_plan.replace, log=log, suspect=term)
            found = await self._change(decide, known=found, decisions={term: decision})
        record = await read_record(self._metadata, term)
        if record.given_up is None or record.given_up.first_entry != decision.entry:
            raise InvalidArgument(
                f"term {term} is over, and ends with entry {record.last_entry} of its metalog, as its record says for ever: engines "
                "that could read it went on from there",
                found=decision.entry,
            )
        return found

    async def move(self, slots: Iterable[int], to: int) -> VersionedView:
        """These slots go to one log. Raises as `roll`."""
        return await self._change(partial(term_plan.move, slots=tuple(slots), to=to))

    async def spread(self, weights: Mapping[int, int]) -> VersionedView:
        """Slots by weight, with the least movement; logs that are not named lose theirs. Raises as `roll`."""
        return await self._change(partial(term_plan.spread, weights=dict(weights)))

    async def remove(self, log: int) -> VersionedView:
        """A log gives its slots to the others and leaves; its records stay readable. Raises as `roll`."""
        return await self._change(partial(term_plan.remove, log=log))

    async def add(self, log: int | None = None) -> int:
        """A new log without slots, with a term. `log`: its number; None: the lowest free one. Returns the number.

        Raises:
            InvalidArgument: too many logs. As `roll`; the log is in the view then, and the next sequencer that stands by
                gives it its term.
        """
        number = await self._in_time(partial(self._list_log, log))
        try:
            await self._change(partial(term_plan.replace, log=number, suspect=0))
        except NoSequencer as error:
            raise NoSequencer(
                f"log {number} is listed, without slots; it begins when a sequencer stands by for it; add log {number} again then, "
                f"and it gets its slots: {error}",
                log=number,
            ) from error
        return number

    async def _list_log(self, log: int | None) -> int:
        while True:
            view, version = await ensure_view(self._metadata)
            number = log if log is not None else min(set(range(LOGS_MAX + 1)) - view.logs.keys())
            if not 0 <= number < LOGS_MAX:
                raise InvalidArgument(f"expected log numbers from 0 to {LOGS_MAX - 1}, found {number}", found=number)
            if number in view.logs:
                return number
            try:
                await compare_and_set(self._metadata, VIEW_PATH, encode_view(view.with_logs([number])), version=version)
            except BadVersion:
                continue
            _log.info("log added", log=number)
            return number

    async def _change(
        self, decide: Decide, *, known: VersionedView | None = None, decisions: Decisions = NO_DECISIONS
    ) -> VersionedView:
        """`known`: the view as it was read just now; good for one attempt."""

        async def attempt() -> VersionedView:
            nonlocal known
            start, known = known or await self._look(), None
            return await change_terms(
                metadata=self._metadata,
                ledgers=self._ledgers,
                rng=self._rng,
                decide=decide,
                choose=self._choose,
                yields=self._ask_to_yield if self._asking else None,
                known=start,
                decisions=decisions,
            )

        return await self._in_time(attempt)

    async def _look(self) -> VersionedView:
        """The view, and who lives: both at once. A spare listed before the view was read is looked at after, as each is."""
        living = self._ask_who_lives()
        found, self._living = await asyncio.gather(ensure_view(self._metadata), living)
        return found

    async def _ask_who_lives(self) -> dict[str, SequencerMember]:
        return await living_sequencers(self._metadata, timeout_s=self._confirm_timeout_s, token=self._token)

    async def _choose(self, view: View, logs: tuple[int, ...]) -> Mapping[int, Candidate]:
        if not logs:
            return {}
        living, self._living = self._living, None
        if living is None:
            living = await self._ask_who_lives()
        self._answered = {one: Address.parse(member.address) for one, member in living.items()}
        offers = {one: Offer(member.spares[0], member.log) for one, member in living.items() if one != self._without}
        return term_plan.pair(view, logs, offers)

    async def _ask_to_yield(self, installed: Installed) -> None:
        address = self._answered.get(installed.sequencer)
        if address is None:
            return
        try:
            await ask_to_yield(address, installed.term, timeout_s=YIELD_TIMEOUT_S, token=self._token, role=self._role)
        except BokiError as error:
            _log.info("a term did not end when asked, its metalog is fenced", term=installed.term, error=error)

    async def _in_time(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await retry(
            attempt,
            Backoff(self._retry_first_s, self._retry_limit_s),
            on_failure=lambda error, pause_s: self._retries.say(error=error),
            timeout_s=self._retry_for_s,
        )


async def ensure_logs(metadata: MetadataStore, count: int) -> tuple[int, ...]:
    """At least the logs 0 … `count` - 1 are in the view. Returns those that this call added.

    Before the first term of a cluster the slots are spread evenly over all logs; later `LogChanges.spread` does it.
    """
    while True:
        view, version = await ensure_view(metadata)
        missing = [log for log in range(count) if log not in view.logs]
        if not missing:
            return ()
        wanted = view.with_logs(missing)
        if view.next_term == 1:
            wanted = wanted.spread_at_first(dict.fromkeys(wanted.logs, 1))
        try:
            await compare_and_set(metadata, VIEW_PATH, encode_view(wanted), version=version)
        except BadVersion:
            continue
        return tuple(missing)
