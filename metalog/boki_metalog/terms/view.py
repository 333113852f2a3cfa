"""The view: one small value that says which term of which log orders which slots (DESIGN §5).

`/boki/view`, JSON:

    {"version": 1, "next_term": 8,
     "slots": [[0, 511, 0], [512, 1023, 1]],                        first, last (inclusive), log; ascending, no gaps
     "logs": {"0": {"term": 7, "metalog_ledger": 31, "sequencer": "<incarnation>", "token": "<install>",
                    "start_time_ms": 1767225600000},
              "1": null}}                                           null: no term was installed yet

Rules:
- A log is added as null, with no slots, and gets a term like any other. One that is removed has no slots and leaves `logs`;
  its sealed terms stay readable by their records.
- One swap may install terms of several logs and set their slots: that is how slots move.
- It changes only by compare-and-swap, and the swap that installs a term draws its number from `next_term`.
- `sequencer` made `metalog_ledger` and is the only one that ever writes it. `token` distinguishes one install from another.
- `start_time_ms` is the newest time of the terms this one succeeds: it begins no earlier, and a term without any entry
  passes it on to its record, so that anybody writes the same record.
- A term's slots never change: moving a slot gives new terms to both logs.

Pure: values and their bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from boki_common import limits
from boki_common.errors import DECODE_FAULTS, CorruptData, VersionMismatch
from boki_common.runtime.ports import Buffer
from boki_metalog.terms import slot_rules
from boki_metalog.terms.slot_rules import SlotsOfLog

T = TypeVar("T")

VERSION: Final = 1
VIEW_PATH: Final = "/boki/view"
FIRST_LOG: Final = 0


class SlotRange(NamedTuple):
    """Slots `first` to `last`, both included."""

    first: int
    last: int


class NewTerm(NamedTuple):
    """What a swap installs as a log's next term; its number comes from the view."""

    ledger_id: int
    sequencer: str
    start_time_ms: int


class Installed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The current term of a log, and who orders it."""

    term: int
    metalog_ledger: int
    sequencer: str
    token: str
    start_time_ms: int


class View(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Invariant: `slots` covers every slot once, every log it names is in `logs`, no two logs share a term or a metalog."""

    version: int
    next_term: int
    slots: tuple[SlotsOfLog, ...]
    logs: dict[int, Installed | None]

    def installed(self, log: int) -> Installed | None:
        """The current term of `log`; None when it never had one, or there is no such log."""
        return self.logs.get(log)

    def term_of(self, log: int) -> int:
        """The number of the log's current term; 0 when there is none."""
        installed = self.logs.get(log)
        return 0 if installed is None else installed.term

    def slots_of(self, log: int) -> tuple[SlotRange, ...]:
        """The slots that the log's current term orders."""
        return tuple(SlotRange(one.first, one.last) for one in self.slots if one.log == log)

    def log_of(self, slot: int) -> int:
        """The log that orders a slot."""
        return next(one.log for one in self.slots if one.first <= slot <= one.last)

    @property
    def per_slot(self) -> tuple[int, ...]:
        """The log of each slot."""
        return slot_rules.per_slot(self.slots)

    @property
    def sequencers(self) -> dict[str, int]:
        """The sequencers of all current terms → their logs."""
        return {one.sequencer: log for log, one in sorted(self.logs.items()) if one is not None}

    def with_term(self, log: int, *, ledger_id: int, sequencer: str, token: str, start_time_ms: int) -> View:
        """The view after `log` got its next term."""
        return self.with_terms({log: NewTerm(ledger_id, sequencer, start_time_ms)}, token=token)

    def with_terms(
        self,
        terms: Mapping[int, NewTerm],
        *,
        token: str,
        slots: Sequence[int] | None = None,
        without: Collection[int] = (),
    ) -> View:
        """The view after these logs got their next terms, all at once; numbers are drawn in the order of the logs.

        Args:
            slots: the log of each slot from then on. Each log that gives or takes one must be in `terms` or `without`.
            without: logs that leave the view; they may have no slot any more.
        """
        after = self.per_slot if slots is None else tuple(slots)
        for log in slot_rules.concerned(self.per_slot, after):
            assert log in terms or log in without, f"the slots of log {log} change, so its term must"
        logs = {log: installed for log, installed in self.logs.items() if log not in without}
        term = self.next_term
        for log, new in sorted(terms.items()):
            logs[log] = Installed(term, new.ledger_id, new.sequencer, token, new.start_time_ms)
            term += 1
        return View(VERSION, term, slot_rules.to_ranges(after), logs)

    def with_logs(self, logs: Sequence[int]) -> View:
        """The view with these logs too; they have no slots and no term yet."""
        return View(VERSION, self.next_term, self.slots, {**dict.fromkeys(logs), **self.logs})

    def spread_at_first(self, weights: Mapping[int, int]) -> View:
        """The view of a cluster in which no term was ever installed, with the slots spread: nothing has to be sealed."""
        assert self.next_term == 1, "slots of a term never change"
        return View(VERSION, 1, slot_rules.to_ranges(slot_rules.spread(self.per_slot, weights)), self.logs)


