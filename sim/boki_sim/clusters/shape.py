"""What a seed's cluster looks like: how many of each role, settings, latencies. Small sizes, so that seconds of virtual
time see full segments, rolled shards, evicted caches and checkpoints.

Pure: everything follows from the numbers given.
"""

from __future__ import annotations

import random  # noqa: TID251 - the type; the generators come from the seed
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from boki_bookie.settings import BookieSettings
from boki_common.limits import KIB, MIB, REQUEST_AGE_S
from boki_ledger.settings import LedgerSettings
from boki_logbook.settings import EngineSettings
from boki_metalog.settings import SequencerSettings
from boki_sim.faults.faults import Targets
from boki_sim.world.network import Weather


@dataclass(frozen=True, slots=True)
class Shape:
    """One cluster and its weather."""

    bookies: int
    sequencers: int
    engines: int
    clients: int
    bookie: BookieSettings
    ledger: LedgerSettings
    sequencer: SequencerSettings
    engine: EngineSettings
    weather: Weather
    flush_s: float
    metadata_s: float
    logs: int = 1
    controllers: int = 0
    index_slots: tuple[str, ...] = ()
    """Of each engine; () if all of them index all."""
    index_files: bool = False
    """Engines move parts of their index to files."""
    clock_rate: float = 1.0
    """How fast wall clocks run, beside virtual time: an hour of theirs passes within a run where it is high."""
    quick_disks: bool = False
    """Flushes of bookies take no time, unless a fault slows the disk: they are made within a turn of the loop."""
    forgets_after_s: float = 0.0
    """Named writers that nobody used for so long, in virtual time, are forgotten; 0: never."""
    crowded: bool = False
    """Many clients at several engines: so cuts order entries of all of them."""

    hasty: bool = False
    """Session writers are forgotten, and appends too old, within seconds: while clients use them, and copies are under way."""

    repairs: bool = False
    """Controllers make copies anew of bookies that are away, within seconds."""

    @property
    def carrying(self) -> bool:
        """Whether engines have small entries carried by the metalog."""
        return self.engine.carried_entry_bytes > 0

    def engine_settings(self, number: int) -> EngineSettings:
        """Of engine number 1, 2, …"""
        return replace(self.engine, index_slots=self.index_slots[number - 1]) if self.index_slots else self.engine

    def targets(self, numbers: random.Random) -> Targets:
        bookies = names("bookie", self.bookies)
        return Targets(
            bookies,
            names("sequencer", self.sequencers),
            names("engine", self.engines),
            names("client", self.clients),
            lossy=numbers.choice(bookies),
            controllers=names("controller", self.controllers),
        )


def names(role: str, count: int) -> tuple[str, ...]:
    """bookie-1, bookie-2, …"""
    return tuple(f"{role}-{number}" for number in range(1, count + 1))


def draw_shape(numbers: random.Random) -> Shape:
    """A seed's cluster."""
    pick = numbers.choice
    large = numbers.random() < 0.1
    segment_bytes = 5_248 * KIB if large else 960 * KIB  # an entry of our clients is up to 600 KiB
    bookie = BookieSettings(
        replace_lost_disk=True,
        journal_segment_bytes=segment_bytes,
        disk_reserve_bytes=0 if large else segment_bytes,  # little: writing zeros takes a simulation's time
        journal_live_segments=pick((2, 4, 8)),
        journal_spare_segments=pick((0, 1, 4)),
        write_cache_bytes=pick((128, 512, 8_192)) * KIB,
        checkpoint_interval_s=pick((0.5, 3.0, 20.0)),
        entry_log_bytes=pick((64, 256, 4_096)) * KIB,
        read_only_below_bytes=64 * KIB,
        writable_above_bytes=128 * KIB,
        disk_check_interval_s=pick((1.0, 10.0)),
    )
    engine = EngineSettings(
        cache_bytes=pick((64 * KIB, 8 * MIB)),
        shard_bytes=pick((32 * KIB, 256 * KIB, 64 * MIB)),
        shard_age_s=pick((2.0, 10.0, 3_600.0)),
        compress=pick((False, True)),
    )
    drawn = Shape(
        bookies=pick((3, 3, 4, 5)),
        sequencers=pick((1, 2, 2, 3)),
        engines=pick((1, 2, 2, 3)),
        clients=pick((2, 3, 4)),
        bookie=bookie,
        ledger=LedgerSettings(),
        sequencer=SequencerSettings(engine_grace_s=pick((0.2, 1.0))),
        engine=engine,
        weather=Weather(
            base_s=pick((0.000_05, 0.000_3, 0.002)),
            tail_s=pick((0.000_05, 0.000_5, 0.005)),
            spike_chance=pick((0.0, 0.001, 0.01)),
            spike_s=pick((0.02, 0.3)),
            bytes_per_s=pick((1e7, 1e9)),
            cut_chance=pick((0.0, 0.05, 0.3)),
            duplicate_connect_chance=pick((0.0, 0.1)),
        ),
        flush_s=pick((0.000_2, 0.002, 0.01)),
        metadata_s=pick((0.000_5, 0.005)),
        logs=pick((1, 1, 1, 2, 3)),
        controllers=pick((0, 0, 1, 2)),
    )
    spare = pick((0, 1)) if drawn.logs > 1 else 0
    engine = replace(
        engine,
        housekeeping_s=pick((0.2, 1.0)),
        snapshot_records=pick((50, 1_000, 262_144)),
        reclaim_grace_s=pick((0.2, 2.0, 600.0)),
        leftover_scan_s=pick((1.0, 3_600.0)),
    )  # snapshots are written, and terms without live records are reclaimed, within a run
    sequencers = max(drawn.sequencers, drawn.logs + spare)  # one sequencer serves one log
    return _engines_apart(numbers, replace(drawn, sequencers=sequencers, engine=engine))


