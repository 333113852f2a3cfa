"""What can be taken out of what a person or a program meets first: status, append, clients. See docs/defects.md."""

from __future__ import annotations

from typing import Final

from itests.mutations.patch import patches

USERS_MUTATIONS: Final = patches(r"""
what is not listed is not missed
cli cli/tests/facts/test_cluster_status.py::test_what_is_expected_and_not_listed_is_down_and_says_how_to_forget_it
-one for one in expected if Address.parse(one.address) not in listed}
+one for one in expected if not one.place and Address.parse(one.address) not in listed}

a cookie expects no bookie
cli cli/tests/facts/test_cluster_status.py::test_what_is_expected_and_not_listed_is_down_and_says_how_to_forget_it
-for name in await layout.bookie_cookies(store) if name not in there]
+for name in () if name not in there]

whoever ends says goodbye
cli cli/tests/test_roles.py::test_a_role_that_fails_is_still_expected_and_one_that_ends_is_not
-    yield
     try:
+        yield
+    finally:
         await registry.forget(parts.metadata, kind, made.place)
+    try:
+        pass

fewer copies than asked for are well
cli cli/tests/facts/test_cluster_faults.py::test_redundancy_that_is_used_up_is_said
-        elif writable < wanted:
+        elif writable < acks:

a bookie with ledgers is forgotten
cli cli/tests/cluster/test_forget_command.py::test_a_bookie_that_ledgers_count_on_is_forgotten_only_with_them
-    if named and not with_ledgers:
+    if not with_ledgers and not named:

after an unknown outcome the lower bound is skipped
cli cli/tests/records/test_append_command.py::test_after_an_unknown_outcome_no_line_says_how_many_to_skip
-        if ingest.failed:
+        if ingest.failed and not ingest.committed:

a run that was cut short begins anew
cli cli/tests/records/test_append_runs.py::test_a_run_that_was_cut_short_goes_on_under_its_writer_a_finished_one_does_not
-state is not None and state.open and state.skip == skip
+state is not None and state.open and state.skip == skip and not state.base + 1

another input continues a run
cli cli/tests/records/test_append_command.py::test_an_input_that_is_another_one_by_now_is_refused
-            if newest:
-                await source.check(newest)

batches go on behind a failed one
sdk cli/tests/records/test_append_command.py::test_batches_behind_a_failed_one_are_not_appended
-        if found != self.number:
+        if found is None:

a wait that an alarm cuts off goes on
common common/tests/runtime/test_handover.py::test_a_wait_that_a_signal_cuts_off_is_cancelled
-            future.cancel()  # without effect on one that ended; else a signal's handler raised an error here
+            pass

what comes when its thread has gone is dropped
common common/tests/runtime/test_handover.py::test_a_value_that_is_taken_when_its_thread_waits_no_more_is_for_the_next
-            self._taken.extend(values)
+            self._taken.extend(values if not asyncio.current_task().cancelling() else ())

a backup needs no bookie for open ledgers
cli cli/tests/cluster/test_backup_commands.py::test_what_is_wrong_is_named_and_nothing_is_adopted
-            report.faults += _unrecoverable(int(ledger_id), metadata, found.keys())
+            pass

an old answer about a writer counts
sdk logbook/tests/sdk/test_writer.py::test_an_old_answer_about_a_writer_has_no_number_given_twice
-        if asked != (numbers.stale, numbers.next_number) or numbers.undecided:
+        if numbers.undecided:

many begin wherever those before them ended
sdk logbook/tests/sdk/test_writer.py::test_many_begin_at_their_number_or_not_at_all_whoever_waits_before_them
-            first.check(numbers)  # who waited for a place before this was numbered before it
+            pass

a child does not know that it was forked
common common/tests/runtime/test_forks.py::test_each_child_is_notified_once_of_what_there_is_and_the_parent_is_not
-    for one in _kept:
-        one.forked()

a child takes apart what its parent uses
common common/tests/runtime/test_forks.py::test_what_was_copied_is_not_taken_apart_in_the_child
-    _kept.extend(_watched)
-    for one in _kept:
+    for one in list(_watched):

an iterator has many readers
sdk itests/sdk/test_reads.py::test_an_iterator_has_one_reader_at_a_time_as_a_generator[memory]
-        if self._asking:
-            raise busy()

one exception for all who wait
sdk itests/sdk/test_failures.py::test_each_who_waits_when_the_client_is_closed_gets_an_exception_of_its_own[memory]
-else self._failure.again()
+else self._failure

a dropped client keeps its thread
common common/tests/runtime/test_loop_thread.py::test_one_that_is_dropped_ends_with_its_thread_and_says_so
-            self.loop.call_soon_threadsafe(self.loop.stop)
+            pass

names of tags are of the data's mebibyte
common itests/sdk/test_limits.py::test_a_mebibyte_of_data_fits_whatever_its_tags[memory-none]
-        if most > limits.PAYLOAD_BYTES:
+        if most > limits.RECORD_BYTES:
@@
-<= length <= limits.PAYLOAD_BYTES
+<= length <= limits.RECORD_BYTES

a token of any cluster is taken
sdk logbook/tests/sdk/test_session.py::test_a_token_of_another_cluster_is_refused_at_once
-    if None not in (cluster, found.cluster) and found.cluster != cluster:
+    if found.cluster == -1:

appends are sent again to whoever answers
sdk logbook/tests/sdk/test_connection.py::test_nothing_is_sent_again_to_another_cluster_at_the_same_address
-        if None not in (mark, self.cluster) and mark != self.cluster:
+        if mark == -1:

a repeated number looks like a new one
sdk itests/sdk/test_writers.py::test_two_users_of_one_name_with_equal_records_can_distinguish[memory]
-        if flags & ROW_DUPLICATE:
-            numbers.was_there(first, count, first_seqnum)

an engine does not say what it had before
logbook logbook/tests/engine/apply/test_answers_due.py::test_numbers_that_were_committed_before_are_marked
-ROW_DUPLICATE if actual is DUPLICATE else 0
+0

a command ends at a refused first connection
cli cli/tests/test_clients.py::test_an_engine_that_comes_later_is_found
-            if loop.time() + PAUSE_S >= deadline:
+            if math.isfinite(deadline):

a spare stops at the usual port
cli cli/tests/test_roles.py::test_a_second_role_on_a_machine_gets_a_free_port_unless_one_is_set
-    if settings.listen or kind == "engine":
+    if kind:

a cancelled call waits on until the event loop delivers its cancellation
common common/tests/runtime/test_bodies.py::test_a_thread_drops_a_call_whose_cancellation_is_not_delivered_yet
-                if call.wanted and future.set_running_or_notify_cancel():
+                if future.set_running_or_notify_cancel():

a place that is given up is taken at once
common common/tests/runtime/test_bodies.py::test_calls_that_are_cancelled_level_by_level_do_not_begin
-REPLACED_S: Final = 0.02
+REPLACED_S: Final = 0.0

a place that is given up is looked at once, by a timer that may be early
common common/tests/runtime/test_bodies.py::test_a_place_that_is_given_up_is_taken_although_timers_come_early
-            call.loop.call_later(left_s * SLACK, self._replace, call)
+            call.loop.call_later(left_s * SLACK, self._threads.serve)

a drain records that a step begins
bokiflow libs/tests/flow/worker/test_draining.py::test_a_drain_begins_no_step_that_runs_at_most_once
-        return entry.begins or (bool(self.held) and not entry.delivers and not entry.note)
+        return False

a step that is withdrawn counts as begun
bokiflow libs/tests/flow/worker/test_draining.py::test_a_step_that_waits_for_a_thread_runs_at_the_next_worker_at_most_once
-                self._withdraw(one.event)
+                pass

a loop is seen running only when a heartbeat is due
bokilib libs/tests/lib/partitions/test_rounds.py::test_a_loop_that_stood_still_is_reported_with_all_of_it_whenever_it_began
-        self._pulse_s: Final = max(LEAST_PULSE_S, lease_rules.beat_every(lease_s) / PULSES)
+        self._pulse_s: Final = max(LEAST_PULSE_S, lease_rules.beat_every(lease_s))

a program waits for a step that swallows its cancellation
bokiflow libs/tests/flow/worker/test_draining.py::test_steps_that_swallow_their_cancellation_do_not_keep_their_process
-            leave_behind(task)
+            pass

a client tries another cluster without end
sdk logbook/tests/sdk/test_attempts.py::test_the_client_ends_when_another_cluster_answers_again_and_again
-        if isinstance(error, WrongCluster):
+        if isinstance(error, WrongCluster) and not error.definite:

a topic that is no text is recorded
bokiflow libs/tests/flow/runtime/test_in_workflow.py::test_values_of_another_type_are_refused_in_words_where_they_are_given
-    _instance().emit(check_short_text("a topic", topic), value)
+    _instance().emit(topic, value)

a line that is held is written only with the next one
common common/tests/test_log_pace.py::test_a_line_an_interval_and_the_newest_is_written_when_it_ends
-            self._timer = loop.call_at(self._next_at, self.flush)
+            self._timer = None

an iterator takes a record before its items are made
bokilib libs/tests/lib/test_iteration.py::test_each_record_and_gap_of_a_read_gives_its_items
-        items = await items_of(taken)
-        taken = None
-        return items
+        item, taken = taken, None
+        return await items_of(item)

a watch asks again from where on changes are wanted
bokistore libs/tests/store/read/test_watch.py::test_changes_count_from_the_first_call_also_if_it_is_cancelled_at_once
-        return await asyncio.shield(self._now)
+        return await self._views.log.book.now()

a read before what an object keeps does not name the object
bokistore libs/tests/store/read/test_checkpoint_reads.py::test_the_error_names_the_object_and_the_place_from_which_on_it_is_kept
-            facts = {**trimmed.facts, "object": subject.name}
+            facts = {**trimmed.facts}

a block that is not recorded is not recorded later
bokiflow libs/tests/flow/worker/test_blocked_workflows.py::test_a_block_that_cannot_be_recorded_is_recorded_later
-                log.warning(NOT_RECORDED, id=id, error=repr(failure))
+                raise

a schedule that is set again after it was deleted shows what fired before
bokiflow libs/tests/flow/model/test_schedule_rules.py::test_a_schedule_that_was_deleted_and_set_again_has_not_fired_yet
-                self._removed, self.recreated, self.fired_ms, self.skipped = False, True, None, None
+                self._removed = False

a debounced call that its round cannot start is taken, and its result never comes
bokiflow libs/tests/flow/client/test_debounce.py::test_a_call_that_the_round_could_not_start_is_refused
-    check_size(size_of(call.args), f"arguments of workflow {call.workflow.name!r} in a debounced call", PASS_ADDRESS)
+    pass

a schedule is set that cannot start its workflow
bokiflow libs/tests/flow/client/test_schedules.py::test_a_call_that_a_schedule_could_not_start_is_refused
-    check_size(
-        size_of(call.args), f"arguments of workflow {call.workflow.name!r} in a schedule", PASS_ADDRESS, CALL_BYTES
-    )
+    pass
""")
