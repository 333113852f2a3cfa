"""What can be taken out of how a bookie lives with a full or odd disk: see docs/defects.md for what each is about."""

from __future__ import annotations

from typing import Final

from itests.mutations.patch import patches

DISK_MUTATIONS: Final = patches(r"""
each start takes another journal segment
bookie bookie/tests/test_full_disk.py::test_many_restarts_on_a_full_disk_change_nothing
-            await self._files.take_back(generation)
-        self._generations = [one for one in self._generations if one <= end.generation]
+            pass
@@
-older = [generation for generation in generations if generation <= end.generation]
-        await journal.start(end.generation + 1, end.next_group, older=older, ends_at=end.offset)
+older = generations
+        await journal.start(older[-1] + 1, end.next_group, older=older)

a full disk has no segment to go on in
bookie bookie/tests/test_full_disk.py::test_every_restart_takes_fences_and_recovery_adds_though_no_segment_can_be_made
-            if ends_at is None:
-                raise
+            raise

a torn group stays where it is
bookie bookie/tests/test_full_disk.py::test_a_torn_group_keeps_no_bookie_from_starting_on_a_full_disk
-            await self._files.erase(end.generation, end.offset)
+            pass

the reserve of an earlier life is not known
bookie bookie/tests/test_full_disk.py::test_the_reserve_of_an_earlier_life_is_there_for_this_one
-        await reserve.find()

what was replayed is taken for durable
bookie bookie/tests/test_full_disk.py::test_a_replayed_group_is_durable_before_it_is_answered_for
-            await self._files.rewrite(end.generation, end.last)
+            pass

the last group is flushed and not written again
bookie bookie/tests/test_full_disk.py::test_a_replayed_group_is_durable_before_it_is_answered_for
-            await file.write(place.start, [await file.read(place.start, len(place))], durable=True)
+            await file.sync()

other index files go when the mark is read
bookie bookie/tests/test_full_disk.py::test_index_files_that_the_mark_does_not_name_go_after_the_first_own_mark
         checkpointer._leftovers = [f"{INDEX_FOLDER}/{other}" for other in await disk.names(INDEX_FOLDER)]
+        await checkpointer._remove_leftovers()

copies that lie elsewhere go by default
bookie bookie/tests/space/test_garbage_collection.py::TestOverReplicatedLedgers::test_are_kept_by_default_and_named
     gc_empties_elsewhere: bool = setting(
-        False,
+        True,

copies that lie elsewhere go whatever is set
bookie bookie/tests/space/test_gc_rules_under_repair.py::test_no_copy_is_lost_where_emptying_is_not_allowed_as_by_default
-not may_empty or now.version
+now.version

a new life takes the place of the one that the cookie names
bookie bookie/tests/begin/test_life_rules.py::test_a_healthy_bookie_is_never_locked_out_by_a_crash_or_a_late_write
-    return 1 if known is not None and first
+    return 0 if known is not None and first

the cookie is not settled before a life is drawn
bookie bookie/tests/begin/test_life.py::test_a_write_of_a_dead_process_that_lands_during_a_start_locks_nobody_out
-            return current._replace(version=await metadata.set(path, current.value, version=current.version))
+            return current

an older copy is as good as any
bookie bookie/tests/begin/test_life.py::test_a_copy_made_before_the_last_start_is_refused_as_an_older_copy
-    if not stored.has(known.token):
+    if False:

checkpoints get no notice
bookie bookie/tests/begin/test_life.py::test_a_bookie_of_which_a_copy_was_started_elsewhere_ends
-                await self._life.record(self._checkpoints())

an older copy is opened, not salvaged
bookie bookie/tests/begin/test_life.py::test_an_older_copy_comes_back_by_salvage_alone_and_then_denies_nothing
-        if bookie.is_older_copy:
+        if False:

a life begins before the store is open
bookie bookie/tests/begin/test_life.py::test_a_salvage_of_an_older_copy_that_is_cut_short_is_no_start_yet
+            life = await Life.begin(disks, metadata, identity, rng=rng, checkpoints=[0])
             shelves = await _open_shelves(disks,
@@
-            await bookie._begin_life(identity, rng)
+            bookie._life = life

a process that cannot be seen is gone
common common/tests/metadata/test_liveness.py::test_a_process_that_lives_and_cannot_be_seen_is_unknown
-        return None if exists(pid) else True
+        return True

free bytes of one file system count for each directory
bookie bookie/tests/test_bookie_directories.py::test_space_of_a_file_system_that_two_directories_lie_on_counts_once
-            free[await shelf.disk.device()] = await shelf.disk.free_bytes()
+            free[shelf.disk.describe()] = await shelf.disk.free_bytes()

the metadata file keeps no space
common common/tests/metadata/test_sqlite_tree.py::test_a_file_that_cannot_grow_takes_writes_until_its_spare_pages_are_used
-        _keep_space(connection)

a lost metalog is closed only where there is a next one
metalog metalog/tests/follow/test_follower.py::test_what_a_lost_sequencer_ordered_is_read_where_no_bookies_take_a_next_metalog
-            await self._close_lost()

a metalog is read to its end only once there is a next one
metalog metalog/tests/follow/test_follower.py::test_what_a_lost_sequencer_ordered_is_read_where_no_bookies_take_a_next_metalog
-                await self._read_closed(installed)
+                pass
""")
