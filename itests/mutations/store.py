"""What can be taken out of the common ground of libraries and of stores: see docs/defects.md for what each is about."""

from __future__ import annotations

from typing import Final

from itests.mutations.patch import patches

STORE_MUTATIONS: Final = patches(r"""
a checkpoint expects nothing
bokistore libs/tests/store/retention/test_checkpointer.py::test_a_checkpointer_at_any_point_of_another
-{**expect, tag: last}, (event,))
+{}, (event,))

trimmed is by the newest checkpoint
bokilib libs/tests/store/retention/test_checkpointer.py::test_snapshots_within_the_grace_are_still_there
-    previous = wholes[1]
+    previous = wholes[0]
     return Marks(
@@
-        previous = wholes[1]
+        previous = wholes[0]
         if not self._young

a checkpoint is made without counting again
bokistore libs/tests/store/retention/test_checkpointer.py::test_processes_that_all_see_it_grow_do_not_all_make_the_checkpoint
-        if not state.records or (records and not due(state.records, state.size, records, size)):
+        if not state.records:

parts of two writers make one checkpoint
bokilib libs/tests/lib/retention/test_checkpoint_rules.py::test_parts_of_two_writers_are_never_one_checkpoint
-(part.by, part.covers, part.parts, part.part + 1) != (
-            before.by,
+(part.covers, part.parts, part.part + 1) != (

a deletion leaves the checkpoints alone
bokistore libs/tests/store/retention/test_checkpointer.py::test_what_is_deleted_stays_deleted_and_its_records_go
-                joined[tags.store_checkpoint(event.name)] = None
+                pass

a deletion goes before its object is seen to be forgotten
bokistore libs/tests/store/retention/test_checkpointer.py::test_what_is_made_anew_while_it_is_being_forgotten_can_be_read
-                if await self._is_forgotten(subject.stream):
+                if True:

a deletion ends what follows in its record
bokistore libs/tests/store/retention/test_upkeep.py::test_what_is_deleted_and_made_anew_in_one_transaction_is_there
-seqnum - 1 if created else seqnum, 0, 1
+seqnum, 0, 1

what is idle stays where it is
bokilib libs/tests/store/retention/test_upkeep.py::test_whole_terms_can_go_though_nothing_happens
-    return now_ms - wholes[0].time_ms >= ages.carry_ms
+    return newest > wholes[0].covers

retention begins anew with each carry
bokistore libs/tests/store/retention/test_upkeep.py::test_of_what_is_deleted_nothing_is_left_after_the_retention
-[_end(subject, snapshot, last.ended_ms)]
+[_end(subject, snapshot, last.time_ms)]

an object and a bucket of one name share checkpoints
bokistore libs/tests/store/retention/test_upkeep.py::test_an_object_and_a_bucket_of_the_same_name_are_distinguished
-        if isinstance(event, of_checkpoints) and event.name == subject.name:
+        if isinstance(event, (Checkpoint, DirectoryCheckpoint)) and event.name == subject.name:

two claim one fence
bokilib libs/tests/lib/append/test_fence.py::test_of_many_who_want_it_one_gets_it
-Contribution((self.tag,), expect, (Claimed(
+Contribution((self.tag,), {}, (Claimed(

a heartbeat counts from its answer
bokilib libs/tests/lib/follow/test_members.py::test_a_lease_counts_from_when_the_heartbeat_was_sent
-self._acked, self._acked_sent_s = seqnum, sent_s
+self._acked, self._acked_sent_s = seqnum, self._now()

serializable expects what is written only
bokilib libs/tests/store/test_histories.py::test_serializable_histories_have_no_cycle
-[*written, *read] if isolation == "serializable" else written
+[*written]

of two snapshots the later is expected
bokilib libs/tests/lib/records/test_isolation.py::test_of_two_snapshots_the_lower_is_expected
-is None else min(before, seqnum)
+is None else max(before, seqnum)

who ran on another's state expects its writes only
bokistore libs/tests/store/commit/test_group_commit.py::test_who_ran_on_anothers_state_expects_what_it_read_at_snapshot_isolation_too
-            part = joined([part, reads])
+            pass

who ran on the state of one that lost stands
bokistore libs/tests/store/commit/test_group_rules.py::test_who_ran_on_the_state_of_one_that_failed_runs_again_and_so_on
- or member.ran_on & (out | rerun.keys()))
+)

an error is raised before what it came of is in the log
bokistore libs/tests/store/commit/test_group_commit.py::test_an_error_that_came_of_what_did_not_happen_is_not_raised
-        if not writes and not member.ran_on:
+        if not writes:

who has nothing in a record gets its outcome
bokistore libs/tests/store/commit/test_group_commit.py::test_who_has_nothing_in_a_record_gets_no_outcome_of_it
-            bystanders = [job for job in jobs if not member_of(job).part.events]
+            bystanders: list[Job[Any]] = []

a run on the state of members of another record joins
bokistore libs/tests/models/test_groups.py::test_in_every_schedule_it_is_as_if_one_came_after_the_other
-    if outdated(member, newest) or not member.ran_on <= draft.numbers:
+    if outdated(member, newest):

a slow body has no turn
bokistore libs/tests/store/commit/test_bodies.py::test_a_slow_body_on_a_hot_object_commits_and_others_go_on
-        if losses >= self._losses:
+        if losses < 0:

a scan expects nothing
bokistore libs/tests/store/test_objects_collection.py::test_a_scan_of_a_serializable_transaction_is_disturbed_by_who_comes_and_goes
-        self.staging.scans(collection)

any view is believed
bokistore libs/tests/store/model/test_view_format.py::test_aux_data_of_another_record_is_nothing
-    if not aux or aux[: _CRC.size] != _crc(seqnum, aux[_CRC.size :]):
+    if not aux:

a fold passes over a gap
bokistore libs/tests/store/read/test_snapshot_reads.py::test_a_history_trimmed_without_a_checkpoint_is_not_taken_for_a_whole_one
-                    await self._check_replaced(subject, newest, start, covers, error)
-                raise error
+                    continue
+                raise error

a snapshot is given what came after it
bokistore libs/tests/store/test_objects.py::test_reads_at_a_snapshot_are_of_it
-            if known is None or (at is not None and known.view.seen > at):
+            if known is None:

what is known here counts though the log was not read
bokistore libs/tests/models/test_open_snapshots.py::test_a_body_sees_one_state_and_what_it_returns_holds
-        return not self.stale and (self.from_log or not self.bases)
+        return True

an error of the read behind an operation says that nothing was applied
bokistore libs/tests/store/test_objects.py::test_an_error_of_the_read_behind_an_operation_does_not_deny_it
-        except BokiError as missing:  # whatever it says of the read, the operation is in the log
+        except NoSuchObject as missing:

an error behind the first append of an operation says that nothing was applied
bokilib libs/tests/test_definite_errors.py::test_a_definite_error_is_true_wherever_the_log_refuses
-        raise PartlyApplied(f"{done}: {error}") from error
+        raise

views of one state that saw different places are different
bokistore libs/tests/store/commit/test_open_snapshot.py::test_views_of_one_state_that_saw_different_places_hold_together
-    return before.expires_ms == after.expires_ms and same(before.content, after.content)
+    return False

a snapshot goes on over what changed
bokistore libs/tests/models/test_open_snapshots.py::test_a_body_sees_one_state_and_what_it_returns_holds
-        if any(name not in found or not unchanged(base, found[name]) for name, base in self.bases.items()):
+        if any(name not in found for name in self.bases):

what a member did not expect is known after its record
bokistore libs/tests/store/commit/test_open_snapshot.py::test_what_a_member_did_not_expect_is_not_known_after_its_record
-for name, base in known.items() if store_object(name) in member.part.expect}
+for name, base in known.items()}

a sweep takes who was given more time
bokistore libs/tests/store/retention/test_upkeep.py::test_objects_whose_time_is_over_go_by_themselves
-    if not view.exists or view.expires_ms != at_ms:
+    if not view.exists:

a name outlives the object whose time is over
bokistore libs/tests/store/retention/test_upkeep.py::test_objects_whose_time_is_over_go_by_themselves
-        tx.enter(collection, id, there=False)
+        pass
     tx.delete(name)

an object is read from memory whatever the session has seen
sdk libs/tests/store/read/test_followed.py::test_what_the_session_saw_in_another_book_is_seen
- <= within_s and self.view.session.covered_by(token)
+ <= within_s

an object is read from memory however long ago a request was sent
sdk libs/tests/store/read/test_followed.py::test_it_reads_the_log_again_when_no_request_was_sent_for_so_long
-self._connection.elapsed() - asked_s <= within_s and self.view.session.covered_by(token)
+self.view.session.covered_by(token)

an object that is followed goes on over a gap
bokistore libs/tests/store/read/test_followed.py::test_who_is_overtaken_by_a_checkpoint_reads_the_log_and_follows_anew
-        if not isinstance(item, Read) or self._choice.idle(name, self._clock()):
+        if not isinstance(item, Read):
+            return
+        if self._choice.idle(name, self._clock()):

a process that keeps losing claims nothing
bokistore libs/tests/store/commit/test_group_commit.py::test_a_process_that_commits_without_rest_starves_no_other
-        if foreign:
+        if False:

a claim does not say for how long
bokistore libs/tests/store/commit/test_group_commit.py::test_a_slow_process_commits_beside_a_fast_one_on_one_object
-                needs_ms = math.ceil(needs_s * 1_000)
+                needs_ms = 0

a process rests for each claim that it reads
bokistore libs/tests/store/commit/test_turns.py::test_whatever_others_claim_a_third_of_the_time_is_left
-        if seqnum <= rest.newest or needs_s <= 0 or rest.until_s < now_s < rest.open_s:
+        if seqnum <= rest.newest or needs_s <= 0:

a stream that is only read is never won
bokistore libs/tests/store/commit/test_group_commit.py::test_a_conflict_once_in_many_commits_costs_no_more_each_time
-        self._contention.won(expected)
+        self._contention.won(tag for tag in expected if tag in moved)

a claim is a version of its object
bokistore libs/tests/store/commit/test_group_commit.py::test_a_claim_changes_nothing
-    return not isinstance(event, Commit) or bool(event.operations)
+    return True
""")
