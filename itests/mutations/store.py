"""What can be taken out of the common ground of libraries and of stores: see docs/defects.md for what each is about."""

from __future__ import annotations

from typing import Final

from itests.mutations.mutation import Mutation

_CHECKPOINTER: Final = "libs/tests/store/test_checkpointer.py"
_UPKEEP: Final = "libs/tests/store/test_upkeep.py"
_GROUP: Final = "libs/tests/store/test_group_commit.py"
_READS: Final = "libs/tests/store/test_snapshot_reads.py"
_HISTORIES: Final = "libs/tests/store/test_histories.py"
_FOLLOWED: Final = "libs/tests/store/test_followed.py"
_EXPIRY: Final = "libs/tests/store/test_expiry.py"

STORE_MUTATIONS: Final[tuple[Mutation, ...]] = (
    Mutation(
        "a checkpoint expects nothing",
        "bokistore",
        (("{**expect, tag: last}, (event,))", "{}, (event,))"),),
        f"{_CHECKPOINTER}::test_a_checkpointer_at_any_point_of_another",
    ),
    Mutation(
        "trimmed is by the newest checkpoint",
        "bokilib",
        (("    previous = wholes[1]\n", "    previous = wholes[0]\n"),),
        f"{_CHECKPOINTER}::test_snapshots_within_the_grace_are_still_there",
    ),
    Mutation(
        "a checkpoint is made without counting again",
        "bokistore",
        (
            (
                "        if not state.records or (records and not due(state.records, state.size, records, size)):\n",
                "        if not state.records:\n",
            ),
        ),
        f"{_CHECKPOINTER}::test_processes_that_all_see_it_grow_do_not_all_make_the_checkpoint",
    ),
    Mutation(
        "parts of two writers make one checkpoint",
        "bokilib",
        (
            (
                "(part.by, part.covers, part.parts, part.part + 1) != (\n            before.by,\n",
                "(part.covers, part.parts, part.part + 1) != (\n",
            ),
        ),
        "libs/tests/lib/test_checkpoint_rules.py::test_parts_of_two_writers_are_never_one_checkpoint",
    ),
    Mutation(
        "a deletion leaves the checkpoints alone",
        "bokistore",
        (("                joined[tags.store_checkpoint(event.name)] = None\n", "                pass\n"),),
        f"{_CHECKPOINTER}::test_what_is_deleted_stays_deleted_and_its_records_go",
    ),
    Mutation(
        "a deletion goes before its object is seen to be forgotten",
        "bokistore",
        (("                if await self._is_forgotten(subject.stream):\n", "                if True:\n"),),
        f"{_CHECKPOINTER}::test_what_is_made_anew_while_it_is_being_forgotten_can_be_read",
    ),
    Mutation(
        "a deletion ends what follows in its record",
        "bokistore",
        (("seqnum - 1 if anew else seqnum, 0, 1", "seqnum, 0, 1"),),
        f"{_UPKEEP}::test_what_is_deleted_and_made_anew_in_one_transaction_is_there",
    ),
    Mutation(
        "what is idle stays where it is",
        "bokilib",
        (
            (
                "    return now_ms - wholes[0].time_ms >= ages.carry_ms\n",
                "    return newest > wholes[0].covers\n",
            ),
        ),
        f"{_UPKEEP}::test_whole_terms_can_go_though_nothing_happens",
    ),
    Mutation(
        "retention begins anew with each carry",
        "bokistore",
        (
            (
                "            since_ms = wholes[0].ended_ms if ended(wholes, 0) and not records else None\n",
                "            since_ms = None\n",
            ),
        ),
        f"{_UPKEEP}::test_of_what_is_deleted_nothing_is_left_after_the_retention",
    ),
    Mutation(
        "an object and a bucket of one name share checkpoints",
        "bokistore",
        (
            (
                "        if isinstance(event, of_checkpoints) and event.name == subject.name:\n",
                "        if isinstance(event, (Checkpoint, DirectoryCheckpoint)) and event.name == subject.name:\n",
            ),
        ),
        f"{_UPKEEP}::test_an_object_and_a_bucket_of_the_same_name_are_told_apart",
    ),
    Mutation(
        "two claim one fence",
        "bokilib",
        (("Contribution((self.tag,), expect, (Claimed(", "Contribution((self.tag,), {}, (Claimed("),),
        "libs/tests/lib/test_fence.py::test_of_many_who_want_it_one_gets_it",
    ),
    Mutation(
        "a heartbeat counts from its answer",
        "bokilib",
        (("        self._acked_sent_s = sent_s\n", "        self._acked_sent_s = self._now()\n"),),
        "libs/tests/lib/test_members.py::test_a_lease_counts_from_when_the_heartbeat_was_sent",
    ),
    Mutation(
        "serializable expects what is written only",
        "bokilib",
        (('[*written, *read] if isolation == "serializable" else written', "[*written]"),),
        f"{_HISTORIES}::test_serializable_histories_have_no_cycle",
    ),
    Mutation(
        "of two snapshots the later is expected",
        "bokilib",
        (("is None else min(before, seqnum)", "is None else max(before, seqnum)"),),
        "libs/tests/lib/test_isolation.py::test_of_two_snapshots_the_lower_is_expected",
    ),
    Mutation(
        "who ran on another's state expects its writes only",
        "bokistore",
        (("            part = joined([part, reads])\n", "            pass\n"),),
        f"{_GROUP}::test_who_ran_on_anothers_state_expects_what_it_read_at_snapshot_isolation_too",
    ),
    Mutation(
        "who ran on the state of one that lost stands",
        "bokistore",
        ((" or member.ran_on & (out | rerun.keys()))", ")"),),
        "libs/tests/models/test_groups.py::test_in_every_schedule_it_is_as_if_one_came_after_the_other",
    ),
    Mutation(
        "an error is raised before what it came of is in the log",
        "bokistore",
        (
            (
                "        if not member.part.events and not member.ran_on:\n",
                "        if not member.part.events:\n",
            ),
        ),
        f"{_GROUP}::test_an_error_that_came_of_what_did_not_happen_is_not_raised",
    ),
    Mutation(
        "a scan expects nothing",
        "bokistore",
        (("        self.staging.scans(collection)\n", ""),),
        "libs/tests/store/test_collection.py::test_a_scan_of_a_serializable_transaction_is_disturbed_by_who_comes_and_goes",
    ),
    Mutation(
        "any view is believed",
        "bokistore",
        (("    if not aux or aux[: _CRC.size] != _crc(seqnum, aux[_CRC.size :]):\n", "    if not aux:\n"),),
        "libs/tests/store/test_view_format.py::test_aux_data_of_another_record_is_nothing",
    ),
    Mutation(
        "a fold passes over a gap",
        "bokilib",
        (("                raise item.error()\n", "                continue\n"),),
        f"{_READS}::test_a_history_that_was_trimmed_without_a_checkpoint_is_not_taken_for_a_whole_one",
    ),
    Mutation(
        "a snapshot is given what came after it",
        "bokistore",
        (
            (
                "            if known is None or (at is not None and known.view.seen > at):\n",
                "            if known is None:\n",
            ),
        ),
        "libs/tests/store/test_objects.py::test_reads_at_a_snapshot_are_of_it",
    ),
    Mutation(
        "what is known here counts though nobody was asked",
        "bokistore",
        (
            (
                "        return not self.stale and (self.asked or not self.bases)\n",
                "        return True\n",
            ),
        ),
        "libs/tests/models/test_open_snapshots.py::test_a_body_sees_one_state_and_what_it_tells_is_true",
    ),
    Mutation(
        "a snapshot goes on over what changed",
        "bokistore",
        (
            (
                "        if any(name not in found or found[name].seen != base.seen for name, base in self.bases.items()):\n",
                "        if any(name not in found for name in self.bases):\n",
            ),
        ),
        "libs/tests/models/test_open_snapshots.py::test_a_body_sees_one_state_and_what_it_tells_is_true",
    ),
    Mutation(
        "what a member did not expect is known after its record",
        "bokistore",
        (
            (
                "for name, base in known.items() if store_object(name) in expected}",
                "for name, base in known.items()}",
            ),
        ),
        "libs/tests/store/test_open_snapshot.py::test_what_a_member_did_not_expect_is_not_known_after_its_record",
    ),
    Mutation(
        "a sweep takes who was given more time",
        "bokistore",
        (("    if not view.exists or view.expires_ms != at_ms:\n", "    if not view.exists:\n"),),
        f"{_EXPIRY}::test_objects_whose_time_is_over_go_by_themselves",
    ),
    Mutation(
        "a name outlives the object whose time is over",
        "bokistore",
        (
            (
                "        tx.enter(collection, id, there=False)\n    tx.delete(name)\n",
                "        pass\n    tx.delete(name)\n",
            ),
        ),
        f"{_EXPIRY}::test_objects_whose_time_is_over_go_by_themselves",
    ),
    Mutation(
        "what is followed is told whatever the session has seen",
        "sdk",
        ((" <= within_s and self._view.session.covered_by(token)\n", " <= within_s\n"),),
        f"{_FOLLOWED}::test_what_another_book_of_the_session_tells_of_is_seen",
    ),
    Mutation(
        "what is followed is told however long ago one asked",
        "sdk",
        (("self._connection.elapsed() - asked_s <= within_s and ", ""),),
        f"{_FOLLOWED}::test_it_asks_again_when_nobody_did_for_so_long",
    ),
    Mutation(
        "an object that is followed goes on over a gap",
        "bokistore",
        (
            (
                "        if not isinstance(item, Read) or self._choice.idle(name, self._clock()):\n",
                "        if not isinstance(item, Read):\n            return\n        if self._choice.idle(name, self._clock()):\n",
            ),
        ),
        f"{_FOLLOWED}::test_who_is_overtaken_by_a_checkpoint_asks_and_follows_anew",
    ),
)
