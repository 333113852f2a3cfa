"""The collector: it deletes histories and results of ended workflows past their retention, so that a book does not grow (`collect_rules`).

    done = await collector.over(range(64)); done = await collector.checkpoint({partition: claim, …})

- Any process may run it, at any time: each step follows from the log and may be the last one of the process. A repeated append expects the
  record that it replaces, so two collectors do no harm.
- A record is trimmed only after its replacement is in the log, and the end of a workflow in its partition's stream only after the
  workflow's own streams were *seen* to be forgotten.
- The checkpoint of a partition expects the claim of its owner: that of a former owner must not become the newest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import boki
from boki_common.errors import BokiError, Conflict, Trimmed
from boki_common.limits import READ_TAGS
from boki_common.logs import get_logger
from boki_common.metrics import COUNTER, GAUGE, MetricDefinition, Metrics
from bokiflow.client.flow import Flow
from bokiflow.history import history_checkpoint, inspection, instance_state
from bokiflow.history.instance_state import InstanceState, PartitionFold, state_after
from bokiflow.model import records
from bokiflow.model.flow_events import (
    INCOMING,
    PICKER,
    AnyFlowEvent,
    Checkpointed,
    Claimed,
    Ended,
    Resulted,
    Started,
    Tombed,
)
from bokiflow.model.history_fold import History
from bokiflow.model.record_batcher import RECORD_BYTES, size_of
from bokiflow.retention import collect_rules as rules
from bokiflow.retention.collect_rules import (
    AGES,
    HISTORIES,
    EndedWorkflow,
    Excess,
    FenceContent,
    Histories,
    Measured,
    TrimMarks,
)
from bokilib.append.batches import Batches
from bokilib.append.log import Log
from bokilib.records import tags
from bokilib.records.contribution import Contribution, joined
from bokilib.retention.checkpoint_rules import Ages
from bokilib.retention.trimmer import Trimmer

AT_ONCE: Final = 1_024
"""Ended workflows that are checked together."""
HISTORIES_AT_ONCE: Final = 32
"""Histories of ended workflows that are rewritten together."""
BLOCKED_AGES: Final = 2
"""Ages of a term after which a workflow's owner has recorded again that it is blocked."""
STREAMS: Final = 8_192
"""Streams to trim that are collected before they are trimmed together."""


# -- metrics

COLLECT_ROUNDS: Final = MetricDefinition(
    "boki_flow_collect_rounds_total",
    COUNTER,
    "",
    "Rounds of retention of workflows in this process.",
)
COLLECT_CHECKED: Final = MetricDefinition(
    "boki_flow_collect_checked_total",
    COUNTER,
    "",
    "Ends of workflows that rounds checked; an end counts in each round that checks it.",
)
COLLECTED: Final = MetricDefinition(
    "boki_flow_collected_total",
    COUNTER,
    "",
    "Results of rounds: histories trimmed, ends repeated (tombs), ids forgotten, partitions checkpointed, histories rewritten.",
    ("what",),
)
COLLECT_LAG: Final = MetricDefinition(
    "boki_flow_collect_lag_seconds",
    GAUGE,
    "seconds",
    "Seconds by which the oldest end was overdue to be repeated or forgotten when the last round began; 0: none was.",
)
METRIC_NAMES: Final = {"ended": "histories", "carried": "written_anew"}
"""Labels of fields of `Collected` in the metric, where they differ."""

log = get_logger(__name__)


class Collected(NamedTuple):
    """The result of one round of retention.

    Attributes:
        ended: histories that were trimmed.
        tombs: ends that were repeated.
        forgotten: ids that were forgotten and are free again.
        checkpoints: partitions that were checkpointed.
        carried: histories of running workflows that were rewritten.
        locks: locks whose queue was rewritten.
    """

    ended: int = 0
    tombs: int = 0
    forgotten: int = 0
    checkpoints: int = 0
    carried: int = 0
    locks: int = 0

    def plus(self, other: Collected) -> Collected:
        """Return the sum of both results."""
        return Collected(*(one + more for one, more in zip(self, other, strict=True)))