def _engines_apart(numbers: random.Random, drawn: Shape) -> Shape:
    """What engines do beside serving, which slots each of them indexes, and how fast all clocks are."""
    pick = numbers.choice
    index_slots = pick(_INDEX_SLOTS[drawn.engines])
    rate = pick((1.0, 1.0, 1.0, FAST))
    engine = replace(
        drawn.engine,
        aux_backup_s=pick((0.0, 0.0, 0.5, 2.0)),
        clock_check_s=pick((1.0, 60.0)),
        session_writer_age_s=3_600.0 * rate,  # SDKs keep to it by virtual time
        append_age_s=REQUEST_AGE_S * rate,
    )
    drawn = replace(drawn, engine=engine, index_slots=index_slots, index_files=pick((False, True)), clock_rate=rate)
    if numbers.random() < CROWDED:
        drawn = replace(drawn, crowded=True, clients=CROWD, engines=max(2, drawn.engines), index_slots=_ALL)
    drawn = replace(drawn, quick_disks=numbers.random() < QUICK)
    drawn = forgetful(drawn) if numbers.random() < FORGETFUL and rate == FAST else drawn
    drawn = drawn if numbers.random() < CARRYING else apart(drawn)
    return hasty(numbers, drawn) if numbers.random() < HASTY and not drawn.forgets_after_s else drawn


def repairing(numbers: random.Random, drawn: Shape) -> Shape:
    """A cluster of five or six bookies whose controllers make copies anew, and drain bookies, within seconds."""
    bookie = replace(drawn.bookie, gc_grace_s=0.5, gc_interval_s=0.5, disk_check_interval_s=numbers.choice((0.5, 2.0)))
    engine = replace(drawn.engine, shard_age_s=numbers.choice((1.0, 4.0)))  # so that ledgers close within a run
    bookies, controllers = numbers.choice((5, 6)), max(1, drawn.controllers)
    return replace(drawn, bookies=bookies, controllers=controllers, repairs=True, bookie=bookie, engine=engine)


def apart(drawn: Shape) -> Shape:
    """A cluster whose entries take two steps, whatever their size: none is carried by the metalog."""
    return replace(drawn, engine=replace(drawn.engine, carried_entry_bytes=0))


def forgetful(drawn: Shape) -> Shape:
    """A cluster that forgets idle writers. Its clocks are fast: then no clock is wrong by a time that matters."""
    engine = replace(
        drawn.engine,
        append_age_s=REQUEST_AGE_S * FAST,
        session_writer_age_s=3_600.0 * FAST,
        writer_retention_s=WRITERS_KEPT_S * FAST,
        expiry_period_s=0.5,
    )
    return replace(drawn, forgets_after_s=WRITERS_KEPT_S, clock_rate=FAST, engine=engine)


def hasty(numbers: random.Random, drawn: Shape) -> Shape:
    """A cluster whose ages are shorter than what happens to appends on their way: only the log keeps them from being applied twice."""
    rate = drawn.clock_rate
    engine = replace(
        drawn.engine,
        append_age_s=numbers.choice((1.0, 4.0)) * rate,
        session_writer_age_s=numbers.choice((0.2, 1.0, 4.0)) * rate,
        expiry_period_s=numbers.choice((0.1, 0.5)),
    )
    return replace(drawn, hasty=True, engine=engine)


CROWDED: Final = 1 / 8
HASTY: Final = 1 / 3
CROWD: Final = 6
QUICK: Final = 2 / 3
"""Of disks, as they are today."""
FAST: Final = 20_000.0
"""A stream is an hour old after a fifth of a second."""
FORGETFUL: Final = 1 / 2
CARRYING: Final = 1 / 2
WRITERS_KEPT_S: Final = 20.0
"""Longer than anything is under way in a run."""
_ALL: Final = ()
_HALVES: Final = ("0-511", "512-1023")
_INDEX_SLOTS: Final[Mapping[int, tuple[tuple[str, ...], ...]]] = {
    1: (_ALL,),
    2: (_ALL, _ALL, _HALVES, ("all", "0-511")),
    3: (_ALL, _ALL, (*_HALVES, "all"), ("0-767", "512-1023", "0-255,768-1023")),
}
"""By the number of engines: each slot has one that indexes it."""
