"""What can be taken out of how writers, and what they sent, are forgotten (ADR 23): see docs/defects.md."""

from __future__ import annotations

from typing import Final

from itests.mutations.mutation import Mutation

_VERDICT: Final = "logbook/tests/engine/writers/test_verdict.py"
_EXPIRY: Final = "logbook/tests/engine/upkeep/test_expiry.py"
_AGES: Final = "logbook/tests/engine/append/test_appender_ages.py"
_APPENDER: Final = "logbook/tests/sdk/test_appends.py"
_CONNECTION: Final = "logbook/tests/sdk/test_connection.py"
_OLD_COPIES: Final = "sim/tests/test_old_copies.py"

EXPIRY_MUTATIONS: Final[tuple[Mutation, ...]] = (
    Mutation(
        "the floor of writers is not raised",
        "logbook",
        (("            self.by_slot[slot_of(book)] = birth\n", ""),),
        f"{_VERDICT}::test_number_1_is_not_decided_of_a_writer_as_old_as_one_that_was_forgotten",
    ),
    Mutation(
        "the floor of writers is not raised in a cluster",
        "logbook",
        (("        elif for_good:\n            self.writers.past.forgotten(book, writer)\n", ""),),
        f"{_OLD_COPIES}::test_a_copy_that_comes_after_its_writer_was_forgotten_is_not_applied_again[on its way]",
    ),
    Mutation(
        "a writer as old as the floor may begin",
        "logbook",
        (("birth <= self._highest and birth <= self.of(book)", "birth < self.of(book)"),),
        f"{_VERDICT}::test_number_1_is_not_decided_of_a_writer_as_old_as_one_that_was_forgotten",
    ),
    Mutation(
        "columns do not know the floor",
        "logbook",
        (("if first != 1 or self.past.refuses(*_unpack_key(key)):", "if first != 1:"),),
        "logbook/tests/engine/writers/test_writer_table.py::test_of_many_first_numbers_one_too_old_is_told_so_the_others_are_committed",
    ),
    Mutation(
        "a snapshot has no floors of writers",
        "logbook",
        (("    writers.past = WriterFloors(mapping_of(snapshot.writer_floors))\n", ""),),
        "logbook/tests/engine/state/test_snapshot_format.py::test_floors_of_writers_make_version_2_and_outlive_it",
    ),
    Mutation(
        "age by the time of the log alone",
        "logbook",
        (
            (
                "            return 0\n        return min(time_ms -",
                "            return time_ms - round(self._age_s * 1000)\n        return min(time_ms -",
            ),
        ),
        f"{_EXPIRY}::test_a_step_of_the_logs_time_makes_nobody_old",
    ),
    Mutation(
        "age by the time of the log alone in a cluster",
        "logbook",
        (
            (
                "            return 0\n        return min(time_ms -",
                "            return time_ms - round(self._age_s * 1000)\n        return min(time_ms -",
            ),
        ),
        f"{_OLD_COPIES}::test_a_step_of_the_clock_forgets_nobody_who_is_alive_and_applies_nothing_twice",
    ),
    Mutation(
        "time of any log",
        "logbook",
        (("known.time_ms < before_ms.get(log_of(idle.book), 0)", "known.time_ms < latest_ms"),),
        f"{_EXPIRY}::test_the_time_of_another_log_makes_nobody_old",
    ),
    Mutation(
        "no age in flight",
        "logbook",
        (("return since_s is not None and self._waiting.is_old(since_s)", "return False"),),
        f"{_AGES}::test_a_shard_whose_bookies_take_nothing_fails_and_orders_nothing_more",
    ),
    Mutation(
        "no age of what comes back",
        "logbook",
        (
            ("        if pieces and self.is_old(pieces[0].arrived_s):\n", "        if False:\n"),
            ("        self._waiting.drop_old()\n        while self._waiting.pieces", "        while self._queue"),
        ),
        f"{_AGES}::test_what_comes_back_from_a_shard_after_the_age_is_not_sent_again",
    ),
    Mutation(
        "no age before a send",
        "logbook",
        (("        self._waiting.drop_old()\n        while self._waiting.pieces", "        while self._queue"),),
        f"{_AGES}::test_what_waits_behind_a_full_window_is_judged_before_it_is_sent",
    ),
    Mutation(
        "no age of what is reported",
        "logbook",
        (
            (
                "link.term and self._is_old(shard):\n            self._fail_old(shard)",
                "link.term and self._is_old(shard) is None:\n            pass",
            ),
        ),
        f"{_AGES}::test_what_was_acknowledged_long_ago_is_not_reported_to_a_late_sequencer",
    ),
    Mutation(
        "an engine does not know that it was stopped",
        "logbook",
        (("            raise Overloaded(self._has_stopped(now_s))\n        piece", "            pass\n        piece"),),
        f"{_AGES}::test_an_engine_that_was_stopped_for_long_takes_nothing_that_waited_for_it[36.0]",
    ),
    Mutation(
        "what was sent twice is given to another writer",
        "sdk",
        (("if self.low <= self.sent_again or any(", "if any("),),
        f"{_APPENDER}::test_what_was_sent_twice_of_a_forgotten_writer_is_unknown_and_not_applied[True]",
    ),
    Mutation(
        "an SDK sends what is old when it connects again",
        "sdk",
        (
            (
                '        """All that is undecided leaves by this connection, but what is too old by now."""\n        self.give_up_old()\n',
                "",
            ),
        ),
        f"{_CONNECTION}::test_what_is_too_old_when_the_machine_wakes_is_not_sent_again[True]",
    ),
)
