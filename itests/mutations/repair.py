"""What can be taken out of how copies of lost bookies come back: see docs/defects.md for what each is about."""

from __future__ import annotations

from typing import Final

from itests.mutations.patch import patches

REPAIR_MUTATIONS: Final = patches(r"""
a repair gives no hold
ledger ledger/tests/repair/test_worker.py::test_a_closed_ledger_gets_its_copies_back_behind_a_hold
-            refused = await self._hold(seen, target, done.ledger_id)
+            refused = ""

a conflict makes a repair apply its change again
ledger ledger/tests/repair/test_worker.py::test_a_conflict_begins_anew_and_copies_nothing_twice
-swap_exactly(done.ledger_id, applied(seen.metadata, ready), known=seen)
+change(done.ledger_id, lambda now: applied(now, ready), known=seen)

the last fragment of an open ledger is repaired
ledger ledger/tests/repair/test_worker.py::test_the_last_fragment_of_an_open_ledger_is_its_writers
-        ends = firsts[1:]
+        ends = [*firsts[1:], 2**40]

a slot moves though entries of it were not copied
ledger ledger/tests/repair/test_worker.py::test_a_damaged_source_is_passed_over_and_where_all_are_nothing_moves
-        return not copied.lost.total and not copied.unanswered.total
+        return True

an entry is lost by metadata that is out of date
ledger ledger/tests/read/test_replica_copies.py::test_an_entry_is_lost_only_by_the_newest_metadata
-            metadata = await self._newest()
+            break

a mass outage is repaired like any loss
ledger ledger/tests/repair/test_plan.py::test_who_is_lost_to_a_ledger
-(away_s >= grace_s and not mass_outage)
+away_s >= grace_s

a copy goes whatever a repair holds
bookie bookie/tests/space/test_gc_rules_under_repair.py::test_no_copy_is_lost_where_emptying_is_allowed_and_each_repair_gives_holds
-(not may_empty or now.version <= now.hold)
+not may_empty

a hold counts as validation
bookie bookie/tests/storage/test_holds.py::test_a_hold_of_an_unknown_ledger_validates_nothing
-                ledger = self._create(ledger_id, master_key, validated=False)
+                ledger = self._create(ledger_id, master_key, validated=True)
             if version > ledger.hold:

a hold is answered at once
bookie bookie/tests/serve/test_server.py::test_a_hold_is_answered_only_when_it_is_durable
-        storage.journal.when_durable(partial(self._held, request))
+        self._held(request, None)

a list has what is not durable yet
bookie bookie/tests/serve/test_server_v3.py::test_a_list_has_nothing_that_a_crash_may_take
-        self._storage.journal.when_durable(durable)
+        durable(None)

a checkpoint forgets holds
bookie bookie/tests/storage/test_holds.py::test_the_highest_hold_survives_a_crash
-ledger.master_key, ledger.hold + 1)
+ledger.master_key, 0)

copies go in limbo
bookie bookie/tests/space/test_garbage_collection.py::TestOverReplicatedLedgers::test_are_kept_in_limbo
- and not self._in_limbo()
+

a salvage keeps the holds that it finds
bookie bookie/tests/begin/test_salvage.py::test_a_whole_store_keeps_everything_is_fenced_and_unvalidated
-ledger.hold = False, fenced, HELD_FOR_GOOD
+ledger.hold = False, fenced, ledger.hold

a drained bookie takes copies
bookie bookie/tests/storage/test_drain.py::test_all_adds_are_refused_and_then_the_mark_says_so
-        if self.drains:
-            return V2Status.READ_ONLY
+        if self.drains and not request.recovery:
+            return V2Status.READ_ONLY
         verdict = decide_add(

an older mark is followed
bookie bookie/tests/storage/test_drain.py::test_an_older_mark_is_not_followed
-        if seen.version < self._seen.version:
+        if False:

a hold that is left over keeps a drain for good
bookie bookie/tests/storage/test_drain.py::test_a_hold_that_is_left_over_is_overcome_by_a_touch
-                await facts.touch(ledger_id, reading.version, self._rng)  # the next look finds a version above the hold
+                pass

a drain only lists
ledger ledger/tests/repair/test_drain_rules.py::test_a_drain_says_what_it_waits_for
-    return (mark.refuses and mark.empty) if away_s is None else away_s >= grace_s
+    return True

a drain ends without its last listing
ledger ledger/tests/repair/test_drain.py::test_a_ledger_made_meanwhile_by_an_old_list_is_found_by_the_last_listing
-            if naming or session != self._sessions:
+            if session != self._sessions:

an audit retires
ledger ledger/tests/repair/test_drain.py::test_an_audit_changes_nothing
-        self._unfinished = [one for one in self._retired if one in cookies]
+        for one in [one for one in self._retired if one in cookies]:
+            await self._delete_cookie(one)
""")
