"""Settings of sequencers, controllers and followers of a log."""

from __future__ import annotations

from dataclasses import dataclass

from boki_common import limits
from boki_common.backoff import Backoff
from boki_common.settings import setting
from boki_ledger.repair.settings import GRACE_S, Mode, RepairLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencerSettings:
    """One sequencer process."""

    log: int = setting(-1, help="The only log to stand by for; -1: any.", minimum=-1)
    advertise: str = setting(
        "",
        help="Host or host:port under which others reach this sequencer, in a container or behind a port mapping; empty: as it listens.",
    )
    replicas: int = setting(3, unit="bookies", help="Copies of each metalog entry.", minimum=1)
    acks: int = setting(2, unit="bookies", help="Copies that must be durable before an entry counts.", minimum=1)
    engine_grace_s: float = setting(
        1.0, help="An engine whose connection is lost keeps its shards for this long.", minimum=0.0
    )
    standby_check_s: float = setting(
        1.0, help="A standby asks the serving sequencer this often whether it lives.", minimum=0.01
    )
    confirm_timeout_s: float = setting(
        limits.CONNECT_TIMEOUT_S, help="A sequencer that does not answer a direct call so long is gone.", minimum=0.01
    )
    over_grace_s: float = setting(
        1.0, minimum=0.0, help="A term that is over, ended by somebody who lives, is left to him for this long."
    )
    standby_stagger_s: float = setting(
        0.1, help="A standby leaves this time to each one before it in turn.", minimum=0.0
    )
    backoff_first_s: float = setting(
        1.0, help="Pause before a log that was taken over is suspected again; it doubles.", minimum=0.0
    )
    backoff_limit_s: float = setting(30.0, help="The longest such pause; so much quiet ends them.", minimum=0.0)
    retry_first_s: float = setting(
        0.1, help="First pause after a failed step on the way to a term; it doubles.", minimum=0.001
    )
    retry_limit_s: float = setting(5.0, help="The longest such pause.", minimum=0.001)
    recent_entries: int = setting(
        4_096, help="Metalog entries kept in memory for participants that reconnect.", minimum=1
    )
    recent_bytes: int = setting(2 * limits.MIB, help="Bytes of these entries; the newest is always kept.", minimum=1)
    term_shards: int = setting(
        16, help="A term that had so many, half of them closed, ends and the next one begins.", minimum=1
    )
    term_age_s: float = setting(
        86_400.0, help="A term whose first record is so old ends and the next one begins.", minimum=0.1
    )
    term_entries: int = setting(
        4_000_000, help="A term with a metalog so long ends and the next one begins.", minimum=100
    )
    subscriber_unsent_bytes: int = setting(
        limits.CONNECTION_UNSENT_BYTES, help="A participant that takes no more than this is dropped.", minimum=1
    )

    def backoff(self) -> Backoff:
        """The pauses of one series of attempts."""
        return Backoff(self.retry_first_s, self.retry_limit_s)

    def faults(self) -> list[str]:
        if self.acks > self.replicas:
            return [f"acks ({self.acks}) cannot exceed replicas ({self.replicas})"]
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """One controller process."""

    advertise: str = setting(
        "",
        help="Host or host:port under which others reach this controller, in a container or behind a port mapping; empty: as it listens.",
    )
    round_s: float = setting(
        1.0, help="The leader looks at everything this often, and whenever the view changes.", minimum=0.01
    )
    vacant_grace_s: float = setting(
        2.0, help="Standbys have so long to take a log over before the leader gives it to one.", minimum=0.0
    )
    absent_s: float = setting(
        3 * limits.SESSION_TIMEOUT_S,
        minimum=0.0,
        help="The spare ledgers of a sequencer that was not listed for so long are given up.",
    )
    spare_scan_s: float = setting(
        3_600.0, help="How often all ledgers are looked at for spares that nobody needs.", minimum=0.01
    )
    retry_for_s: float = setting(
        2.0, help="How long a change of terms is retried while sequencers or bookies are away.", minimum=0.01
    )
    retry_first_s: float = setting(0.1, help="First pause after a failed step; it doubles.", minimum=0.001)
    retry_limit_s: float = setting(5.0, help="The longest such pause.", minimum=0.001)
    repair: str = setting(
        Mode.OBSERVE.value,
        help="Copies of closed ledgers on lost bookies: `ours` makes them anew elsewhere, `observe` only reports them, `off` neither.",
    )
    repair_grace_s: float = setting(
        GRACE_S, help="A bookie that is away for so long is lost; where one copy is left, at once.", minimum=0.0
    )
    repair_bytes_per_s: int = setting(
        32 * limits.MIB, unit="bytes/s", help="Repair copies no more than this; 0: no bound.", minimum=0
    )
    repair_ledgers_at_once: int = setting(
        4, unit="ledgers", help="So many ledgers are repaired at the same time.", minimum=1
    )
    repair_round_s: float = setting(
        10.0, help="Repair looks this often which bookies are there, and tries again what was blocked.", minimum=0.01
    )
    repair_scan_s: float = setting(
        3_600.0,
        help="How often repair reads the metadata of all ledgers; also when other bookies are away.",
        minimum=0.01,
    )

    repair_roll_s: float = setting(
        300.0,
        help="With `ours`: a log whose ledgers are written on a lost or drained bookie for so long begins a new term.",
        minimum=0.0,
    )

    def backoff(self) -> Backoff:
        """The pauses of one series of attempts."""
        return Backoff(self.retry_first_s, self.retry_limit_s)

    def repair_limits(self) -> RepairLimits:
        return RepairLimits(
            grace_s=self.repair_grace_s,
            bytes_per_s=self.repair_bytes_per_s,
            ledgers_at_once=self.repair_ledgers_at_once,
            round_s=self.repair_round_s,
            scan_s=self.repair_scan_s,
        )

    def faults(self) -> list[str]:
        modes = [mode.value for mode in Mode]
        return [] if self.repair in modes else [f"repair must be one of {', '.join(modes)}, found {self.repair!r}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerSettings:
    """One follower of a log, in an engine."""

    retry_first_s: float = setting(
        0.05, help="First pause before the sequencer or a store is tried again; it doubles.", minimum=0.001
    )
    retry_limit_s: float = setting(1.0, help="The longest such pause.", minimum=0.001)
    read_bytes: int = setting(1 * limits.MIB, help="Metalog bytes read from a ledger at once, about.", minimum=1)
    read_entries: int = setting(1_024, help="Metalog entries read at once, at most.", minimum=1)

    def backoff(self) -> Backoff:
        """The pauses of one series of attempts."""
        return Backoff(self.retry_first_s, self.retry_limit_s)
