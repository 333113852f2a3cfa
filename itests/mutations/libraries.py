"""What can be taken out of claims, floors and rolling deploys, and of what a cluster and a gateway bound. See docs/defects.md."""

from __future__ import annotations

from typing import Final

from itests.mutations.patch import patches

LIBRARIES_MUTATIONS: Final = patches(r"""
a lease that a heartbeat names is not kept
bokilib libs/tests/lib/follow/test_lease_rules.py::test_a_member_is_dead_after_its_own_lease_whatever_that_of_the_observer_is
-        if lease_s > 0:
+        if lease_s < 0:

a claim of another object of the process is adopted
bokilib libs/tests/lib/append/test_fence.py::test_a_claim_is_adopted_only_by_the_object_that_appended_it
-        return (found.by, found.who, found.token) == (self._log.by, self._who, self.token)
+        return (found.by, found.who) == (self._log.by, self._who)

a living record proves nothing
logbook logbook/tests/engine/read/test_missing_model.py::test_all_that_is_missing_lies_in_gaps_and_no_gap_is_without_need
-        if begins and (stop > floor or 0 < first < stop):
+        if begins and stop > floor:

a record takes parts of all books
bokilib libs/tests/queue/test_other_books.py::test_a_record_of_another_book_refuses_the_part
-        return self.id == other.id and (
+        return True or (

books of one name in two clusters are taken for one
bokilib libs/tests/queue/test_other_books.py::test_a_book_of_this_name_in_another_cluster_is_another_one
-(self.cluster == other.cluster or None in (self.cluster, other.cluster))
+True

a handler is declared over a store of another book
bokiqueue libs/tests/queue/test_other_books.py::test_a_handler_is_not_declared_over_a_store_of_another_book
-        check_store(store, self.log.origin(f"queue {self.name!r}"))
+        pass

a called part of a transaction drops what is added to it
bokistore libs/tests/queue/test_other_books.py::test_a_part_of_a_workflow_of_a_transaction_takes_no_contribution
-        if self._elsewhere:
+        if self._elsewhere and not part:

a round runs only what its own program has
bokiflow libs/tests/flow/client/test_debounce.py::test_a_worker_that_lacks_the_workflow_runs_the_round
-Call(named(app, newest.workflow), newest.args)
+Call(app.find(newest.workflow), newest.args)

a schedule starts only what its own program has
bokiflow libs/tests/flow/client/test_schedules.py::test_a_worker_that_lacks_the_workflow_keeps_the_schedule
-Call(named(app, found.workflow), found.args)
+Call(app.find(found.workflow), found.args)

an error whose class is lost is delivered as another one
bokiflow libs/tests/flow/runtime/test_instance.py::test_an_error_whose_class_is_missing_is_not_delivered_live_either
-        lost = None if error is None else missing_class(error, *self._places(wait))
+        lost = None

partitions are dealt among the workers that were heard
bokiflow libs/tests/flow/worker/test_partitions.py::test_a_holder_that_was_not_heard_yet_keeps_its_share
-by_weight({owner.who, *peers.alive(), *holders}.difference(gone), tags.PARTITIONS)
+by_weight({owner.who, *peers.alive()}, tags.PARTITIONS)

what a holder took is claimed back at once
bokilib libs/tests/flow/worker/test_partitions.py::test_workers_that_disagree_move_a_partition_once_a_beat
-                self.lost.add(move.partition)
+                pass

a namesake is looked for under a name that it does not have
bokiqueue libs/tests/queue/test_leaving.py::test_of_two_members_of_one_name_one_waits_until_the_other_ends
-            if not self._rival_is_gone(claim):
+            if not self._members.dead(f"{holder} (another of this name)"):

a lease that runs out wakes nobody
bokiqueue libs/tests/queue/shard/test_shard_owner.py::test_a_shard_is_given_back_when_the_record_of_an_ack_is_decided
-                schedule.expires(id)
-                self._one_ended()
+                schedule.expires(id)
@@
-            self._ended.set()  # its lease runs again
+            pass

a member that holds a partition by the log is taken for its owner
bokilib libs/tests/flow/worker/test_partitions.py::test_a_worker_owns_its_partitions_again_after_a_claim_that_stays_unknown
-        elif standing.holder == me or (member == me and standing.free):
+        elif standing.holder != me and member == me and standing.free:

what is begun in vain is begun again at once
bokiflow libs/tests/flow/worker/test_held_back.py::test_others_end_beside_a_workflow_that_ends_each_worker
-        if cancelled or not lost or not left_ms:
+        if cancelled or lost or not left_ms:

what a workflow recorded before its last claim is not looked at
bokiflow libs/tests/flow/worker/test_held_back.py::test_what_recorded_something_is_begun_at_once_however_often_workers_are_lost
-    if vain == 1:
+    if vain < 0:

a workflow that only waits is held back for longer each time
bokiflow libs/tests/flow/worker/test_held_back.py::test_what_waits_is_held_back_once_at_most
-            self._batcher.add(BatchEntry(events.Waits(self.id)))
+            pass

an error is rebuilt as another class of the same name
bokiflow libs/tests/models/test_error_classes.py::test_an_error_is_rebuilt_as_its_class_or_as_none
-    second = _named(places[0] if places else {}, name) if at_function else None
+    second = _named(places[0] if places else {}, name)

a client in a turn that appends asks no loop
sdk logbook/tests/sdk/test_wrong_loop.py::test_confined_code_is_refused_also_in_a_turn_that_appends_and_opens_no_client
-        if not self._flush_scheduled or confined.running:
+        if not self._flush_scheduled:

a missing workflow is waited for
bokiflow libs/tests/flow/client/test_results.py::test_a_missing_one_is_told_unless_the_call_waits_for_its_start
-                self._missing(id)
+                pass

what made an object anew is taken for a gap
bokistore libs/tests/store/read/test_checkpoint_reads.py::test_what_is_made_anew_between_the_two_steps_of_its_forgetting_is_read
-        start = 1 if empty else covers + 1
+        start = covers + 1

missing records are taken for replaced unseen
bokistore libs/tests/store/read/test_checkpoint_reads.py::test_who_carries_does_not_take_a_missing_history_for_one_that_was_carried
-                    await self._check_replaced(subject, newest, start, covers, error)
+                    pass

what is missing now was always missing
bokistore libs/tests/store/read/test_snapshot_reads.py::test_an_idle_process_does_not_date_an_absence_back_to_where_it_was
-        upto = max(upto, view.seen) if proven else 0
+        upto = max(upto, view.seen)

a drop trims what the group does when it is registered again
bokiqueue libs/tests/queue/test_queue.py::test_a_drop_trims_nothing_of_a_group_that_is_registered_again_at_once
-        await settings.trim_replaced(self.log, dropped_marks(found, groups))
+        found = found._replace(seqnum=await self.log.book.now() + 1)
+        await settings.trim_replaced(self.log, dropped_marks(found, groups))

a group reads records of its former registration
bokiqueue libs/tests/queue/manage/test_registering.py::test_an_append_of_a_former_owner_at_any_operation_is_not_read_by_the_new_ones
-    registered = config.registered.get(group, 0)
+    registered = 0

owners of a former registration append under the next one
bokiqueue libs/tests/queue/manage/test_registering.py::test_an_append_of_a_former_owner_at_any_operation_is_not_read_by_the_new_ones
-    for first in range(0, config.shards, RECORD_TAGS):
+    for first in range(0, 0, RECORD_TAGS):

owners of a deleted queue append to the next one
bokiqueue libs/tests/queue/manage/test_registering.py::test_an_owner_of_a_deleted_queue_is_none_of_the_queue_that_is_made_again
-deleted(config), snapshot, _ended(queue, GROUP, shards))
+deleted(config), snapshot)

a queue begins below the deletion of its predecessor
bokiqueue libs/tests/queue/manage/test_registering.py::test_a_queue_is_made_again_after_a_carrier_trimmed_its_deletion
-found.seqnum if found is not None else await _trimmed_up_to(log, queue, snapshot)
+found.seqnum if found is not None else 0

an ACK that was trimmed never happened
bokiqueue libs/tests/queue/shard/test_shard_owner.py::test_a_message_whose_ack_may_be_trimmed_does_not_come_again
-        if found.trimmed >= start:  # the group was dropped, and what it did is trimmed: an ACK may have been there
+        if False:

a step that was interrupted counts as done
bokiflow libs/tests/flow/worker/test_held_back.py::test_others_end_beside_a_workflow_that_ends_each_worker[by_hand]
-                if event.outcome.interrupted:
+                if False:

a part whose caller is ended runs on
bokiflow libs/tests/flow/client/test_terminating.py::test_parts_of_its_transaction_end_with_it_without_a_worker[terminate]
-    waited.update(dict.fromkeys(part.child for part in parts_left(history.records)))
+    pass

a worker that takes a workflow over leaves the parts of its transactions running
bokiflow libs/tests/flow/execute/test_transaction_children.py::test_one_unknown_outcome_of_its_cancellation_leaves_no_part_behind
-            self._called.abandon(part)
+            pass

a transaction ends while a start of one of its parts is being appended
bokiflow libs/tests/flow/execute/test_transaction_children.py::test_no_part_outlives_its_attempt_though_an_append_is_unanswered
-            await self._called.decided(command.key)
+            pass

callers of one record share a future
bokiqueue libs/tests/queue/consume/test_consumer.py::test_a_caller_that_waits_no_longer_for_its_ack_cancels_no_other
-        waiting.append(future)
-        return future
+        waiting.append(future)
+        return waiting[0]

a dead letter is told by the record that it did not fit
bokiqueue libs/tests/queue/shard/test_shard_owner.py::test_a_large_letter_is_told_by_the_record_that_has_it
-        waiting = self._waiting if letter is None else letter.waiting
+        waiting = self._waiting

a decision that is in the log is said to have failed
bokiqueue libs/tests/queue/test_late_answers.py::test_a_decision_in_the_log_is_told_though_its_shard_was_taken_meanwhile
-            box.succeed()
-            return
+            box.fail(self.fence.over())
+            return

a member that leaves does not tell those that wait for its decisions
bokiqueue libs/tests/queue/test_late_answers.py::test_a_caller_of_a_member_that_leaves_gets_an_answer_when_the_log_gives_none
-                box.fail(OutcomeUnknown(UNANSWERED, queue=self.queue, shard=self.shard))
+                pass

an event that one subscriber does not know ends the streams of all
bokilib libs/tests/lib/follow/test_follower.py::test_an_event_that_a_subscriber_does_not_know_ends_no_stream
-        deliver(error)
+        raise

a blocking transaction waits for no turn and claims nothing
bokistore libs/tests/store/test_sync.py::test_a_slow_body_commits_beside_a_process_that_commits_each_time_it_runs
-                return self._book.serving(transact)
+                with self.transaction(isolation=isolation, consistency=consistency) as tx:
+                    return body(tx, *args, **options)

a transaction is kept by the context of its own task
bokistore libs/tests/test_garbage.py::test_operations_leave_no_cycles
-        RUNNING.set(job.within)
+        pass

a host that is left sends heartbeats
bokirsm libs/tests/rsm/test_leaving.py::test_a_host_that_is_cancelled_while_it_leaves_is_taken_over
-            ends.push_async_callback(self._peers.__aexit__, kind, error, trace)
+            pass

a run by hand has the time of an old record
bokiflow libs/tests/flow/client/test_schedules.py::test_a_run_by_a_program_that_has_just_begun_is_not_before_what_it_may_read
-        await self._flow.log.newest_ms(at_most=await self._flow.log.book.now(consistency="linearizable"))
+        pass

a follower that ends tells nobody
bokilib libs/tests/test_deaf.py::test_a_deaf_consumer_raises_and_another_gets_its_messages
-            stack="" if isinstance(error, BokiError) else stack_of(error),
-        )
-        self._failed(self, error)
+            stack="",
+        )

a member that cannot read heartbeats sends its own
bokilib libs/tests/lib/follow/test_members.py::test_a_member_that_cannot_hear_heartbeats_stops_its_own
-        if isinstance(error, Exception):
-            self.fail(error)
+        pass

a store goes on serving objects that it does not follow any more
bokistore libs/tests/test_deaf.py::test_objects_that_are_not_followed_any_more_are_read_from_the_log
-        for name in list(self._views):
-            self._unfollow(name)
+        pass

a start that a worker cannot open keeps it from all partitions
bokiflow libs/tests/flow/worker/test_takeover.py::test_a_start_that_a_worker_cannot_open_waits_alone_until_one_can
-            unreadable[item.seqnum] = error
+            raise error

a workflow whose state is unknown keeps a worker from all others
bokiflow libs/tests/flow/worker/test_takeover.py::test_a_workflow_whose_state_is_of_a_later_version_waits_alone
-                if unreadable is None:
-                    raise
+                raise error

one partition that cannot be read stops the upkeep of all
bokiflow libs/tests/flow/retention/test_collector.py::test_upkeep_leaves_out_only_partitions_that_a_program_cannot_read
-            if len(partitions) == 1:
+            if partitions:

a workflow goes on without a message that its worker cannot open
bokiflow libs/tests/flow/worker/test_takeover.py::test_a_message_of_a_later_version_holds_up_its_workflow_alone
-                self._executors[id].block(error)
+                pass

a record of a later version among heartbeats ends the member's hearing
bokilib libs/tests/lib/follow/test_members.py::test_a_record_of_a_later_version_among_heartbeats_is_skipped
-                if error.retryable:
-                    raise
-                self._log_undecoded(
+                raise
+                self._log_undecoded(

a purge forgets the ids of what it drops
bokiqueue libs/tests/queue/test_purging.py::test_a_copy_of_what_was_purged_before_any_member_came_is_dropped
-        self.held = {id for id in self.held if id >= floor}
+        self.read = max(self.read, seqnum - 1)
+        self.held = {id for id in self.held if id >= floor}

messages are trimmed that a group has to compare
bokiqueue libs/tests/queue/test_purging.py::test_what_was_purged_is_not_trimmed_by_a_group_that_has_read_it
-starts = {group: found.config.window_from(group) for group in found.config.groups}
+starts = found.config.groups

a purge skips what its owner did not read
bokiqueue libs/tests/queue/test_purging.py::test_an_owner_that_had_not_read_what_is_purged_reads_its_ids
-        self._start = max(self._start, seqnum)
+        self._start = max(self._start, seqnum)
+        self.reached = max(self.reached, seqnum - 1)

a later attempt calls a part while an abandoned one holds its locks
bokiflow libs/tests/flow/execute/test_transaction_children.py::test_a_later_attempt_gets_the_locks_of_the_parts_that_were_abandoned
-            await self._wait_for_abandoned()
+            pass

an error of the code cuts off steps that run
bokiflow libs/tests/flow/worker/test_worker.py::test_steps_that_run_when_their_workflow_is_blocked_may_end_and_are_recorded
-                if self._finishing is not None and not self._tasks.steps:
+                if self._finishing is not None:

an error of the code drops what was delivered to it before
bokiflow libs/tests/flow/worker/test_worker.py::test_a_step_that_ended_is_recorded_though_the_code_after_it_is_stuck
-        if self._replay is not None:
-            self._block(error)
+        if True:
+            self._block(error)

a step that looks between two tries of a step that ends its worker is progress
bokiflow libs/tests/flow/worker/test_held_back.py::test_others_end_beside_a_workflow_that_ends_each_worker[looks_between]
-        return self._trimmed or (self._progressed and self._interrupted.isdisjoint(self._begun.values()))
+        return self._trimmed or self._progressed

the cancellation of a part may be ordered before its start
bokiflow libs/tests/flow/execute/test_transaction_children.py::test_a_part_whose_start_is_under_way_when_it_is_left_is_cancelled_after_it
-        if child in self._starts:
+        if False:

a record that says which parts are abandoned is not read
bokiflow libs/tests/flow/model/test_delivery_order.py::test_parts_may_run_until_they_are_abandoned_or_their_transaction_ended
-            left.get(event.key, {}).pop(event.child, None)
+            pass

events that older programs skip are in the rows of a checkpoint
bokiflow libs/tests/flow/model/test_history_fold.py::test_a_program_of_before_reads_a_checkpoint_with_events_that_it_does_not_know
-            if isinstance(event, PASSED):
+            if False:

a history that cannot be read stops all who wait
bokiflow libs/tests/flow/worker/test_takeover.py::test_an_error_of_a_takeover_reaches_those_who_wait_for_its_workflow_alone
-            if isinstance(error, BokiError) and not isinstance(error, inspection.UNREADABLE):
+            if True:

a stop is a failed attempt
bokiqueue libs/tests/queue/test_queue.py::test_only_a_handler_that_raised_is_a_failed_attempt
-    if stopped(error) or lost(error):
+    if False:

what waits for its key fills the memory
bokiqueue libs/tests/queue/model/test_delivery_rules.py::test_more_than_is_read_ahead_waits_for_a_key_and_another_key_passes
-        return len(self) - min(len(self.entries), self._following + len(self._later) + self._others)
+        return len(self)

a checkpoint's error hides what a pop took
bokiqueue libs/tests/queue/test_popper.py::test_what_a_pop_took_is_returned_though_its_checkpoint_fails
-            _ = self._spawn(self._checkpoint_behind(state))
+            await self._checkpoint(state)

a popper goes on with a state that it did not load to its end
bokiqueue libs/tests/queue/test_popper.py::test_a_popper_that_begins_while_others_trim_takes_nothing_twice
-            if await self._load_messages(state, found):
+            self._state = state
+            if await self._load_messages(state, found):

a popper takes trimmed records for those of a deleted queue
bokiqueue libs/tests/queue/test_popper.py::test_a_popper_that_begins_while_others_trim_takes_nothing_twice
-                if item.last > self._done_with.get(tag, 0):
+                if start > 1 and item.last > self._done_with.get(tag, 0):

a popper reads rewritten messages after the checkpoints that they go with
bokiqueue libs/tests/queue/test_popper.py::test_a_popper_that_begins_while_others_trim_takes_nothing_twice
-            found = await old_messages.newest(self._log, *self._place, await self._log.book.now())
-            whole = pop_state.below(await self._wholes(), self._flying)
+            whole = pop_state.below(await self._wholes(), self._flying)
+            found = await old_messages.newest(self._log, *self._place, await self._log.book.now())

a pop waits for the shards of one cursor
bokiqueue libs/tests/queue/test_popper.py::test_a_pop_waits_for_all_shards_though_a_cursor_has_fewer
-        tags_of = [one.messages for one in chosen]
+        tags_of = [one.messages for one in chosen][:CURSOR_TAGS]

what ended a wait is the end of its record
bokiqueue libs/tests/queue/consume/test_handlers.py::test_a_wait_that_was_ended_proves_nothing_about_its_record
-    return False if isinstance(error, BokiError) and error.definite else None
+    return None if isinstance(error, BokiError) and not error.definite else False

any unknown record that happened is the ACK
bokiqueue libs/tests/queue/consume/test_handlers.py::test_a_record_of_unknown_outcome_that_the_body_appended_itself_is_no_ack
-                happened = False if error is raised else await _happened(error)
+                happened = await _happened(error)

a shard that comes back from a carrier was left by a dead process
bokiqueue libs/tests/queue/manage/test_carrying.py::test_a_shard_that_is_carried_from_a_member_that_lives_is_no_death
-        if spares(self._last, self._scope):
+        if self._last is None:

a shard that is being taken is not released
bokiqueue libs/tests/queue/test_leaving.py::test_a_member_that_ends_while_it_takes_a_shard_leaves_it_to_the_others_at_once
-            await owner.withdraw()
-            self._taking.pop(shard, None)
+            self._taking.pop(shard, None)

the log keeps the guard of a message whose lease ran out
bokiqueue libs/tests/queue/consume/test_consumer.py::test_a_lease_that_ran_out_before_its_member_ended_is_no_failed_attempt
-            if id in schedule.progress.guarded:
+            if False:
@@
-        assert id not in self.progress.guarded, "the log has its guard, and has to have its end too"

a redrive holds what is no letter
bokiqueue libs/tests/queue/test_redriving.py::test_letters_behind_more_than_a_prefetch_of_other_messages_are_moved
-    return item.source is not None
+    return True
@@
-        assert source is not None, "the consumer delivers dead letters only"
+        if source is None:
+            return True

files of any cluster are deleted
spark spark/tests/offload/test_folder.py::test_files_of_other_clusters_are_of_nobody_here
-        if above == f"{CLUSTER}{instance}":
+        if above.startswith(CLUSTER):

one ledger that cannot be deleted ends the round
logbook logbook/tests/engine/upkeep/test_reclaim.py::test_a_ledger_that_cannot_be_deleted_holds_up_no_other
-                self._try_later(term, now_s, error)
+                raise

empty gzip members are not counted
gateway gateway/tests/calls/test_encodings.py::test_members_that_stand_for_nothing_are_counted
-        if self._members > MEMBERS:
+        if self._members > MEMBERS and False:

a record of machines expects no claim
bokirsm libs/tests/rsm/test_host.py::test_a_zombie_that_hears_of_no_claim_commits_nothing
-    return {tags.rsm_owner(group, one): claims[one] for one in partitions}
+    return {}

an output of a machine is answered apart from its delivery
bokirsm libs/tests/rsm/test_output_faults.py::test_an_output_is_answered_once_wherever_its_host_dies
-            self._add(Done(self._id, self._declared.name, tuple(batch), messages))
+            self._add(Done(self._id, self._declared.name, (), messages))
+            await asyncio.sleep(0.05)
+            self._add(Done(self._id, self._declared.name, tuple(batch)))

what became of outputs expects no claim
bokirsm libs/tests/rsm/test_output_faults.py::test_a_delivery_that_comes_late_is_answered_by_the_next_owner_alone
-        self._partitions[partition_of_event(event)] = None
+        if not isinstance(event, Done):
+            self._partitions[partition_of_event(event)] = None

a part that expects something of the log joins the commit of a machine
bokirsm libs/tests/rsm/test_parts_of_others.py::test_a_part_that_may_fail_is_a_fault_of_its_handler
-        if part.expect:
+        if False:

parts of other libraries are not in the record of the commit
bokirsm libs/tests/rsm/test_parts_of_others.py::test_a_queue_a_store_and_a_workflow_change_with_the_commit_by_one_record
-            self._parts.extend(beside.parts)

an event in no record becomes a fault that has none
bokirsm libs/tests/rsm/lane/test_at_most_once.py::test_an_event_whose_handler_fails_gets_a_record_and_is_a_fault_that_moves
-        if isinstance(item, InboxMessage) and item.seqnum == UNRECORDED:
+        if False:

a record of the next owner is taken for the one in flight
bokirsm libs/tests/rsm/test_output_faults.py::test_an_output_whose_record_is_lost_is_not_delivered
-        mine = item.envelope.by == self._log.by
+        mine = True

a checkpoint leaves out the outputs that wait
bokirsm libs/tests/rsm/test_output_faults.py::test_outputs_below_a_checkpoint_and_those_of_a_dead_host_are_delivered
-        rows += self.outputs.rows(covers)

an output that fails holds up those of other machines
bokirsm libs/tests/rsm/plugins/test_deliveries.py::test_whatever_a_plugin_raises_other_machines_go_on
-                self._set_aside(machine)
+                pass

a plugin that exits ends its host
bokirsm libs/tests/rsm/plugins/test_deliveries.py::test_whatever_a_plugin_raises_other_machines_go_on
-        except BaseException as error:
-            if from_outside(error):
-                raise
-            raise DeliveryFailed(
+        except Exception as error:
+            if from_outside(error):
+                raise
+            raise DeliveryFailed(

a delivery that hangs has no end
bokirsm libs/tests/rsm/plugins/test_deliveries.py::test_a_delivery_that_hangs_is_cancelled_and_other_machines_go_on
-        await asyncio.wait({call}, timeout=self._declared.timeout_s)
+        await asyncio.wait({call})

outputs of a machine fill the memory of its host
bokirsm libs/tests/rsm/plugins/test_deliveries.py::test_a_machine_whose_outputs_are_too_many_waits_and_no_other_does
-        if self._is_held(machine):
+        if False:

a host that leaves ends the deliveries that run
bokirsm libs/tests/rsm/test_output_faults.py::test_calls_that_run_may_end_before_their_partition_is_released
-            await asyncio.wait(calls, timeout=DRAIN_S)
+            pass

a partition joins a lane before earlier events to it are delivered
bokirsm libs/tests/rsm/lane/test_lane.py::test_events_sent_before_their_machine_joined_the_lane_come_first
-            await self._delivered_up_to(position)

an append of unknown outcome ends a lane
bokirsm libs/tests/rsm/lane/test_unknown_outcomes.py::test_an_append_of_unknown_outcome_changes_no_trace
-                if not error.definite:
+                if False:

a lane whose sender has looked for the last time does not begin it again
bokirsm libs/tests/rsm/test_host.py::test_a_host_that_dies_is_replaced_after_its_lease
-        self._begin_sending()  # a handler may have run after the task's last look

a lane that cannot continue keeps its host alive
bokirsm libs/tests/rsm/lane/test_unknown_outcomes.py::test_others_take_over_from_a_host_whose_lane_cannot_append
-        self._failed(error)

a snapshot refers to parts that a carrier may have trimmed
bokirsm libs/tests/rsm/lane/test_checkpoints.py::test_a_copy_by_a_carrier_is_noticed_before_its_parts_are_referred_to
-            self.expect[item.tag] = item.alone.newest
+            pass

a checkpoint lacks the ids that have expired by the newest record
bokirsm libs/tests/rsm/model/test_partition_state.py::test_a_checkpoint_has_the_ids_that_records_above_it_are_compared_with
-            one for one in self._firsts if one.seqnum > covers or one.time_ms >= self._covered_ms - DEDUP_MS
+            one for one in self._firsts if one.time_ms >= self._firsts[-1].time_ms - DEDUP_MS

records of machines expect no claim in a simulated cluster
bokirsm libs/tests/rsm/test_simulated.py::test_on_models_each_event_is_handled_once_and_days_change_nothing
-    return {tags.rsm_owner(group, one): claims[one] for one in partitions}
+    return {}

a lane adopts the claim of another host
bokirsm libs/tests/rsm/test_simulated.py::test_on_models_each_event_is_handled_once_and_days_change_nothing
-                mine = {one: self._owner.mine[one] for one in kept if one in self._owner.mine}
+                mine = {one: self._owner._claims.newest[one].seqnum for one in kept}
+                self._owner.mine.update(mine)

a partition that was claimed again while its lane read it joins with the newest claim
bokirsm libs/tests/rsm/lane/test_claims.py::test_a_claim_lost_and_made_again_during_a_read_needs_another
-                if self._owner.mine.get(one) == mine[one]:  # else another owner may have committed above the position
-                    self._join(one, mine[one], state, position)
+                if one in self._owner.mine:
+                    self._join(one, self._owner.mine[one], state, position)

a lane joins with a claim twice
bokirsm libs/tests/rsm/lane/test_claims.py::test_claims_lost_and_made_again_under_a_record_in_flight_join_once
-            states = {one: state for one, state in states.items() if one not in self._claims}

a decision that is read before the answer of its fault's append is lost
bokirsm libs/tests/rsm/lane/test_lane_faults.py::test_a_resume_counts_that_is_read_before_the_answer_of_the_append
-        if mine and item.record.seqnum > self._newest_own and self._in_flight is not None:
+        if False:

each partition of a record of machines goes through all of it
bokirsm libs/tests/rsm/lane/test_cost.py::test_a_record_of_many_partitions_costs_what_its_events_cost
-                state.apply_shares(seqnum, now_ms, shares, keeps=not by_log)
+                state.apply(seqnum, now_ms, record.size, events)

a handler that creates many machines counts as one item
bokirsm libs/tests/rsm/lane/test_cost.py::test_handlers_that_create_many_machines_leave_turns_to_others
-            left -= 1 + (len(record.sent) - sent) // SENDS + (record.size - size) // ITEM_BYTES
+            left -= 1

a machine that changed since its snapshot is dropped from memory
bokirsm libs/tests/rsm/lane/test_residents.py::test_what_waits_or_is_not_in_a_snapshot_stays
-            if machine is not None and machine.is_clean and text not in self._ready and not self._is_touched(text):
+            if machine is not None:

the ages of the parts of a large machine are forgotten when it is read again
bokirsm libs/tests/rsm/lane/test_residents.py::test_a_large_machine_that_is_read_again_knows_how_old_its_parts_are
-KeptPart(ref, len(data), ms, -age)
+KeptPart(ref, len(data), ms, 0)

a host keeps what comes to a full inbox
bokirsm libs/tests/rsm/client/test_full_inboxes.py::test_what_comes_to_a_full_partition_is_read_once_there_is_room
-        if partition in self._full:
+        if False:

an event that a host passed over because its inbox was full is not read again
bokirsm libs/tests/rsm/client/test_full_inboxes.py::test_what_comes_to_a_full_partition_is_read_once_there_is_room
-                self._follow_from(one, self._delivered[one] + 1)
+                self._follow_from(one, self._follower.position + 1)

a machine of a full partition waits for the event that it does not defer
bokirsm libs/tests/rsm/test_full_inbox_faults.py::test_a_takeover_keeps_no_more_than_the_bound_of_what_waits
-            if self._takes_ahead(ahead, state, id, message):
+            if False:

a host that takes a partition over keeps all that waits there
bokirsm libs/tests/rsm/test_full_inbox_faults.py::test_a_takeover_keeps_no_more_than_the_bound_of_what_waits
-        if one.kept_to is None and one.waiting > self._share and sum(each.waiting for each in states) > self._limit:
+        if False:

what a lane sends to a full partition overtakes what waits in the log
bokirsm libs/tests/rsm/test_full_inbox_faults.py::test_what_a_machine_sent_before_it_moved_comes_before_what_it_sends_afterwards
-            if partition in self._claims and partition not in self._behind:
+            if partition in self._claims:

a partition that is read again misses records that it shares with others
bokilib libs/tests/lib/follow/test_follower.py::test_a_stream_that_begins_again_misses_nothing_that_it_shares_with_another
-        if self._cursor is not None and (self._held or self._cursor.ready):
+        if False:

an answer that was asked for before a tag was added is taken
sdk logbook/tests/sdk/test_cursor.py::test_a_tag_that_is_added_while_an_answer_arrives_begins_with_its_oldest_record
-        if call.cancelled() or request.added != self._followed.added:
+        if call.cancelled():

a creation by key does not look for its machine where inboxes are full
bokirsm libs/tests/rsm/client/test_full_inboxes.py::test_a_machine_that_exists_is_found_by_its_key_in_a_full_partition
-            found = await self._existing_now(ref, part, init) if key is not None else None
+            found = None

a host that died full refuses events without end
bokirsm libs/tests/rsm/client/test_full_inboxes.py::test_a_host_that_is_silent_for_its_lease_refuses_nothing
-                if machine.partition in said.partitions and now_s < said.until_s:
+                if machine.partition in said.partitions:

a machine that ended is dropped from memory with the events that came meanwhile
bokirsm libs/tests/rsm/lane/test_memory.py::test_an_event_to_one_that_ended_is_not_lost_by_a_checkpoint
-            if self._state_of(text) == k and self._machines[text].is_over:
+            if text in self._machines:

a question behind the skip of a fault is answered by the fault
bokirsm libs/tests/rsm/lane/test_lane_faults.py::test_a_question_behind_a_skip_is_handled
-        if machine.ref.partition in self._closing or machine.fault is None or machine.fault.skip:
+        if machine.ref.partition in self._closing:

a claim expects no record above the last one that a library wrote
bokilib libs/tests/lib/partitions/test_claims.py::test_a_record_that_no_library_wrote_is_passed_over
-        return max(claimed, self._passed.get(partition, 0))
+        return claimed

a creation by key whose machine is forgotten meanwhile raises a Conflict
bokirsm libs/tests/rsm/lane/test_keys.py::test_a_key_that_is_free_again_meanwhile_is_created
-                if found is not None:
-                    return found
+                return found

the fault of a creation that was skipped stays open
bokirsm libs/tests/rsm/model/test_partition_state.py::test_a_creation_that_was_dropped_ends_its_fault
-            if machine in self.faults and self.faults[machine].message in taken:
+            if False:

a timer of a lost record fires for that of the next attempt
bokirsm libs/tests/rsm/lane/test_timers.py::test_a_timer_of_a_lost_record_does_not_fire_for_the_next_one
-        if timer is None or item.times != (timer.set_ms, timer.due_ms, timer.k):
+        if timer is None or item.times.k != timer.k:

a handler may answer more processes than a record has tags
bokirsm libs/tests/rsm/lane/test_lane_faults.py::test_answers_to_too_many_processes_are_a_fault_of_their_machine_alone
-    if streams > RECORD_TAGS:
+    if False:

a fault answers all who wait by one event
bokirsm libs/tests/rsm/lane/test_lane_faults.py::test_a_fault_answers_more_processes_than_a_record_has_tags
-        event = Faulted(machine.text, id, timer, found.work.event, text, stack, replies[:ANSWERS])
+        event = Faulted(machine.text, id, timer, found.work.event, text, stack, replies)

a question is answered while the partition of its faulted machine is released
bokirsm libs/tests/rsm/lane/test_lane_faults.py::test_a_question_during_a_release_is_answered_by_the_owner
-        if machine.ref.partition in self._closing or machine.fault is None or machine.fault.skip:
+        if machine.fault is None or machine.fault.skip:

children of a machine whose key was used again have the names of the first ones
bokirsm libs/tests/rsm/lane/test_keys.py::test_a_key_that_is_used_again_gives_children_of_its_own
-    name = f"{stem}{CHILD}{life}.{number}" if life else f"{stem}{CHILD}{number}"
+    name = f"{stem}{CHILD}{number}"

a machine that got events before its creation loses its key
bokirsm libs/tests/rsm/lane/test_keys.py::test_a_machine_that_got_events_before_its_creation_keeps_its_key
-            machine.digest = found.item.message.digest
+            pass

machines of a process share a dict that is an attribute of their class
bokirsm libs/tests/rsm/machine/test_declaration.py::test_a_class_that_cannot_work_is_refused
-    try:
-        hash(value)
-    except TypeError:
-        return False
-    return True
+    return True

the members of a set are stored in the order that they have in one process
bokirsm libs/tests/rsm/machine/test_values.py::test_sets_have_the_same_bytes_in_all_processes
-        return tuple(sorted(members, key=_encoder.encode)) if members else value
+        return value

a record that no library wrote keeps the next host from its partition
bokirsm libs/tests/rsm/lane/test_poison.py::test_a_record_that_is_unreadable_means_the_same_to_each_host
-        if is_foreign(error):
-            return None
-        raise
+        raise

a host handles what comes behind a record that it cannot open
bokirsm libs/tests/rsm/lane/test_poison.py::test_a_record_that_is_unreadable_means_the_same_to_each_host
-        self._closing.add(partition)
-        self._deliveries.leave(partition)
-        self._spawn(partial(self._stop, partition))
+        pass

a creation that was skipped keeps its key without end
bokirsm libs/tests/rsm/lane/test_keys.py::test_the_key_of_a_creation_that_was_skipped_is_free_after_its_retention
-            return self._never_born(machine, found)
+            return self._commit(machine, found, Commit(machine.text, DROPPED))

all timers of a machine are one row of a checkpoint
bokirsm libs/tests/rsm/model/test_partition_state.py::test_many_timers_of_a_machine_fit_parts
-        rows += [
-            Row(_TIMER, machine, name.encode(), encode(one))
-            for machine, times in self.timers.items()
-            for name, one in times.items()
-        ]
+        rows += [Row(_TIMERS, machine, b"", encode(times)) for machine, times in self.timers.items()]

an event may be larger than a checkpoint can carry
bokirsm libs/tests/rsm/lane/test_memory.py::test_the_largest_event_fits_a_checkpoint
-    if size > COMMIT_BYTES:
-        raise AtomicTooLarge(
+    if False:
+        raise AtomicTooLarge(

a part that is larger than what one head writes is not written again
bokirsm libs/tests/rsm/model/test_parts.py::test_a_large_part_beside_a_small_one_that_changes_is_written_again
-_rewritten(parts, kept.generation, len(data) + kept.saved)
+_rewritten(parts, kept.generation, len(data))

an event whose values are not of their types is sent, and stops its machine
bokirsm libs/tests/rsm/client/test_rsm.py::test_values_of_other_types_are_refused_before_anything_is_sent
-    body = codec.encode(event)
-    codec.check(body, event)
-    return name, body
+    body = codec.encode(event)
+    return name, body

a handler emits and sends values that are not of their types
bokirsm libs/tests/rsm/machine/test_handling.py::test_a_value_of_another_type_is_a_fault_of_the_handler_that_gives_it
-    body = codec.encode(event)
-    codec.check(body, event)
-    return name, body
+    body = codec.encode(event)
+    return name, body

a value of a subclass is cut to what its declared type has
bokirsm libs/tests/rsm/machine/test_values.py::test_a_value_that_its_type_would_cut_is_refused
-            check_equal(self._kind, value, back)
+            pass

a default of a register is not compared with the declared type
bokirsm libs/tests/rsm/machine/test_declaration.py::test_a_class_that_cannot_work_is_refused
-        if self.default is not None:
+        if False:

a first event is compared by all fields of its class
bokirsm libs/tests/rsm/client/test_rsm.py::test_a_key_is_one_machine_after_a_deploy_that_adds_a_field
-name_of(type(first)), canonical(first, short=True))
+name_of(type(first)), canonical(first))

a digest that an earlier release noted of a first event is not known
bokirsm libs/tests/rsm/client/test_rsm.py::test_a_key_is_one_machine_after_a_deploy_that_adds_a_field
-        if isinstance(init, Event):
+        if False:

a deduplication id is one of a partition
bokirsm libs/tests/rsm/model/test_partition_state.py::test_a_deduplication_id_is_one_of_its_machine
-    return f"{len(to)}/{to}/{dedup}"
+    return dedup

a partition of machines that moves brings events that were taken
bokirsm libs/tests/rsm/test_simulated.py::test_on_models_each_event_is_handled_once_and_days_change_nothing
-if one.seqnum == SAME_RECORD else one for one in commit.took]
+if one.seqnum == SAME_RECORD else MessageId(0, 0) for one in commit.took]

a timer of a machine fires although it was set again
bokirsm libs/tests/rsm/test_simulated.py::test_on_models_each_event_is_handled_once_and_days_change_nothing
-        if timer is None or item.times != (timer.set_ms, timer.due_ms, timer.k):
+        if timer is None:

a timer of a machine fires although it was cancelled
bokirsm libs/tests/rsm/test_simulated.py::test_on_models_each_event_is_handled_once_and_days_change_nothing
-        if name in self._timers or name in self._before.timers:
+        if name in self._timers:

a question to a machine is answered before the commit
bokirsm libs/tests/rsm/test_simulated.py::test_on_models_each_event_is_handled_once_and_days_change_nothing
-            part = record.contribution(self._claims)
+            part = record.contribution(self._claims)
+            answers = tuple(Commit(one.id, DROPPED, replies=one.replies) for one in record.events() if one.replies)
+            if answers:
+                streams = dict.fromkeys(tags.rsm_replies(two.asker.rpartition("/")[0]) for one in answers for two in one.replies)
+                await self._log.append(Contribution(tuple(streams), {}, answers), settle=True)

copies of an event to a machine are handled
bokirsm libs/tests/rsm/test_simulated.py::test_on_models_each_event_is_handled_once_and_days_change_nothing
-        if self._dedup.twice(_copy_key(message.to, message.dedup), time_ms):
+        if False:

timers of machines are lost when their partition moves
bokirsm libs/tests/rsm/test_simulated.py::test_on_models_each_event_is_handled_once_and_days_change_nothing
-        for text, times in state.timers.items():
+        for text, times in ():

a lane sends a record before the outcome of the one before it
bokirsm libs/tests/rsm/test_fenced_records.py::test_an_event_of_a_lost_record_is_handled_by_no_machine_before_it_is_sent_again
-            async with self._turn:
-                if self._records[0]:
-                    await self._append_first()
-            self._schedule()
+            self._spawn(self._append_first)
+            await asyncio.sleep(0)
+            self._schedule()
@@
-        assert self.seqnum, "the record before is in the log when the next one is sealed"

a lane keeps what it handled after a record that was lost
bokirsm libs/tests/rsm/test_fenced_records.py::test_an_event_of_a_lost_record_is_handled_by_no_machine_before_it_is_sent_again
-        self._records.clear()
-        self._records.append(self._new_record())
-        pause = pauses()
+        pause = pauses()
@@
-        assert all(partition not in record.partitions for record in self._records), (
-            "commits have a claim that they expect"
-        )
@@
-        assert self.seqnum, "the record before is in the log when the next one is sealed"

a checkpoint of a partition expects no claim
bokirsm libs/tests/rsm/test_fenced_records.py::test_of_two_owners_the_checkpoint_of_the_older_one_comes_too_late
-        self.expect[fence] = claim
+        if isinstance(item.event, Snapshot):
+            self.expect[fence] = claim

a snapshot of a machine expects no claim
bokirsm libs/tests/rsm/test_fenced_records.py::test_of_two_owners_the_checkpoint_of_the_older_one_comes_too_late
-        self.expect[fence] = claim
+        if isinstance(item.event, Checkpoint):
+            self.expect[fence] = claim

a copy of a snapshot expects no place of its machine
bokirsm libs/tests/rsm/test_fenced_records.py::test_a_carriers_copy_comes_too_late_if_the_owner_wrote_a_snapshot_meanwhile
-        made = await append_states(self._log, states, fence)
+        made = {
+            one.stream: await self._log.append(Contribution((one.stream,), fence, (one.event,)), settle=True)
+            for one in states
+        }

a partition of machines is trimmed before its checkpoint is in the log
bokirsm libs/tests/rsm/test_fenced_records.py::test_nothing_is_trimmed_before_the_checkpoint_that_covers_it_is_in_the_log
+            for one in shots.partitions:
+                await self._log.book.trim([(tags.rsm_partition(self._app.name, one.state.partition), one.covers + 1)])
             written = await self._writer.write(shots, dict(self._claims))

a snapshot that is trimmed between two reads counts as none
bokirsm libs/tests/rsm/test_fenced_records.py::test_a_snapshot_that_is_copied_and_trimmed_between_two_reads_is_found
-        if not newest or await _is_newest(log, tag, newest, at_most):
+        if True:

a snapshot whose parts are trimmed during a read counts as none
bokirsm libs/tests/rsm/lane/test_loading.py::test_a_snapshot_that_is_replaced_and_trimmed_during_a_read_is_read_again
-            if not left:
-                raise
-            continue
-        if not newest
+            return MachineStream()
+        if not newest

commits of a machine are applied without their number
bokirsm libs/tests/rsm/test_fenced_records.py::test_commits_that_a_snapshot_has_are_not_applied_again
-        if commit.k > state.k:
-            if commit.k != state.k + 1:
-                raise LookupError(f"{commit.id}: expected commit {state.k + 1}, found {commit.k}")
-            state.apply(commit)
-    return state
+        state.apply(msgspec.structs.replace(commit, k=state.k + 1))
+    return state

a checkpoint leaves out the events that wait
bokirsm libs/tests/rsm/test_fenced_records.py::test_a_checkpoint_has_the_events_that_wait_below_it
-            for id, message in self.pending.items()
-            if id.seqnum <= covers
+            for id, message in self.pending.items()
+            if False

answers of machines are a record of their own
bokirsm libs/tests/rsm/test_fenced_records.py::test_a_question_is_answered_once_wherever_its_host_dies
-            part = record.contribution(self._claims)
+            part = record.contribution(self._claims)
+            answers = tuple(Commit(one.id, DROPPED, replies=one.replies) for one in part.events if one.replies)
+            if answers:
+                streams = dict.fromkeys(tags.rsm_replies(two.asker.rpartition("/")[0]) for one in answers for two in one.replies)
+                await self._log.append(Contribution(tuple(streams), {}, answers), settle=True)
+                events = tuple(__import__("msgspec").structs.replace(one, replies=()) for one in part.events)
+                part = Contribution(part.tags, part.expect, events)

the firing of a timer is a record without a claim
bokirsm libs/tests/rsm/test_handler_effects.py::test_a_timer_fires_once_though_two_hosts_take_the_machine_for_theirs
-            machine.inbox.append(due.firing)  # one that is set no more is recognised when it is handled
+            timer = machine.state.timers.get(due.firing.name) if machine.state is not None else None
+            if timer is not None:
+                fired = Inputs(self._app.name, (Message(machine.text, timer.event, timer.body),))
+                part = Contribution((tags.rsm_partition(self._app.name, machine.ref.partition),), {}, (fired,))
+                self._spawn(partial(self._log.append, part))
@@
-    Faulted,
-    Message,
-    MessageId,
-    OfLane,
-    Reply,
+    Faulted,
+    Inputs,
+    Message,
+    MessageId,
+    OfLane,
+    Reply,

a timer that fires by a record without a claim fires after it was cancelled
bokirsm libs/tests/rsm/test_handler_effects.py::test_a_timer_that_is_due_while_it_is_cancelled_does_not_fire_afterwards
-            machine.inbox.append(due.firing)  # one that is set no more is recognised when it is handled
+            timer = machine.state.timers.get(due.firing.name) if machine.state is not None else None
+            if timer is not None:
+                fired = Inputs(self._app.name, (Message(machine.text, timer.event, timer.body),))
+                part = Contribution((tags.rsm_partition(self._app.name, machine.ref.partition),), {}, (fired,))
+                self._spawn(partial(self._log.append, part))
@@
-    Faulted,
-    Message,
-    MessageId,
-    OfLane,
-    Reply,
+    Faulted,
+    Inputs,
+    Message,
+    MessageId,
+    OfLane,
+    Reply,

a creation by key expects no machine of the key to be new
bokirsm libs/tests/rsm/test_handler_effects.py::test_a_key_is_not_free_before_the_retention_of_its_machine_is_over
-        return Contribution((partition, machine), {machine: None}, (event,), self._origin), ref
+        return Contribution((partition, machine), {}, (event,), self._origin), ref

the key of a machine that halted is free once its snapshot is old
bokirsm libs/tests/rsm/test_handler_effects.py::test_a_key_is_not_free_before_the_retention_of_its_machine_is_over
-(max(self._retention_ms, carry_ms) if head.event.digest else carry_ms)
+carry_ms

a creation by a machine joins the stream of what it creates
bokirsm libs/tests/rsm/test_handler_effects.py::test_a_handler_creates_a_thousand_machines_by_one_record
-        streams += [tags.rsm_replies(process) for process in self._processes]
+        streams += [tags.rsm_replies(process) for process in self._processes]
+        streams += [tags.rsm_machine(self._group, one.message.to.split("/", 2)[2]) for one in self.sent if one.message.kind]

values that a handler changed in place outlive it
bokirsm libs/tests/rsm/test_handler_effects.py::test_changes_in_place_of_a_handler_that_failed_are_gone
-            value = self._registers[field.stored] = field.codec.decode(data)
+            value = self._volatile.setdefault(f"{field.stored} as it was decoded", field.codec.decode(data))
+            self._registers[field.stored] = value
@@
-            machine.volatile = {}
-            machine.failures += 1
+            machine.failures += 1

volatile values of a handler that failed stay
bokirsm libs/tests/rsm/test_handler_effects.py::test_changes_in_place_of_a_handler_that_failed_are_gone
-            machine.volatile = {}
-            machine.failures += 1
+            machine.failures += 1

the time of machines is that of the clock of their host
bokirsm libs/tests/rsm/test_handler_effects.py::test_the_time_of_machines_is_that_of_the_log
-        world = World(machine.ref, self._log.now_ms(), self._tokens, self
+        world = World(machine.ref, round(__import__("time").time() * 1_000), self._tokens, self

a host claims the partitions of living ones
bokirsm libs/tests/rsm/test_neighbours.py::test_a_partition_of_a_living_host_is_claimed_after_its_release
-        return moves(self.name, self._planned(), self._owner.standings(self._peers.is_gone)).take
+        return moves(self.name, self._planned(), self._owner.standings(lambda holder: True)).take

a host takes back at once what another one took
bokirsm libs/tests/rsm/test_neighbours.py::test_hosts_that_disagree_move_a_partition_once_a_round
-        if is_due:
-            self._owner.lost.clear()
-        await self._round()
+        self._owner.lost.clear()
+        await self._round()

hosts of machines are members of the workers of the same name
bokirsm libs/tests/rsm/test_neighbours.py::test_workers_of_workflows_of_the_same_name_are_no_hosts
-Peers(opened, tags.rsm_group(app.name), name, lease_s,
+Peers(opened, app.name, name, lease_s,

a host object adopts the claims of an earlier one of its name
bokirsm libs/tests/rsm/test_neighbours.py::test_a_host_object_claims_what_an_earlier_one_of_its_name_and_log_had
-        await self._owner.take(self._to_claim)
-        try:
+        for one, newest in enumerate(self._owner._claims.newest):
+            if newest is not None and newest.who.rpartition(".")[0] == self.name.rpartition(".")[0]:
+                self._owner.mine[one] = newest.seqnum
+        await self._owner.take(self._to_claim)
+        try:

one member's lost claim ends all who shared the record
bokilib libs/tests/lib/append/test_batcher.py::test_who_expected_in_vain_gets_a_conflict_and_the_others_are_in_the_log_once
-        failed = [one for one in several if isinstance(error, Conflict) and self._log.moved(one.part.expect, error)]
+        failed = [one for one in several if isinstance(error, Conflict)]

a fold ends below its last record
bokistore libs/tests/store/read/test_checkpoint_reads.py::test_what_is_forgotten_makes_nothing_else_unreadable
-        async for item in self._log.book.read(subject.stream, start=start, stop=max(last, covers) + 1):
+        async for item in self._log.book.read(subject.stream, start=start, stop=max(last, covers)):
@@
-                raise error
-
-    async def check_nothing(
+                raise error
+        if newest.record is not None and newest.record.seqnum == last > covers:
+            yield Read(newest.record, await self._log.open(newest.record))
+
+    async def check_nothing(

finding nothing as of a place proves that nothing was there
bokistore libs/tests/store/read/test_checkpoint_reads.py::test_finding_nothing_as_of_a_place_does_not_prove_that_nothing_was_there
-            await self.check_nothing(Subject(name), at)
+            pass

in a new book a missing object is missing as of no place
bokistore libs/tests/store/read/test_snapshot_reads.py::test_what_is_missing_in_a_new_book_can_be_written_blind
-self._log.book.position or FIRST)
+self._log.book.position or 0)
@@
-                    if known.view.seen:
+                    if True:

an object that was forgotten and written again has no history
bokistore libs/tests/store/read/test_checkpoint_reads.py::test_an_object_that_is_forgotten_and_written_again_during_a_read_is_whole
-            if not await self._misses(subject, start, covers, now.record.seqnum):
-                return

a history that is replaced twice during a read is missing
bokistore libs/tests/store/read/test_checkpoint_reads.py::test_a_history_that_is_replaced_again_and_again_during_a_read_is_not_missing
-            if after.places != now.places:
+            if False and after.places != now.places:

a transaction that was given up gets a turn
bokistore libs/tests/store/commit/test_group_commit.py::test_a_transaction_given_up_while_its_record_loses_leaves_no_turn
-        if job.future.done():
-            return
-        job.losses += 1
+        job.losses += 1

an error of the driver ends only those that are ready
bokistore libs/tests/store/commit/test_group_commit.py::test_an_error_of_the_driver_ends_all_whose_record_was_split
-            for job in (*jobs.values(), *self._ready.values()):
+            for job in list(self._ready.values()):

a turn is kept for an owner without end
bokistore libs/tests/store/commit/test_jobs.py::test_a_turn_is_kept_for_an_owner_no_longer_than_a_body_may_run
-            self._hold(job)
+            job.held = True

the streams of many locks are one read
bokiflow libs/tests/flow/locks/test_lock_reading.py::test_a_record_that_a_locks_stream_has_no_more_is_none_of_its
-(_records(opened, name, position) for name in left)
+(_records(opened, name, position, left) for name in left)
@@
-async def _records(opened: Log, name: str, position: int) ->
+async def _records(opened: Log, name: str, position: int, left: list[str]) ->
@@
-tags=[stream, tags.lock_checkpoint(name)], start=1
+tags=[*map(tags.lock, left), tags.lock_checkpoint(name)], start=1

a workflow that ended is still run by its process
bokiflow libs/tests/flow/tables/test_swaps.py::test_a_zombie_whose_operation_is_forgotten_writes_nothing
-            if envelope.by == log.by and state.ended is None and known == start:
+            if envelope.by == log.by and known == start:

transactions of workflows commit one by one
bokiflow libs/tests/flow/runtime/test_transactional.py::test_workflows_that_change_one_object_at_once_take_few_records
-            if isinstance(command.store, StagingStore):
+            if False and isinstance(command.store, StagingStore):

a process that lost a record sends the next one at once
bokistore libs/tests/store/commit/test_turns.py::test_a_process_that_loses_pauses_longer_each_time_and_unlike_others
-        return pause_s, wanted
+        return 0.0, wanted

a look asks for the time twice
bokiqueue libs/tests/queue/consume/test_consumer.py::test_a_message_that_comes_due_during_a_look_is_handed_out_by_the_next_one
-owner.take_deliveries(room, now_s)
+owner.take_deliveries(room, now_s + 1.0)

a lost transaction is a failed attempt
bokiqueue libs/tests/queue/test_queue.py::test_only_a_handler_that_raised_is_a_failed_attempt
-isinstance(error, Conflict | Fenced | AppendUnknown | StaleReceipt)
+isinstance(error, AppendUnknown | StaleReceipt)

messages are dropped where there are no dead letters
bokiqueue libs/tests/queue/test_queue.py::test_a_queue_of_an_older_version_without_dead_letters_drops_nothing_more
-        return self.max_deliveries if self.dead_letter is not None else 0
+        return self.max_deliveries

the state of a schedule is read from the stream of what it emitted
bokiflow libs/tests/flow/client/test_schedules.py::test_its_state_is_known_after_its_history_was_rewritten
-    try:
-        return schedule_rules.fold(await inspection.whole_history(log, id))
-    except Trimmed:  # the workflow ended in between
-        return None
+    from bokiflow.model.flow_events import PICKER, Emitted
+    from bokilib.records.tags import flow_output
+
+    record = await log.book.read_prev(flow_output(id, _STATE), consistency="linearizable")
+    while record is not None:
+        for event in PICKER.of(record.seqnum, await log.open(record), about=id):
+            if isinstance(event, Emitted):
+                state = msgspec.convert(event.value, schedule_rules.State)
+                return schedule_rules.View(state, state)
+        record = await log.book.read_prev(flow_output(id, _STATE), at_most=record.seqnum - 1)
+    return None

a schedule that is refused ends the setting of all
bokiflow libs/tests/flow/client/test_schedules.py::test_one_that_is_refused_holds_up_no_other
-            log.error("schedule not set: it was refused", name=plan.name, error=str(error))
+            raise

the outcome of an append that is cancelled is not looked for
bokilib libs/tests/flow/worker/test_starts.py::test_a_workflow_whose_start_was_cancelled_runs_once
-            except asyncio.CancelledError:
-                unanswered(ticket)
-                raise
+            except asyncio.CancelledError:
+                raise

a start whose outcome the log does not tell is not read
bokiflow libs/tests/flow/worker/test_starts.py::test_a_workflow_whose_start_has_no_known_outcome_for_long_runs_once
-        if outcome is None or isinstance(outcome, boki.Committed):
+        if isinstance(outcome, boki.Committed):

children of a workflow that was stopped meanwhile are left
bokiflow libs/tests/flow/worker/test_starts.py::test_a_child_whose_parent_is_terminated_before_its_start_is_answered_ends
-                self._operate(work, partial(self._appended, batch), stopped=stopped)
+                self._operate(work, partial(self._appended, batch))

a workflow begins without what was read before its start was answered
bokiflow libs/tests/flow/worker/test_starts.py::test_a_message_that_is_read_before_the_answer_to_its_workflows_start_arrives
-        if self._open and (not started.at_ms or self._passed.may_be_after(started.id, seqnum)):
+        if self._open and not started.at_ms:

parts of a worker are left after its workflows have stopped, or never
bokiflow libs/tests/flow/worker/test_leaving.py::test_others_take_over_from_a_worker_that_was_cancelled_while_it_was_left
-        self._peers.stop()  # first: a worker that is cancelled while it leaves is dead to others too
+        pass
@@
-            for part in (self.flow, self._peers, self._follower, self.locks):
-                parts.push_async_exit(part)
+            pass
@@
-            await self._stop()
+            await self._stop()
+            for part in (self.flow, self._peers, self._follower, self.locks):
+                parts.push_async_exit(part)

calls wait on when their client is left
bokiflow libs/tests/flow/client/test_results.py::test_calls_fail_when_the_client_is_left_and_wait_again_once_it_is_entered
-        self.failed_all(self._failed or ClosedError(LEFT))
+        pass

a call that is given up is remembered
bokiflow libs/tests/flow/client/test_results.py::test_calls_that_are_given_up_are_forgotten_and_their_workflows_unfollowed
-        if future.cancelled():
-            self._take(
+        if not future.cancelled():
+            self._take(

a worker is drained from any event loop
bokiflow libs/tests/flow/worker/test_leaving.py::test_calls_from_another_loop_are_refused_before_anything_is_done
-        check_here(self._loop, "worker.drain()", ADVICE)
+        pass

a schedule that ended is never set again
bokiflow libs/tests/flow/client/test_schedules.py::test_one_that_ended_is_set_again_by_the_next_program
-        while held is not None and held.ended is not None:
+        while held is None and id == "":

damaged files of a copied term are no reason to copy it again
spark spark/tests/offload/test_offloader.py::test_a_copied_term_with_a_lost_or_damaged_file_is_offloaded_again
-            damage = await damage_of(self._files, location.path)
+            damage = ""

copied terms are looked at no more
spark spark/tests/offload/test_offloader.py::test_a_survey_finds_copied_terms_that_lost_a_file
-        else await _incomplete(files, folder, copied)
+        else []

a stream passes unread terms that are gone
spark spark/tests/plan/test_stream_planner.py::test_unread_records_that_were_trimmed_with_their_term_are_a_loss
-        if trimmed and self._options.fail_on_data_loss:
+        if False:

what was gone when a stream began is a loss
spark spark/tests/plan/test_stream_planner.py::test_what_was_gone_when_a_stream_began_is_no_loss_and_what_goes_later_is
-    return () if begin.names_a_position else rules.gone_ahead(committed, first)
+    return ()

a committed batch is skipped without a look at its rows
spark spark/tests/sink/test_sink_writer.py::test_a_second_write_of_a_committed_batch_with_other_rows_is_an_error
-            rules.check_committed(step.commit, self._partition, tally, step.end)
+            pass

a committed batch is skipped without a look at its partitions
spark spark/tests/sink/test_sink_writer.py::test_a_second_write_of_a_committed_batch_with_other_partitions_is_an_error
-                rules.check_same_partitions(step.commit, (one.partition for one in self._ended))
+                pass

a term that was asked for and not copied is a success
spark_tools spark/tests/test_commands.py::test_what_is_not_copied_is_named_with_its_reason
-        if made.error or (chosen.terms and not made.manifest):
+        if made.error:

any connection goes on with a scan
logbook logbook/tests/engine/scan/test_handles.py::test_a_scan_is_of_the_connection_that_began_it
-        if scan is None or scan.owner is not owner:
+        if scan is None:

a peer that does not ask begins any number of named writers
logbook logbook/tests/engine/test_intake.py::test_a_peer_that_asks_for_no_writer_does_not_fill_a_book_with_named_ones
-            if begins and self._named.get(run.book, 0) >= most
+            if False and self._named.get(run.book, 0) >= most

a book that has named writers is kept
sdk logbook/tests/sdk/test_client.py::test_books_with_named_writers_are_dropped_and_stay_one_object_while_in_use
-all(writer.idle for writer in (self._writers or {}).values())
+not self._writers

a consumer whose end is cancelled beats on
bokiqueue libs/tests/queue/test_cancelled.py::test_whatever_is_cancelled_at_any_turn_others_get_all
-        failed = await asyncio.shield(self._leaving)
+        failed = await self._leaving
@@
-            return await self._release_shards()
-        finally:
-            await self._end()
+            failed = await self._release_shards()
+        except asyncio.CancelledError:
+            raise
+        await self._end()
+        return failed

a block whose end is cancelled keeps its shards
bokiqueue libs/tests/queue/test_cancelled.py::test_a_stop_that_is_cancelled_at_any_turn_releases_the_shards
-        failed = await asyncio.shield(self._leaving)
+        failed = await self._leaving

a drain of a consumer ends with its caller
bokiqueue libs/tests/queue/test_cancelled.py::test_a_stop_that_is_cancelled_at_any_turn_releases_the_shards
-            self._left_drains.add(drain)
+            drain.cancel()

a drain of a handler ends with its caller
bokiqueue libs/tests/queue/test_cancelled.py::test_a_stop_that_is_cancelled_at_any_turn_releases_the_shards
-name="bokiqueue drain")
-        return await asyncio.shield(drain)
+name="bokiqueue drain")
+        return await drain

a handler that is cancelled again while it ends stays a member
bokiqueue libs/tests/queue/test_cancelled.py::test_a_handler_that_ends_slowly_and_is_cancelled_again_leaves_its_group
-            await self._leave(cut_off)
+            del cut_off

handlers are not stopped during a drain
bokiqueue libs/tests/queue/test_cancelled.py::test_handlers_of_a_member_taken_for_dead_are_stopped_whatever_it_does
-        ends = [*self._tasks, *self._giving.values()]
+        ends = [*self._tasks, *self._giving.values(), *filter(None, [self._guarding])]

handlers are stopped by what waits for the log itself
bokiqueue libs/tests/queue/test_cancelled.py::test_handlers_of_a_member_taken_for_dead_are_stopped_whatever_it_does
-        guard = self._guard_rounds.run(self._guard, _raise)
+        guard = self._guard_rounds.run(lambda due: asyncio.sleep(0), _raise)
@@
-        await self._move()
+        await self._guard(is_due)
+        await self._move()

iteration over a consumer that was left waits
bokiqueue libs/tests/queue/test_left.py::test_who_waits_for_a_consumer_that_is_left_or_drained_gets_its_end
-            if self._draining or not self._member_now:
+            if self._draining:

a consumer is entered twice at once
bokiqueue libs/tests/queue/test_left.py::test_a_consumer_is_entered_once_at_a_time
-        if self._entered:
-            raise UsageError(
-                f"consumer
+        if False:
+            raise UsageError(
+                f"consumer

a handler is run twice at once
bokiqueue libs/tests/queue/test_left.py::test_a_handler_that_runs_is_not_run_beside_itself
-        if self._entered:
-            raise UsageError(
-                f"the handler
+        if self.consumer is not None:
+            raise UsageError(
+                f"the handler

a workflow fails because of a consumer that was left
bokiqueue libs/tests/queue/test_left.py::test_a_workflow_waits_for_a_message_of_a_consumer_that_is_not_entered
-        async for message in self._messages:
-            return message
-        raise NotEntered(
+        return await anext(self._messages)
+        raise NotEntered(

a popped message is lost with an error of its type
bokiqueue libs/tests/queue/test_popper.py::test_a_popped_message_whose_type_raises_is_in_the_error
-    except BaseException as error:
-        if not isinstance(error, Exception) and from_outside(error):
+    except NotEncodable as error:
+        if not isinstance(error, Exception) and from_outside(error):

a pop that is interrupted while its message is decoded loses it
bokiqueue libs/tests/queue/test_popper.py::test_a_pop_that_is_interrupted_within_the_type_of_its_message_loses_none
-                    popper.leave(item)

generators that workflows leave half-way are closed by the worker's own loop
bokiflow libs/tests/flow/runtime/test_flow_loop.py::test_replays_of_any_order_ask_for_the_same_steps
-        sys.set_asyncgen_hooks(firstiter=None, finalizer=self._left)
+        pass

cycles of objects are collected while workflow code runs, and outside of it closed with effect
bokiflow libs/tests/flow/runtime/test_flow_loop.py::test_a_generator_in_a_cycle_that_calls_a_step_stops_the_code
-            if outer is not None and not outer.is_closed():
-                outer.call_soon_threadsafe(self._found_in_cycle, generator)
+            pass

a value whose own code raises is no NotEncodable
bokilib libs/tests/lib/records/test_codec.py::test_a_value_whose_own_code_raises_is_refused
         return msgspec.to_builtins(value, enc_hook=_dump_model)
-    except _OF_VALUES as fault:
+    except (TypeError, ValueError, RecursionError) as fault:

an error that is no outcome of a step leaves its workflow waiting in silence
bokiflow libs/tests/flow/execute/test_executor.py::test_an_error_that_is_no_outcome_of_a_step_holds_the_workflow_up_aloud
-                self._on_failed(
+                print(

what JSON is converted to shares its lists and dicts
bokilib libs/tests/flow/execute/test_executor.py::test_what_code_changes_in_place_is_not_what_its_history_has
-    value = copy_json(value)
-    try:
+    try:

the body of a transaction of a workflow gets what its run before left
bokiflow libs/tests/flow/execute/test_executor.py::test_what_code_changes_in_place_is_not_what_its_history_has
-            return signature.stored(await body(tx, *copied(given), **copied(named)))
+            return signature.stored(await body(tx, *given, **named))

the next attempt of a step gets what the one before left
bokiflow libs/tests/flow/execute/test_body.py::test_each_attempt_gets_the_arguments_as_they_were_given
-            value = await _attempt(step, copied(args), copied(options), bodies
+            value = await _attempt(step, args, options, bodies

rows of tables are handed out from the cache
bokiflow libs/tests/flow/tables/test_shared_values.py::test_a_row_that_a_caller_changes_in_place_changes_no_other
-        return None if self.cells is None else copy_json(dict(self.cells))
+        return None if self.cells is None else dict(self.cells)

a message or object is stored that would be read as another value
bokilib libs/tests/lib/records/test_codec.py::test_what_would_come_back_as_another_value_is_refused
-    if kind is not object and kind is not Any:
-        check_same(kind, value, made)
+    if False:
+        check_same(kind, value, made)

a tuple of a declared type is refused
bokilib libs/tests/lib/records/test_codec.py::test_what_is_stored_comes_back
-    if isinstance(plain, (list, tuple)):
+    if type(plain) is list:

what is declared as any JSON is read as another value
bokilib libs/tests/lib/records/test_codec.py::test_what_would_come_back_as_another_value_is_refused
-    check_equal(kind, value, back, exact=True)
+    check_equal(kind, value, back)

models of pydantic are read by their aliases alone
bokilib libs/tests/lib/records/test_codec.py::test_what_is_stored_comes_back
-    by_name = {"by_name": True} if
+    by_name = {"by_name": False} if

keys of a dict that become one drop an entry
bokilib libs/tests/lib/records/test_codec.py::test_what_would_come_back_as_another_value_is_refused
-        if text in made:
+        if text is made:

a payload hook may return something else than bytes
bokilib libs/tests/lib/append/test_log.py::test_a_hook_that_returns_no_bytes_is_an_error
-    if not isinstance(made, (bytes, bytearray, memoryview)):
+    if False:

spans that raise end the tasks of workflows
bokiflow libs/tests/flow/execute/test_traces.py::test_spans_that_raise_hold_up_nothing
-        self._tracing: Final = _Guarded(tracing or installed())
+        self._tracing: Any = tracing or installed()

a reason of a dead letter is not looked at
bokiqueue libs/tests/queue/test_refused_letters.py::test_a_reason_that_is_no_short_text_is_refused_at_once
-        sent = self._owner.give_up(self.receipt, check_reason(reason))
+        sent = self._owner.give_up(self.receipt, reason)

a dead letter that is refused ends the owner of its shard
bokiqueue libs/tests/queue/test_refused_letters.py::test_a_letter_that_fits_no_record_holds_up_no_other_decision
-            if not box.letters:
+            if True:

a dead letter that cannot be encoded ends the owner of its shard
bokiqueue libs/tests/queue/test_refused_letters.py::test_a_letter_that_cannot_be_encoded_holds_up_no_other_decision
-            if box.letters and not encodable(one.events):
+            if False:

a contribution that cannot be encoded fails those that share its record
bokilib libs/tests/lib/append/test_batcher.py::test_what_cannot_be_encoded_fails_its_caller_alone
-        refused = [] if isinstance(error, BokiError) else [one for one in several if not encodable(one.part.events)]
+        refused: list[_Waiter] = []

a contribution that a payload hook refuses fails those that share its record
bokilib libs/tests/queue/test_refused_letters.py::test_what_a_batcher_refuses_fails_its_caller_alone
-        except (Conflict, AtomicTooLarge, PayloadHookFailed) as error:
+        except (Conflict, AtomicTooLarge) as error:

a block that exits is redelivered at once, without end
bokiqueue libs/tests/queue/test_queue.py::test_a_block_that_exits_fails_its_attempt
-    return isinstance(error, STOPS)
+    return not isinstance(error, Exception)

a handler's function decides about its message beside its transaction
bokiqueue libs/tests/queue/consume/test_handlers.py::test_a_function_that_decides_about_its_message_itself_fails_before_that
-        message.held_by = f"the handler {self.name!r}"
+        pass

a step decides about its message beside its transaction
bokiqueue libs/tests/queue/consume/test_receiving.py::test_a_step_that_acks_its_message_itself_fails_before_anything_is_sent
-        message.held_by = "a workflow's step"
+        pass

letters of a deleted queue end a redrive
bokiqueue libs/tests/queue/test_redriving.py::test_letters_of_deleted_queues_are_passed_over_and_named
-                self._missing.add(queue)
-                return None
+                raise settings.no_such_queue(queue)

letters of deleted queues are left without a word
bokiqueue libs/tests/queue/test_redriving.py::test_letters_of_deleted_queues_are_passed_over_and_named
-in sorted(self.left.items()):
+in ():

an error that cannot be shown hides the end of a member
bokilib libs/tests/lib/follow/test_members.py::test_a_member_whose_error_cannot_be_shown_is_known_to_have_failed
-member=self.name, error=described(error)
+member=self.name, error=repr(error)

a wrong value that cannot be shown raises another error than the one that names it
bokilib libs/tests/lib/test_stacks.py::test_a_value_that_cannot_be_shown_is_named_by_its_type
-        return f"a value of type {type(value).__qualname__}, which cannot be shown"
+        raise

letters go round in a circle of queues
bokiqueue libs/tests/queue/test_redriving.py::test_letters_that_would_come_back_to_their_queue_are_refused
-        if name in path or len(path) > LETTER_QUEUES:
+        if name in path:
+            break
+        if len(path) > LETTER_QUEUES:

two changes together close a circle of queues of dead letters
bokiqueue libs/tests/queue/test_redriving.py::test_of_changes_that_would_close_a_circle_together_one_is_refused
-    return Contribution((), {tags.queue_config(one): snapshot for one in path[1:]})
+    return Contribution()

a letter that dies among the letters forgets its first queue
bokiqueue libs/tests/queue/test_redriving.py::test_a_letter_that_dies_among_the_letters_goes_back_to_its_first_queue
-            return item.source
+            pass

a popped queue gets dead letters
bokiqueue libs/tests/queue/test_redriving.py::test_a_popped_queue_is_refused_for_dead_letters
-        if found is not None and found.config.mode != "consume":
+        if False:

delays run by a clock that is ahead of the log's
bokiqueue libs/tests/queue/test_durable_times.py::test_a_delay_is_as_long_as_it_was_set_for_while_the_logs_time_stands_still
-            ahead_ms=self._ahead_ms,
+

a delay is written down by a clock that is ahead of the log's
bokiqueue libs/tests/queue/test_durable_times.py::test_a_delay_of_an_owner_before_is_no_longer_while_the_logs_time_stands_still
-        due_ms = self._log.now_ms() + lost.delay_ms if lost.delay_ms else 0
+        due_ms = self._clock.now_ms(self._now_s()) + lost.delay_ms if lost.delay_ms else 0

names of streams that UTF-8 cannot encode raise no Boki error
bokilib libs/tests/store/test_wrong_names.py::test_reads_of_names_that_cannot_be_encoded_are_refused
-    except UnicodeEncodeError as fault:
-        raise InvalidArgument(
-            f"expected a name that
+    except ZeroDivisionError as fault:
+        raise InvalidArgument(
+            f"expected a name that

a transaction stages a name that no record can hold
bokistore libs/tests/store/test_wrong_names.py::test_names_are_text_that_utf8_can_encode
-    return check_text("the name of an object", name)
+    return name

a path that no record can hold is staged
bokistore libs/tests/store/test_wrong_names.py::test_paths_are_text_that_utf8_can_encode
-    check_text("a path", path)
+    pass

an expiry time is larger than an integer of a record
bokistore libs/tests/store/test_wrong_names.py::test_an_expiry_time_fits_a_record
-not 0 <= at_ms <= LATEST_MS
+at_ms < 0

names of messages and queues are not looked at
bokiqueue libs/tests/queue/test_wrong_arguments.py::test_names_are_text_that_utf8_can_encode
-    check_text(f"a {what}", name)
+    pass

options of a member are not looked at
bokiqueue libs/tests/queue/test_wrong_arguments.py::test_times_and_limits_are_finite_numbers
-    check_lease(member_lease_s)
+    pass

members beat under names that others cannot decode
bokilib libs/tests/queue/test_wrong_arguments.py::test_members_and_claims_have_names_of_text
-        self.name: Final = check_text("a member's name", name)
+        self.name: Final = name

a defect while old messages are read leaves a shard in silence
bokiqueue libs/tests/queue/test_defects.py::test_a_shard_whose_messages_cannot_be_read_ends_its_member
-                self._failed(error)
+                pass

a member's guard ends in silence
bokiqueue libs/tests/queue/test_defects.py::test_a_member_without_its_guard_ends
-        self._guarding.add_done_callback(self._guard_ended)
+        pass

a defect while a record is appended leaves its decisions unanswered
bokiqueue libs/tests/queue/test_defects.py::test_decisions_of_a_record_that_a_defect_keeps_back_are_answered
-            box.fail(error)  # also for a defect: none of its callers waits without end
+            pass

a defect of a batcher leaves its callers unanswered
bokilib libs/tests/lib/append/test_batcher.py::test_a_defect_of_a_sender_fails_its_callers_and_is_logged
-                    one.fail(error)  # a defect: none of them waits without end
+                    pass

a defect ends a carrier in silence
bokilib libs/tests/lib/retention/test_carrier.py::test_a_carrier_goes_on_after_a_defect_and_logs_it
-            except Exception as error:  # noqa: BLE001 - no caller awaits this task: it is logged, and the carrier continues
+            except ZeroDivisionError as error:

a defect ends the checkpoints of a store in silence
bokistore libs/tests/store/retention/test_upkeep.py::test_a_defect_of_one_checkpoint_is_logged_and_others_are_made
-            except Exception as error:  # noqa: BLE001 - no caller awaits this task: it is logged, and others are tended
+            except ZeroDivisionError as error:

a signal or cancellation goes to the workers of the sender's app
bokiflow libs/tests/flow/client/test_handles.py::test_a_handle_of_another_app_of_the_book_reaches_the_workflow
-        return records.InstanceStreams(self.id, call.group) if
+        return records.InstanceStreams(self.id, self._flow.group) if

a child of an earlier workflow of an id is taken for that of the next one
bokiflow libs/tests/flow/retention/test_collector.py::test_a_child_of_a_forgotten_workflow_is_not_that_of_the_next_one_with_its_id
-        return state.start > after and (there
+        return (there
@@
-    return began is not None and began[0] > after and (began
+    return began is not None and (began

a schedule takes that of another app for its own
bokiflow libs/tests/flow/client/test_schedules.py::test_apps_of_one_book_have_schedules_of_one_name
-        return group not in (None, "", self._flow.group)
+        return False

a schedule takes the ids of firings of another app's that was set again
bokiflow libs/tests/flow/client/test_schedules.py::test_the_second_app_of_a_schedules_name_keeps_its_ids_when_the_first_is_gone
-        elif is_others or (held is None and
+        elif is_others or (held is ... and

a schedule that another app sets at the same time is given up
bokiflow libs/tests/flow/client/test_schedules.py::test_apps_that_set_a_schedule_of_one_name_at_once_both_have_it
-                if not left or not self._is_others(
+                if not self._is_others("") or not self._is_others(

workflows of other apps in a stream of attributes hide those of this app
bokiflow libs/tests/flow/history/test_inspection_attributes.py::test_records_of_other_groups_in_its_stream_hide_none
-        wanted = further
+        wanted = []

ids of rounds of other apps count as tried
bokiflow libs/tests/flow/client/test_debounce.py::test_many_apps_of_a_book_debounce_calls_of_one_id
-                if tried - of_others == ATTEMPTS:
+                if tried == ATTEMPTS:

signals that fit no record with a restart are not handed on
bokiflow libs/tests/flow/execute/test_restarts.py::test_signals_that_fit_no_record_are_handed_on
-    if not restarted.unreceived or size_of(restarted) <= EVENT_BYTES:
+    if restarted:

the parts of a restart are trimmed with the run before it
bokiflow libs/tests/flow/execute/test_restarts.py::test_old_parts_are_trimmed_and_a_checkpoint_has_all_signals
-min([*waiting, history.restart_from or restart, restart])
+min([*waiting, restart])

a signal after a restart goes to a task of the run before
bokiflow libs/tests/flow/execute/test_restarts.py::test_a_signal_that_comes_after_a_restart_and_before_its_record_is_kept
-            if self.outcome is not None:  # delivered by a replay
+            if self.outcome is ...:  # delivered by a replay

a restart in a group of tasks fails the workflow
bokiflow libs/tests/flow/execute/test_restarts.py::test_a_restart_counts_in_whatever_task_it_is_called
-    if isinstance(error, BaseExceptionGroup):
-        found = [restart_of
+    if error is ...:
+        found = [restart_of

a restart in a task that no code awaits has no effect
bokiflow libs/tests/flow/execute/test_restarts.py::test_a_restart_counts_in_whatever_task_it_is_called
-            self._restart_for_task()
+            pass

a cancellation after a restart in a task is lost with the run
bokiflow libs/tests/flow/execute/test_restarts.py::test_a_cancellation_after_a_restart_in_a_task_ends_the_workflow
-                self._restart = None
+                pass

values of an ended workflow that are trimmed are left out
bokiflow libs/tests/flow/client/test_handles_events.py::test_values_of_an_ended_workflow_are_missed_after_its_history_is_trimmed
-            if ended is None or ended.ended is None or
+            if ended is not None or ended is None or ended.ended is None or

values of runs before a restart are left out
bokiflow libs/tests/flow/client/test_handles_events.py::test_what_a_run_before_a_restart_emitted_is_missed_once_it_is_trimmed
-        if found.start <= gap.last:
+        if found.start > gap.last:

values of a fork's origin are left out
bokiflow libs/tests/flow/client/test_handles_events.py::test_a_fork_of_a_workflow_that_restarted_is_told_what_its_origin_emitted
-            self._missing = item.seqnum  # values
+            pass  # values

a signal of a workflow goes to the workers of its own app
bokiflow libs/tests/flow/client/test_in_atomic.py::test_a_workflow_signals_one_of_another_app
-            return addresses.signal(self._host.log, notice, self.place.group)
+            pass

a signal in a record of another library goes to the workers of the sender's app
bokiflow libs/tests/flow/client/test_in_atomic.py::test_a_signal_reaches_the_workflow_of_another_app
-    return _of(flow, addresses.signal(flow.log, event, flow.group))
+    return _of(flow, records.send(records.InstanceStreams(id, flow.group), event))

a record of machines forgets the addresses of its parts
bokirsm libs/tests/rsm/test_parts_of_others.py::test_a_queue_a_store_and_a_workflow_change_with_the_commit_by_one_record
-        return Contribution(tuple(streams), expected, events, addresses=addresses)
+        return Contribution(tuple(streams), expected, events)

a workflow that is started while it is signalled is not looked at again
bokiflow libs/tests/flow/client/test_in_atomic.py::test_a_signal_to_an_id_that_is_started_meanwhile_reaches_it
-        return place.to_workers, {place.fence: None} if is_free else {}
+        return place.to_workers, {}

a letter of one group is redriven to all
bokiqueue libs/tests/queue/test_letters_of_groups.py::test_a_letter_goes_back_to_the_group_that_gave_it_up_alone
-producer.part([back], group))
+producer.part([back]))

a redrive expects no settings of the queue
bokiqueue libs/tests/queue/test_letters_of_groups.py::test_a_group_that_registers_meanwhile_gets_no_letter_of_another
-                tx.add(Contribution((), expect))
+                pass

rewritten messages forget their group
bokiqueue libs/tests/queue/test_letters_of_groups.py::test_letters_of_a_group_are_rewritten_for_that_group_alone
-    if not any(isinstance(one.item, GroupItem) for one in items):
+    if True:

an owner waits for messages of other groups
bokiqueue libs/tests/queue/test_letters_of_groups.py::test_a_letter_goes_back_to_the_group_that_gave_it_up_alone
-            if not is_for(item, self._group):
+            if False:

a letter that names no group goes to all
bokiqueue libs/tests/queue/test_letters_of_groups.py::test_letters_of_older_versions_go_to_an_only_group_and_else_are_left
-(self.all_groups and config.groups) or (single and not own and self.group is None)
+(self.all_groups and config.groups) or (not own and self.group is None)

a copy among the letters goes back to their first queue
bokiqueue libs/tests/queue/test_letters_of_groups.py::test_a_letter_that_another_group_of_letters_gives_up_goes_back_to_it
-        if item.source is not None and self._group == GROUP:
+        if item.source is not None:

a push does not follow the settings
bokiqueue libs/tests/queue/test_made_again.py::test_pushes_of_a_key_keep_their_order_across_programs
-            expect = {tag: known}
+            expect: dict[str, int] = {}

a pop does not expect the settings
bokiqueue libs/tests/queue/test_made_again.py::test_a_popper_of_a_deleted_queue_takes_nothing_of_the_next_one
-Contribution((self._pops,), self._expect(), (Popped
+Contribution((self._pops,), {}, (Popped

a popper says that a queue is empty by old settings
bokiqueue libs/tests/queue/test_made_again.py::test_a_popper_of_fewer_shards_finds_what_is_in_the_others
-            await self._read_settings()
-            if self.config.streams
+            if self.config.streams

strays are not moved
bokiqueue libs/tests/queue/test_made_again.py::test_contributions_to_shards_that_are_gone_are_moved_and_counted
-            await strays.move(self._log, config.queue)
+            pass

two movers move a stray twice
bokiqueue libs/tests/queue/test_made_again.py::test_movers_at_the_same_time_move_each_message_once
-{tag: snapshot, tags.queue_config(config.queue): snapshot}
+{tags.queue_config(config.queue): snapshot}

the shards of a deletion that is trimmed are forgotten
bokiqueue libs/tests/queue/test_made_again.py::test_what_is_pushed_once_the_deletion_is_trimmed_is_found
-SHARDS_MOST if found is None
+0 if found is None

a member follows the shards of a queue that is gone
bokiqueue libs/tests/queue/test_made_again.py::test_members_of_a_queue_that_was_made_again_with_other_shards_end
-        if (config.shards, config.mode) != self._made:
+        if False:

unique numbers are counted with the steps before them
bokiflow libs/tests/flow/runtime/test_unique_numbers.py::test_a_step_that_a_patch_puts_before_a_payment_does_not_change_its_key
-        key = self._loop.next_unique_key() if self._counts_uniques() else self._loop.next_key()
+        key = self._loop.next_key()

changes of rows are counted with the steps before them
bokiflow libs/tests/flow/tables/test_swaps.py::test_a_step_that_a_patch_puts_before_a_change_does_not_change_its_name
-            return self.started.at_ms, self._derived(self._loop.next_change_key())
+            return self.started.at_ms, self._derived(self._loop.next_key())

changes of rows are named by the time of their call
bokiflow libs/tests/flow/tables/test_swaps.py::test_a_step_that_a_patch_puts_before_a_change_does_not_change_its_name
-            return self.started.at_ms, self._derived(self._loop.next_change_key())
+            return self.now_ms, self._derived(self._loop.next_change_key())

unique numbers of older programs are counted by themselves
bokiflow libs/tests/flow/runtime/test_unique_numbers.py::test_keys_stay_those_of_an_older_program_that_ran_it_in_between
-        if not self.own_uniques:
+        if False:

a fork forgets how its origin counts unique numbers
bokiflow libs/tests/flow/runtime/test_unique_numbers.py::test_a_fork_pays_with_the_keys_of_its_origin
-        started, origin=history.started.id, names=names, cursors=cursors, own_uniques=own_uniques
+        started, origin=history.started.id, names=names, cursors=cursors, own_uniques=False

a bound in bytes trims whole minutes
bokiflow libs/tests/flow/retention/test_collector.py::test_a_burst_within_a_minute_leaves_the_newest_histories_of_both_kinds
-                if left <= 0:
+                if False:

failed histories go before the others
bokiflow libs/tests/flow/retention/test_collect_rules.py::test_failed_workflows_and_others_have_half_of_the_bound_each
-        left = totals[failed] - (most_bytes - min(totals[not failed], most_bytes // 2))
+        left = sum(totals.values()) - most_bytes

a history without a mark is taken for the old way
bokiflow libs/tests/flow/client/test_replayer.py::test_a_deprecated_patch_continues_what_took_the_new_way
-        if self._replaying and name not in self._patches:
+        if False:
""")