class CollectMetrics:
    """The metrics of a collector, counted per round and per chunk of a round."""

    def __init__(self, metrics: Metrics | None) -> None:
        registry = metrics or Metrics()
        self._rounds: Final = registry.counter(COLLECT_ROUNDS)
        self._checked: Final = registry.counter(COLLECT_CHECKED)
        self._collected: Final = registry.counter(COLLECTED)
        self._lag: Final = registry.gauge(COLLECT_LAG)

    def checked(self, count: int) -> None:
        """Count ends that were checked."""
        self._checked.inc(count)

    def overdue(self, ms: int) -> None:
        """Record by how many milliseconds the oldest end was overdue when a round began."""
        self._lag.set(max(0, ms) / 1_000)

    def round(self, done: Collected) -> None:
        """Count a finished round, and its result."""
        self._rounds.inc()
        for name, count in done._asdict().items():
            self._collected.labels(METRIC_NAMES.get(name, name)).inc(count)


class Collector:
    """The collector of one group of workers.

    Attributes:
        ages: the retention.
        every_s: seconds between rounds, for the worker that runs them.
        at_once: the lock that a round holds, so that there is one at a time.
        metrics: the metrics of rounds.
    """

    def __init__(
        self,
        opened: Log,
        group: str,
        ages: Ages,
        every_s: float = 0.0,
        metrics: Metrics | None = None,
        histories: Histories = HISTORIES,
    ) -> None:
        self.metrics: Final = CollectMetrics(metrics)
        self.ages: Final = ages
        self._histories: Final = histories
        self._rewritten: Final[deque[tuple[int, int]]] = deque()
        """Times and bytes of the histories of ended workflows that were rewritten within the life of a term."""
        self.every_s: Final = every_s
        self.at_once: Final = asyncio.Lock()
        self._log: Final = opened
        self._group: Final = group
        self._trimmer: Final = Trimmer(opened.book)
        self._measured: Final[dict[int, Measured]] = {}
        self._told = False
        """A warning has said that histories are trimmed early."""
        self._ended: Final[dict[int, int]] = {}
        """The place up to which `_trim_histories` has read the ends of each partition."""
        self._folds: Final[dict[int, PartitionFold]] = {}
        self._claims: Final[dict[int, int]] = {}
        """The claim of each partition up to which older claims are trimmed."""

    # -- what ended

    async def over(self, partitions: Sequence[int]) -> Collected:
        """Run one round for the ended workflows of partitions, whether this process owns them or not."""
        place, now_ms = await self._log.book.now(), await self._log.newest_ms()
        ended = await self._trim_histories(partitions, place, now_ms)
        ended += await self._trim_beyond_bound(partitions, place, now_ms)
        done = Collected(ended=ended)
        chunk: list[EndedWorkflow] = []
        marks = TrimMarks()
        pressing: bool | None = None
        overdue_ms = 0
        async for record, events in self._read({tags.flow_done(self._group, one): one for one in partitions}, 1, place):
            age_ms = now_ms - record.time_ms
            if pressing is None:
                pressing = age_ms >= self.ages.carry_ms
                overdue_ms = age_ms - rules.looked_at(self.ages, pressing=False)
            if age_ms < rules.looked_at(self.ages, pressing=pressing):
                break
            chunk += self._over_in(record, events, partitions)
            if len(chunk) >= AT_ONCE:
                done, chunk = done.plus(await self._chunk(chunk, marks, place, now_ms, pressing=pressing)), []
        done = done.plus(await self._chunk(chunk, marks, place, now_ms, pressing=bool(pressing)))
        for partition, keep in marks.all():
            self._trimmer.add(tags.flow_done(self._group, partition), keep)
        await self._trimmer.flush()
        self.metrics.overdue(overdue_ms)
        return done

    def _over_in(
        self, record: boki.Record, events: Iterable[AnyFlowEvent], partitions: Sequence[int]
    ) -> list[EndedWorkflow]:
        found = [rules.ended_workflow(record.seqnum, record.time_ms, event) for event in events]
        return [
            one
            for one in found
            if one is not None and one.partition in partitions and one.ended.group in ("", self._group)
        ]

    async def _trim_histories(self, partitions: Sequence[int], place: int, now_ms: int) -> int:
        """Trim the histories whose retention has passed, from the ends that earlier rounds left; return how many."""
        count = 0
        by_place: dict[int, list[int]] = {}
        for partition in partitions:
            by_place.setdefault(self._ended.get(partition, 0), []).append(partition)
        for last, some in by_place.items():
            reached = place
            async for record, events in self._read(
                {tags.flow_done(self._group, one): one for one in some}, last + 1, place
            ):
                several = self._over_in(record, events, some)
                fates = [rules.fate_of_history(one, now_ms, self._histories, self.ages) for one in several]
                if "keep" in fates:
                    reached = record.seqnum - 1
                    break
                for one, fate in zip(several, fates, strict=True):
                    if fate == "trim":
                        count += 1
                        self._trim_history(one, record.seqnum + 1)
                if len(self._trimmer) >= STREAMS:
                    await self._trimmer.flush()
            await self._trimmer.flush()
            self._ended.update(dict.fromkeys(some, reached))
        return count

    async def _trim_beyond_bound(self, partitions: Sequence[int], place: int, now_ms: int) -> int:
        """Count the histories of workflows that ended since the last round; trim the oldest beyond the bound in bytes.

        Returns:
            The number of trimmed histories.
        """
        for partition in self._measured.keys() - set(partitions):
            del self._measured[partition]  # another worker owns it
        by_place: dict[int, list[int]] = {}
        for partition in partitions:
            measured = self._measured.setdefault(partition, Measured())
            by_place.setdefault(measured.last, []).append(partition)
        for last, some in by_place.items():
            streams = {tags.flow_done(self._group, one): one for one in some}
            async for record, events in self._read(streams, last + 1, place):
                for one in self._over_in(record, events, some):
                    self._measured[one.partition].ended(one)
            for partition in some:
                self._measured[partition].last = place
        for measured in self._measured.values():
            for failed, kept_ms in ((False, self._histories.ms), (True, self._histories.failed_ms)):
                # Trimmed by age, or rewritten within a bound of its own.
                oldest_ms = now_ms - min(kept_ms, self.ages.carry_ms)
                measured.forget(oldest_ms // rules.MINUTE_MS, failed=failed)
        count = 0
        for excess in rules.beyond(self._measured.values(), self._histories.bytes):
            count += await self._trim_excess(excess)
        await self._trimmer.flush()
        if count:
            self._tell_beyond_bound(count)
        return count

    async def _trim_excess(self, excess: Excess) -> int:
        """Trim the oldest histories of one kind; return how many."""
        spans = {at: span for at, one in self._measured.items() if (span := one.ends_of(excess)) is not None}
        streams = {tags.flow_done(self._group, partition): partition for partition in spans}
        if not spans:
            return 0
        first, last = min(span[0] for span in spans.values()), max(span[1] for span in spans.values())
        left, count, reached = excess.bytes, 0, excess.minute + 1
        async for record, events in self._read(streams, first, last):
            ended = self._over_in(record, events, list(spans))
            several = [one for one in ended if self._measured[one.partition].has(one, excess)]
            if several and several[0].done_ms // rules.MINUTE_MS == excess.minute:
                if left <= 0:
                    reached = excess.minute
                    break
                left -= sum(one.ended.history_bytes for one in several)
            for one in several:
                self._trim_history(one, record.seqnum + 1)
            for partition in {one.partition: None for one in several}:
                self._measured[partition].trimmed([one for one in several if one.partition == partition])
            count += len(several)
            if len(self._trimmer) >= STREAMS:
                await self._trimmer.flush()
        for measured in self._measured.values():
            measured.forget(reached, failed=excess.failed)
        return count

    def _tell_beyond_bound(self, count: int) -> None:
        """Log that histories are trimmed early: as a warning the first time."""
        tell, self._told = log.info if self._told else log.warning, True
        tell(
            "histories trimmed early: more ended than fit the bound; their steps are not listed any more, results stay; "
            "a worker takes history_bytes=",
            histories=count,
            bytes=self._histories.bytes,
        )

    def _trim_history(self, one: EndedWorkflow, keep: int) -> None:
        self._trimmer.add(tags.flow_history(one.id), keep)
        for tag in history_checkpoint.output_tags(one.id, one.ended.topics):
            self._trimmer.add(tag, keep)

    async def _outliving(self, several: Sequence[EndedWorkflow], now_ms: int) -> None:
        """Rewrite histories that are kept for longer than a term lives, before the ends of their workflows are repeated."""
        while self._rewritten and self._rewritten[0][0] <= now_ms - self.ages.carry_ms:
            self._rewritten.popleft()
        fates = [rules.outlives(one, now_ms, self._histories, self.ages) for one in several]
        for one in [one for one, fate in zip(several, fates, strict=True) if fate == "trim"]:
            self._trim_history(one, one.seqnum + 1)
        kept = [one for one, fate in zip(several, fates, strict=True) if fate == "rewrite"]
        for at in range(0, len(kept), HISTORIES_AT_ONCE):
            await asyncio.gather(*(self._rewrite(one, now_ms) for one in kept[at : at + HISTORIES_AT_ONCE]))

    async def _rewrite(self, one: EndedWorkflow, now_ms: int) -> None:
        place, fence = records.InstanceStreams(one.id, self._group), {tags.flow_own(one.id): one.seqnum}
        covers = await self._log.book.now()
        try:
            parts = history_checkpoint.checkpoint_parts(
                place, await inspection.history(self._log, one.id, covers), covers
            )
            size = sum(size_of(event) for part in parts for event in part.events)
            if sum(before for _, before in self._rewritten) + size > self._histories.rewritten_bytes:
                log.warning("history trimmed early: a worker rewrites no more a day", id=one.id, bytes=size)
            else:
                self._rewritten.append((now_ms, size))
                for part in parts:
                    await self._log.append(Contribution(part.tags, fence, part.events), seen=covers, settle=True)
        except (Conflict, Trimmed):
            return  # the history is trimmed, or another worker rewrites it
        except inspection.UNREADABLE as error:
            log.warning("history not rewritten: this program cannot read it", id=one.id, error=str(error))
            return
        self._trim_history(one, covers + 1)

    async def _chunk(
        self, chunk: Sequence[EndedWorkflow], marks: TrimMarks, place: int, now_ms: int, *, pressing: bool
    ) -> Collected:
        """Apply the rules to some ended workflows, in the order in which they are in the partitions' streams."""
        if not chunk:
            return Collected()
        self.metrics.checked(len(chunk))
        owns = await self._owns([one.id for one in chunk], place)
        fates = [rules.fate(one, owns[one.id], now_ms, self.ages, pressing=pressing) for one in chunk]
        await self._outliving([one for one, fate in zip(chunk, fates, strict=True) if fate == "tomb"], now_ms)
        tombed = await self._append_tombs([one for one, fate in zip(chunk, fates, strict=True) if fate == "tomb"])
        going = [one for one, fate in zip(chunk, fates, strict=True) if fate == "forget"]
        for one, fate in zip(chunk, fates, strict=True):
            if fate == "trim":
                self._trimmer.add(tags.flow_own(one.id), owns[one.id].newest)
        gone = [one for one, fate in zip(chunk, fates, strict=True) if fate == "drop" and owns[one.id].gone]
        for one in going:
            self._trimmer.add_together(
                {tags.flow_own(one.id): place + 1, tags.flow_history(one.id): place + 1}, forget=True
            )
        for one in [*going, *gone]:  # gone: a process forgot the workflow, and died before it trimmed these streams
            for tag in history_checkpoint.output_tags(one.id, self._topics(one)):
                self._trimmer.add(tag, place + 1, forget=True)
        await self._trimmer.flush()
        for tag in dict.fromkeys(tag for one in [*going, *gone, *tombed] for tag in self._attributes(one)):
            await self.tidy(tag)
        left = await self._owns([one.id for one in going], await self._log.book.now())
        forgotten = {one.id for one in going if left[one.id].gone}
        again = {(one.id, one.seqnum) for one in tombed}
        for one, fate in zip(chunk, fates, strict=True):
            dropped = (
                fate in ("drop", "trim") or (one.id, one.seqnum) in again or (fate == "forget" and one.id in forgotten)
            )
            (marks.dropped if dropped else marks.kept)(one.partition, one.seqnum)
        return Collected(tombs=len(tombed), forgotten=len(forgotten))

    @staticmethod
    def _topics(one: EndedWorkflow) -> list[str]:
        return [*one.ended.topics, *([inspection.RESULT] if one.large else [])]

    @staticmethod
    def _attributes(one: EndedWorkflow) -> list[str]:
        return records.attribute_tags(one.id, one.ended.attributes)

    async def _append_tombs(self, several: Sequence[EndedWorkflow]) -> list[EndedWorkflow]:
        """Repeat the ends of workflows; return those that were. The others were repeated or forgotten by another process."""
        tombed: list[EndedWorkflow] = []
        made = [(one, rules.tomb(one, await self._apart(one) if rules.is_large(one) else 0)) for one in several]
        for batch in rules.batches(made):
            left = batch
            while left:
                expect: dict[str, int | None] = {tags.flow_own(one.id): one.seqnum for one, _ in left}
                done = [tags.flow_done(self._group, one.partition) for one, _ in left]
                attributes = [tag for one, _ in left for tag in self._attributes(one)]
                joins = tuple(dict.fromkeys([*expect, *done, *attributes]))
                try:
                    seqnum = await self._log.append(
                        Contribution(joins, expect, tuple(event for _, event in left)), settle=True
                    )
                except Conflict as conflict:
                    moved = self._log.moved(expect, conflict)
                    if not moved:
                        raise
                    left = [(one, event) for one, event in left if tags.flow_own(one.id) not in moved]
                    continue
                for one, event in left:
                    self._trimmer.add(tags.flow_own(one.id), seqnum)
                    if event.large:
                        self._trimmer.add(tags.flow_output(one.id, inspection.RESULT), event.large)
                    tombed.append(one)
                break
        return tombed

    async def _apart(self, one: EndedWorkflow) -> int:
        """Append a large outcome again, in a record of its own; return the seqnum."""
        state = InstanceState(one.seqnum, "", one.ended, one.large)
        ended = await inspection.outcome_of(self._log, one.id, state)
        assert ended is not None
        tag = tags.flow_output(one.id, inspection.RESULT)
        part = Contribution((tag,), {tags.flow_own(one.id): one.seqnum}, (Resulted(one.id, ended.outcome),))
        try:
            return await self._log.append(part, settle=True)
        except Conflict:
            return one.large or one.seqnum  # the append of its tomb will fail, too

    async def _owns(self, ids: Sequence[str], place: int) -> dict[str, FenceContent]:
        """Read the fences of workflows as of a place."""
        found = dict.fromkeys(ids, FenceContent())
        names: dict[str, list[str]] = {}
        for id in found:
            names.setdefault(tags.flow_own(id), []).append(id)
        wanted = list(names)
        for at in range(0, len(wanted), READ_TAGS):
            some = wanted[at : at + READ_TAGS]
            async for item in self._log.book.read(tags=some, start=1, stop=place + 1):
                if isinstance(item, boki.Gap):
                    for id in [id for tag in some if item.tag in (None, tag) for id in names[tag]]:
                        found[id] = found[id]._replace(emptied=True)
                    continue
                for event in PICKER.of(item.seqnum, await self._log.open(item)):
                    if isinstance(event, Started | Claimed | Ended | Tombed) and event.id in found:
                        state = state_after(item.seqnum, [event])
                        assert state is not None
                        start = state.ended.start if state.ended is not None else 0
                        oldest = found[event.id].oldest or item.seqnum
                        end = rules.ended_workflow(item.seqnum, item.time_ms, event)
                        found[event.id] = FenceContent(item.seqnum, start=start, oldest=oldest, end=end)
        return found

    async def tidy(self, tag: str) -> None:
        """Trim the stream of an attribute up to the first record that is still needed.

        Each of its records is in a workflow's fence, too, and the fence is trimmed when the end is repeated. So a record that is older
        than all records of the fence is not needed.
        """
        place = await self._log.book.now()
        keep = place + 1
        some: list[tuple[int, str]] = []
        async for record, events in self._read({tag: 0}, 1, place):
            for event in events:
                if isinstance(event, Started | Claimed | Tombed) and tag in self._joined_by(event):
                    some.append((record.seqnum, event.id))
            if len(some) >= READ_TAGS:
                kept, some = await self._first_kept(some, place), []
                if kept:
                    keep = kept
                    break
        self._trimmer.add(tag, await self._first_kept(some, place) or keep)
        await self._trimmer.flush()

    async def _first_kept(self, some: Sequence[tuple[int, str]], place: int) -> int:
        """Return the first of some records of a stream that is still needed; 0 if none is."""
        owns = await self._owns([id for _, id in some], place)
        return min((seqnum for seqnum, id in some if 0 < owns[id].oldest <= seqnum), default=0)

    def _joined_by(self, event: Started | Claimed | Tombed) -> list[str]:
        attributes = event.ended.attributes if isinstance(event, Tombed) else event.attributes
        return records.attribute_tags(event.id, attributes)

    # -- partitions

    async def checkpoint(self, claims: Mapping[int, int]) -> int:
        """Checkpoint the partitions that need it, and trim the starts and signals before the checkpoints; return how many.

        Args:
            claims: the seqnum of the claim of each partition that the caller owns.

        Raises:
            Conflict: another worker owns one of them now.
        """
        place, now_ms = await self._log.book.now(), await self._log.newest_ms()
        await self._read_on(list(claims), place)
        due = [
            one
            for one in claims
            if rules.is_due(
                self._folds[one].starts,
                len(self._folds[one].ids),
                self._folds[one].since_ms,
                now_ms,
                self.ages.carry_ms,
            )
        ]
        ids = [id for one in due for id in self._folds[one].ids]
        unreadable: dict[str, BokiError] = {}
        for id, state in zip(ids, await inspection.newest_of(self._log, ids, unreadable=unreadable), strict=True):
            if id not in unreadable and (state is None or state.ended is not None):
                del self._folds[tags.partition_of(id)].ids[id]
        held_back = await self._sent_before(due, place, now_ms)
        await self._append(due, claims, place)
        for one in due:
            seqnum, time_ms = held_back.get(one, (place + 1, 0))
            self._trimmer.add(tags.flow_part(self._group, one), place + 1)
            self._trimmer.add(tags.flow_to(self._group, one), seqnum)
            self._folds[one].sent_ms = time_ms
            if not self._folds[one].ids:
                self._folds[one].drop()
        await self._trimmer.flush()
        return len(due)

    async def _read_on(self, partitions: Sequence[int], place: int) -> None:
        by_place: dict[int, list[int]] = {}
        for one in partitions:
            by_place.setdefault(self._folds.setdefault(one, PartitionFold()).position, []).append(one)
        for last, some in by_place.items():
            sent = {tags.flow_to(self._group, one): one for one in some}
            wanted = [*(tags.flow_part(self._group, one) for one in some), *sent]
            async for item in self._log.book.read(tags=wanted, start=last + 1, stop=place + 1):
                if isinstance(item, boki.Gap):
                    continue  # a trimmed workflow is in a checkpoint, or has ended
                for tag in item.tags:
                    if tag in sent:
                        self._folds[sent[tag]].sent(item.time_ms)
                instance_state.apply(self._folds, self._group, item.seqnum, item.time_ms, await self._log.open(item))
            for one in some:
                self._folds[one].position = place
                self._ended[one] = max(self._ended.get(one, 0), self._folds[one].collected)

    async def _sent_before(self, partitions: Sequence[int], place: int, now_ms: int) -> dict[int, tuple[int, int]]:
        """Trim events that were sent to workflows that do not run.

        Returns:
            For each partition whose stream has to stay, the seqnum from where on, and the time of that record.
        """
        held_back: dict[int, tuple[int, int]] = {}
        sent: list[tuple[boki.Record, str]] = []
        async for record, events in self._read({tags.flow_to(self._group, one): one for one in partitions}, 1, place):
            for event in events:
                if isinstance(event, (*INCOMING, Checkpointed)):  # a checkpoint may be of a fork that never began
                    fold = self._folds.get(tags.partition_of(event.id))
                    if fold is not None and event.id not in fold.ids:
                        sent.append((record, event.id))
        owns = await self._owns([id for _, id in sent], place)
        for record, id in sent:
            fate = rules.fate_of_sent(owns[id], record.seqnum, record.time_ms, now_ms, self._histories, self.ages)
            if fate == "hold":
                held_back.setdefault(tags.partition_of(id), (record.seqnum, record.time_ms))
            elif fate != "pass":
                self._trimmer.add(tags.flow_history(id), record.seqnum + 1, forget=fate == "forget")
        return held_back

    async def _append(self, due: Sequence[int], claims: Mapping[int, int], place: int) -> None:
        """Append the checkpoints of partitions, several in one record as far as they fit."""
        batches: Batches[Contribution, None] = Batches(RECORD_BYTES)
        for one in due:
            ids = self._folds[one].ids
            if not ids:
                continue
            events = instance_state.checkpoint(self._group, one, ids, place, self._ended.get(one, 0))
            tag = tags.flow_part(self._group, one)
            expect: dict[str, int | None] = {tags.flow_partition_owner(self._group, one): claims[one]}
            for event in events:
                if len(events) > 1:
                    batches.close()
                batches.add(Contribution((tag,), expect, (event,)), size_of(event))
        while batches:
            await self._log.append(joined(batches.take().items), seen=place, settle=True)

    # -- running workflows

    async def trim_history(self, place: records.InstanceStreams, history: History, claim: int) -> None:
        """Trim the part of a workflow's history that its checkpoint replaces."""
        history_checkpoint.trim_history(self._trimmer, place, history, claim)
        await self._trimmer.flush()
        await self.tidy_all([history.started])

    async def tidy_all(self, several: Iterable[Started]) -> None:
        """Trim the streams of the attributes of workflows that were checkpointed."""
        streams = [tag for one in several for tag in records.attribute_tags(one.id, one.attributes)]
        for tag in dict.fromkeys(streams):
            await self.tidy(tag)

    async def trim_blocked(self, now_ms: int) -> None:
        """Trim records of blocked workflows that are so old that the owners of the partitions have recorded them again."""
        tag, place = tags.flow_blocked(self._group), await self._log.book.now()
        keep = place + 1
        async for record, _ in self._read({tag: 0}, 1, place):
            if now_ms - record.time_ms < BLOCKED_AGES * self.ages.carry_ms:
                keep = record.seqnum
                break
        self._trimmer.add(tag, keep)
        await self._trimmer.flush()

    async def trim_claims(self, claims: Mapping[int, int]) -> None:
        """Trim the claims of partitions that are older than these."""
        for partition, claim in claims.items():
            if self._claims.get(partition) != claim:
                self._claims[partition] = claim
                self._trimmer.add(tags.flow_partition_owner(self._group, partition), claim)
        await self._trimmer.flush()

    async def _read(
        self, streams: Mapping[str, int], start: int, place: int
    ) -> AsyncIterator[tuple[boki.Record, list[AnyFlowEvent]]]:
        """Yield the records of streams from one place to another, without those that are trimmed."""
        if not streams:
            return
        async for item in self._log.book.read(tags=list(streams), start=start, stop=place + 1):
            if isinstance(item, boki.Record):
                yield item, PICKER.of(item.seqnum, await self._log.open(item))


async def collect(flow: Flow, ages: Ages = AGES, histories: Histories = HISTORIES) -> Collected:
    """Run one round of retention for the ended workflows of a group; any process may, see also `Worker.collect`.

    Running workflows, and the checkpoints of partitions that list them, are left to workers, which collect by themselves.

    Args:
        flow: the group.
        ages: the retention of results and ids.
        histories: the retention of histories.

    Returns:
        The result of the round.
    """
    return await Collector(flow.log, flow.group, ages, histories=histories).over(range(tags.PARTITIONS))