def first_view() -> View:
    """What the first process of a cluster creates: one log with all slots, and no term yet. Same bytes from anybody."""
    return View(VERSION, 1, (SlotsOfLog(0, limits.SLOTS - 1, FIRST_LOG),), {FIRST_LOG: None})


def encode_view(view: View) -> bytes:
    """The bytes of a view: equal views have equal bytes."""
    _check(view)
    return msgspec.json.encode(View(view.version, view.next_term, view.slots, dict(sorted(view.logs.items()))))


def decode_view(data: Buffer) -> View:
    """Reads a view. Raises VersionMismatch, CorruptData."""
    view = decode_versioned(data, View, path=VIEW_PATH, version=VERSION)
    _check(view)
    return view


def decode_versioned(data: Buffer, kind: type[T], *, path: str, version: int, or_versions: tuple[int, ...] = ()) -> T:
    """Reads a JSON value that has a `version` field, of one version or another. Raises VersionMismatch: another version;
    CorruptData: not such a value."""
    try:
        found = msgspec.json.decode(data, type=_Version).version
        if found not in (version, *or_versions):
            raise VersionMismatch(
                f"expected version {version} in {path}, found {found}: upgrade this program",
                expected=version,
                found=found,
            )
        return msgspec.json.decode(data, type=kind)
    except DECODE_FAULTS as error:
        raise CorruptData(f"{path} does not hold what it should: {error}", path=path) from error


class _Version(msgspec.Struct):
    version: int


def _check(view: View) -> None:
    faults = list(_faults(view.next_term, view.slots, view.logs))
    if faults:
        raise CorruptData(f"{VIEW_PATH} cannot be right: {'; '.join(faults)}", path=VIEW_PATH)


def _faults(next_term: int, slots: tuple[SlotsOfLog, ...], logs: Mapping[int, Installed | None]) -> list[str]:
    faults = []
    expected = 0
    for one in slots:
        if one.first != expected or one.last < one.first or one.log not in logs:
            faults.append(f"slots {one.first} to {one.last} of log {one.log} do not follow {expected - 1}")
        expected = one.last + 1
    if expected != limits.SLOTS:
        faults.append(f"slots end at {expected}, not {limits.SLOTS}")
    terms = [installed.term for installed in logs.values() if installed is not None]
    if len(set(terms)) != len(terms) or not all(0 < term < next_term for term in terms) or next_term < 1:
        faults.append(f"terms {sorted(terms)} are not different numbers from 1 to below {next_term}")
    metalogs = [installed.metalog_ledger for installed in logs.values() if installed is not None]
    if len(set(metalogs)) != len(metalogs):
        faults.append(f"metalogs {sorted(metalogs)} are not different ledgers")
    if any(log < 0 for log in logs):
        faults.append(f"logs {sorted(logs)} are not numbered from 0")
    if next_term > limits.TERM_MAX:
        faults.append(f"all {limits.TERM_MAX} terms are used")
    return faults
