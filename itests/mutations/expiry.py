"""What can be taken out of how writers, and what they sent, are forgotten (ADR 23): see docs/defects.md."""

from __future__ import annotations

from typing import Final

from itests.mutations.patch import patches

EXPIRY_MUTATIONS: Final = patches(r'''
the floor of writers is not raised
logbook logbook/tests/engine/writers/test_verdict.py::test_number_1_is_not_decided_of_a_writer_as_old_as_one_that_was_forgotten
-            self.by_slot[slot_of(book)] = birth

the floor of writers is not raised in a cluster
logbook sim/tests/test_old_copies.py::test_a_copy_that_comes_after_its_writer_was_forgotten_is_not_applied_again[on its way]
-        elif for_good:
-            self.writers.past.forgotten(book, writer)

a writer as old as the floor may begin
logbook logbook/tests/engine/writers/test_verdict.py::test_number_1_is_not_decided_of_a_writer_as_old_as_one_that_was_forgotten
-birth <= self._highest and birth <= self.of(book)
+birth < self.of(book)

columns do not know the floor
logbook logbook/tests/engine/writers/test_writer_table.py::test_of_many_first_numbers_one_too_old_is_refused_the_others_are_committed
-if first != 1 or self.past.refuses(*_unpack_key(key)):
+if first != 1:

a snapshot has no floors of writers
logbook logbook/tests/engine/state/test_snapshot_format.py::test_floors_of_writers_make_version_2_and_outlive_it
-    writers.past = WriterFloors(mapping_of(snapshot.writer_floors))

age by the time of the log alone
logbook logbook/tests/engine/upkeep/test_expiry.py::test_a_step_of_the_logs_time_makes_nobody_old
-            return 0
+            return time_ms - round(self._age_s * 1000)
         return min(time_ms -

age by the time of the log alone in a cluster
logbook sim/tests/test_old_copies.py::test_a_step_of_the_clock_forgets_nobody_who_is_alive_and_applies_nothing_twice
-            return 0
+            return time_ms - round(self._age_s * 1000)
         return min(time_ms -

time of any log
logbook logbook/tests/engine/upkeep/test_expiry.py::test_the_time_of_another_log_makes_nobody_old
-known.time_ms < before_ms.get(log_of(idle.book), 0)
+known.time_ms < latest_ms

no age in flight
logbook logbook/tests/engine/append/test_appender_ages.py::test_a_shard_whose_bookies_take_nothing_fails_and_orders_nothing_more
-return since_s is not None and self._waiting.is_old(since_s)
+return False

no age of what comes back
logbook logbook/tests/engine/append/test_appender_ages.py::test_what_comes_back_from_a_shard_after_the_age_is_not_sent_again
-        if pieces and self.is_old(pieces[0].arrived_s):
+        if False:
@@
-        self._waiting.drop_old()
-        while self._waiting.pieces
+        while self._queue

no age before a send
logbook logbook/tests/engine/append/test_appender_ages.py::test_what_waits_behind_a_full_window_is_judged_before_it_is_sent
-        self._waiting.drop_old()
-        while self._waiting.pieces
+        while self._queue

no age of what is reported
logbook logbook/tests/engine/append/test_appender_ages.py::test_what_was_acknowledged_long_ago_is_not_reported_to_a_late_sequencer
-link.term and self._is_old(shard):
-            self._fail_old(shard)
+link.term and self._is_old(shard) is None:
+            pass

an engine does not know that it was stopped
logbook logbook/tests/engine/append/test_appender_ages.py::test_an_engine_that_was_stopped_for_long_takes_nothing_that_waited_for_it[36.0]
-            raise Overloaded(self._has_stopped(now_s))
+            pass
         piece

what was sent twice is given to another writer
sdk logbook/tests/sdk/test_appends.py::test_what_was_sent_twice_of_a_forgotten_writer_is_unknown_and_not_applied[True]
-if self.low <= self.sent_again or any(
+if any(

an SDK sends what is old when it connects again
sdk logbook/tests/sdk/test_connection.py::test_what_is_too_old_when_the_machine_wakes_is_not_sent_again[True]
-        """All that is undecided leaves by this connection, but what is too old by now."""
-        self.give_up_old()
''')
