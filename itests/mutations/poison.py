"""What can be taken out of how a cluster lives with what nobody can read: see docs/defects.md for what each is about."""

from __future__ import annotations

from typing import Final

from itests.mutations.patch import patches

POISON_MUTATIONS: Final = patches(r"""
carry unparsed
metalog metalog/tests/sequencer/test_term_server_carried.py::test_of_an_entry_with_a_changed_header_nothing_unusable_is_carried
-            check_carried(carry, self._builder.known_end(shard))

what a term does not order is decided as any
logbook logbook/tests/engine/writers/test_foreign_runs.py::test_engines_that_apply_the_logs_in_any_order_know_the_same
-        foreign = () if guard is None else guard.foreign(batch)
+        foreign: Sequence[int] = ()

a command about a book that a term does not order is obeyed
logbook logbook/tests/engine/writers/test_foreign_runs.py::test_commands_about_books_of_other_slots_change_nothing
-        if guard is not None and isinstance(command, (Trim, Expire)) and not indexed(command.book, guard.slots):
+        if False:

a head is believed whatever follows it
metalog metalog/tests/terms/test_term_end.py::test_what_cannot_be_known_is_not_made_up
-        except VersionMismatch as later:
+        except ProtocolError as later:

a head is believed that does not go on
metalog metalog/tests/terms/test_term_end.py::test_what_cannot_be_known_is_not_made_up
-            if head.start_pos != before.end_pos or head.time_ms < before.time_ms:
+            if False:

what can be read may be given up
metalog metalog/tests/terms/test_term_end.py::test_nothing_is_given_up_but_the_first_that_cannot_be_read
-    if fault is None or found.entries != decision.entry:
+    if fault is None:

a standby ends with the term that it cannot end
metalog metalog/tests/test_unreadable_end.py::test_a_standby_that_cannot_end_a_term_lives_and_takes_other_logs
-            except MetalogUnreadable as error:
+            except ZeroDivisionError as error:
                 # Other logs may need

who has applied what was given up goes on
metalog metalog/tests/test_unreadable_end.py::test_who_has_applied_what_was_given_up_stops_and_says_so
-        if self._position.entry > record.last_entry + 1:
+        if self._position.entry > record.closed_at + 1:

carry parsed and not compared with its row
metalog metalog/tests/sequencer/test_carried_check.py::test_another_batch_than_its_row_says_is_refused
-    if found != expected:
+    if False:
         raise UnfitCarry(

unparsable body raises
logbook logbook/tests/engine/apply/test_header_feed.py::test_what_is_carried_and_nobody_can_read_is_waited_for_and_may_be_given_up
-            self._unfit_carried[ledger_id, entry] = f"is no record batch: {error}"
-            return None
+            raise CorruptData(str(error)) from error

an entry is believed that its cut does not mean
logbook logbook/tests/engine/test_poisoned_entries.py::test_an_entry_that_is_not_what_its_cut_means_is_waited_for_and_given_up
-        if fit.has(first, first + batch.record_count) and (
+        if True or fit.has(first, first + batch.record_count) and (

one bad entry hides its neighbours
logbook logbook/tests/engine/apply/test_header_feed.py::test_of_entries_that_are_read_together_only_the_bad_one_is_waited_for
-        for entry in range(first, last + 1):
+        for entry in range(last, first - 1, -1):
             await self._read_one(ledger_id, entry, None, error)

who catches up waits behind an entry that cannot be read
logbook logbook/tests/engine/test_poisoned_entries.py::test_what_was_given_up_long_after_it_is_known_to_who_begins_later
-        if self.pending > cuts and not self._feed.waits:
+        if self.pending > cuts:

a metalog entry that is none ends the engine
metalog metalog/tests/follow/test_follower_stops.py::test_a_log_stops_before_an_unreadable_entry_and_goes_on_when_it_is_mended
-            except ProtocolError as error:
-                return entries, error
+            except ProtocolError:
+                raise

a metalog entry that is none is passed over
metalog metalog/tests/follow/test_follower_stops.py::test_a_metalog_entry_with_any_byte_changed_is_applied_or_stops_the_log
-            except ProtocolError as error:
-                return entries, error
+            except ProtocolError:
+                entry = entries[-1]

what was pushed badly is not read from bookies
metalog metalog/tests/follow/test_follower_stops.py::test_what_was_pushed_badly_is_read_from_bookies
-            if self._stopped is not None:  # a copy on a bookie
+            if False:  # a copy on a bookie

payloads unopened
logbook logbook/tests/engine/test_server.py::test_a_record_that_nobody_could_open_is_refused_before_it_is_stored
-        check_payloads(batch)

of a payload the names up to the first fault are looked at
common common/tests/records/test_payload_check.py::test_one_record_that_cannot_be_opened_is_found_among_many
-        if at != end:
+        if at > end:

a record that cannot be opened ends its page
sdk logbook/tests/sdk/test_record.py::test_a_record_whose_names_do_not_fit_it_is_a_gap_among_its_neighbours
-            except CorruptData as error:
-                records.append(gap_of(seqnum, error, book))
+            except CorruptData:
+                raise

data that nobody can read ends a range
logbook logbook/tests/engine/test_unreadable_data.py::test_a_range_has_a_gap_where_nobody_can_read_and_goes_on
             except UnreadableEntry:
-                continue  # it is known now, and one more gap
+                raise

a snapshot goes back in a log
logbook logbook/tests/engine/test_housekeeping.py::test_an_engine_that_is_behind_the_snapshot_in_a_log_does_not_replace_it
-        late = behind(before, snapshot.logs)
+        late: list[int] = []

a damaged snapshot stays the one that is named
logbook logbook/tests/engine/test_housekeeping.py::test_an_engine_that_cannot_use_the_snapshot_rebuilds_and_replaces_it
-        self._supersede = fault is not None

a shard is closed when the sequencer has room, or never
logbook logbook/tests/engine/append/test_appender_carried.py::test_a_busy_sequencer_is_asked_again_to_close_a_shard_whose_end_nobody_knows
-            except Overloaded as error:  # what waits for it to close would wait for the term's end
-                _log.info("shard not closed yet", term=link.term, shard=number, error=error)
""")
