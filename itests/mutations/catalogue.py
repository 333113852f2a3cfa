"""What can be taken out of the ledger client and the bookie, defect by defect: see docs/defects.md for what each is about."""

from __future__ import annotations

from typing import Final

from itests.mutations.disks import DISK_MUTATIONS
from itests.mutations.expiry import EXPIRY_MUTATIONS
from itests.mutations.http import HTTP_MUTATIONS
from itests.mutations.hygiene import HYGIENE_MUTATIONS
from itests.mutations.mutation import Mutation
from itests.mutations.poison import POISON_MUTATIONS
from itests.mutations.store import STORE_MUTATIONS
from itests.mutations.tokens import TOKEN_MUTATIONS
from itests.mutations.users import USERS_MUTATIONS

_RECOVERY: Final = "ledger/tests/recover/test_recovery.py"
_PLAN: Final = "ledger/tests/rules/test_recovery_plan.py"
_WRITER: Final = "ledger/tests/write/test_writer.py"
_PROTOCOL: Final = "ledger/tests/defects/test_protocol.py"
_CONFLICTS: Final = "ledger/tests/defects/test_metadata_conflicts.py"
_SCHEDULES: Final = "ledger/tests/defects/test_random_schedules.py"
_ANY_SCHEDULE: Final = f"{_SCHEDULES}::test_any_schedule_keeps_what_was_acknowledged_and_gives_every_reader_one_end"
_STORAGE: Final = "bookie/tests/storage/test_storage.py"
_SERVER: Final = "bookie/tests/serve/test_server.py"
_PROMISES: Final = "bookie/tests/defects/test_promises.py"

MUTATIONS: Final[tuple[Mutation, ...]] = (
    Mutation(
        "fencing flag off the recovery reads",
        "ledger",
        (
            (
                "self._ledger_id, entry_id, fence_key=self._key)",
                "self._ledger_id, entry_id, fence_key=self._key if entry_id == v2.LAST_ENTRY else None)",
            ),
        ),
        f"{_RECOVERY}::test_first_writer_cannot_commit_after_second_writer_closed",
    ),
    Mutation(
        "recovery starts at the LACs alone",
        "ledger",
        (("return max(last_fragment_first - 1, *lacs, -1)", "return max(*lacs, -1)"),),
        f"{_RECOVERY}::test_recovery_of_a_new_fragment_starts_there_although_its_bookies_know_no_lac",
    ),
    Mutation(
        "absent only when the whole write set denies",
        "ledger",
        (
            (
                "needed = write_quorum if ask_all else write_quorum - ack_quorum + 1",
                "needed = write_quorum",
            ),
        ),
        f"{_RECOVERY}::test_one_hung_bookie_does_not_hold_up_a_recovery",
    ),
    Mutation(
        "one negative is absent",
        "ledger",
        (("return Verdict.ABSENT if negatives >= needed", "return Verdict.ABSENT if negatives >= 1"),),
        _ANY_SCHEDULE,
    ),
    Mutation(
        "acks complete during an ensemble change",
        "ledger",
        (("        if self.frozen:\n            return 0\n", ""),),
        f"{_WRITER}::test_nothing_is_acknowledged_while_the_change_is_not_committed",
    ),
    Mutation(
        "the freeze comes after the swap",
        "ledger",
        (
            (
                "        acks = self._adds.acks\n        acks.frozen = True\n        try:\n",
                "        acks = self._adds.acks\n        try:\n",
            ),
            (
                "        self._adds.replace(replacements)\n",
                "        self._adds.acks.frozen = True\n        self._adds.replace(replacements)\n        self._adds.acks.frozen = False\n",
            ),
        ),
        f"{_PROTOCOL}::test_an_ack_during_the_change_does_not_move_where_the_change_begins",
    ),
    Mutation(
        "a change builds on the metadata as the writer last saw it",
        "ledger",
        (
            (
                "fragments = change_ensemble(current.ensembles, first_entry=first_entry, replacements=replacements)",
                "fragments = change_ensemble(self.seen.metadata.ensembles, first_entry=first_entry, replacements=replacements)",
            ),
        ),
        f"{_CONFLICTS}::test_a_repair_and_an_ensemble_change_of_one_ledger_both_land",
    ),
    Mutation(
        "a lost race is not decided anew",
        "ledger",
        (
            (
                "            wanted = transform(seen.metadata)\n            if wanted is None:\n                return seen\n",
                (
                    "            wanted = transform(known.metadata if known is not None else seen.metadata)\n"
                    "            if wanted is None:\n                return seen\n"
                ),
            ),
        ),
        f"{_CONFLICTS}::test_a_second_failure_during_a_conflict_takes_its_own_slot",
    ),
    Mutation(
        "a spare may be a member already",
        "ledger",
        (("for spare in spares if spare not in members)", "for spare in spares)"),),
        "ledger/tests/metadata/test_ensemble_change.py::test_a_bookie_never_takes_two_slots",
    ),
    Mutation(
        "replacements of a recovery are written as they happen",
        "ledger",
        (
            (
                '        _log.info("ensemble of a recovery changed"',
                (
                    "        fragments = self.fragments\n"
                    "        self._writing = self._loop.create_task(\n"
                    "            self._ports.updates.change(\n"
                    '                self._ledger_id, lambda now: __import__("dataclasses").replace(now, ensembles=fragments)\n'
                    "            )\n"
                    "        )\n"
                    '        _log.info("ensemble of a recovery changed"'
                ),
            ),
        ),
        f"{_RECOVERY}::test_replacements_reach_the_metadata_only_with_the_close",
    ),
    Mutation(
        "slots are replaced and completed one by one",
        "ledger",
        (
            ("        self.acks.replace(sorted(replacements))\n", ""),
            (
                "        for index in sorted(replacements):\n            self._slots[index].close()\n",
                (
                    "        for index in sorted(replacements):\n"
                    "            self.acks.replace([index])\n            self.acks.frozen = False\n"
                    "            self.owner.acks_arrived()\n            self.acks.frozen = True\n"
                    "            self._slots[index].close()\n"
                ),
            ),
        ),
        f"{_PROTOCOL}::test_with_two_slots_replaced_nothing_completes_on_the_acks_of_one_that_left",
    ),
    Mutation(
        "acks of all generations count",
        "ledger",
        (("        if generation != self._generations[slot]:\n            return False\n", ""),),
        "ledger/tests/rules/test_acks.py::test_acks_of_the_predecessor_in_a_slot_do_not_count",
    ),
    Mutation(
        "a change to what the ledger once had sends nothing again",
        "ledger",
        (
            (
                "        self._adds.replace(replacements)\n",
                "        self._adds.replace({i: b for i, b in replacements.items() if b != self._once[i]})\n",
            ),
            (
                "        self._lac_length = 0\n",
                "        self._once = metadata.ensembles[-1][1]\n        self._lac_length = 0\n",
            ),
        ),
        f"{_WRITER}::test_a_change_that_leads_back_to_the_same_bookies_sends_again_and_completes",
    ),
    Mutation(
        "an error of the disk counts as a negative",
        "ledger",
        (("    if status is not None and status.never_had:", "    if status is not None:"),),
        f"{_RECOVERY}::test_a_bookie_that_is_not_sure_never_counts_as_a_negative",
    ),
    Mutation(
        "a damaged copy counts as an answer",
        "ledger",
        (
            (
                "            if checked is None:\n                return Answer.UNKNOWN\n            if entry_id > plan",
                (
                    "            if checked is None:\n                plan.answered(entry_id, slot, Answer.NEVER_HAD)\n"
                    "                return Answer.NEVER_HAD\n            if entry_id > plan"
                ),
            ),
        ),
        f"{_RECOVERY}::test_a_damaged_copy_is_no_answer",
    ),
    Mutation(
        "who listens at a bookie's address is taken for it",
        "ledger",
        (("if not _INCARNATION.fullmatch(bookie):", "if bookie:"),),
        "ledger/tests/bookies/test_link_life.py::test_another_bookie_at_the_address_is_left_before_it_is_sent_anything",
    ),
    Mutation(
        "write sets cut entry numbers to 31 bits",
        "ledger",
        (
            (
                "return tuple((entry_id + place) % ensemble_size for place in range(write_quorum))",
                "return tuple(((entry_id + place) & 0x7FFFFFFF) % ensemble_size for place in range(write_quorum))",
            ),
        ),
        "ledger/tests/rules/test_write_set.py::test_large_entry_ids_have_the_write_set_of_their_residue",
    ),
    Mutation(
        "a writer closes over a recovery",
        "ledger",
        (
            (
                "if current.state is not LedgerState.OPEN or current.ensembles[-1] != mine:",
                "if current.state is LedgerState.CLOSED:",
            ),
        ),
        f"{_WRITER}::test_a_writer_cannot_close_a_ledger_in_recovery",
    ),
    Mutation(
        "coverage with one answer too few",
        "ledger",
        (("for slot in window) >= ack_quorum:", "for slot in window) > ack_quorum:"),),
        "ledger/tests/rules/test_coverage.py::test_equals_brute_force",
    ),
    Mutation(
        "two denials end a ledger below its floor",
        "ledger",
        (("ask_all=entry_id < self.floor,", "ask_all=False,"),),
        f"{_RECOVERY}::test_below_the_floor_two_negatives_wait_for_the_third_bookie",
    ),
    Mutation(
        "a read settles a lost answer",
        "common",
        (
            (
                (
                    "            return await store.set(path, value, version=version, creating=creating)\n"
                    "        except MetadataUnknown as error:\n"
                    "            await attempts.again(error, unknown=True)\n"
                ),
                (
                    "            return await store.set(path, value, version=version, creating=creating)\n"
                    "        except MetadataUnknown as error:\n"
                    "            current = await store.get(path)\n"
                    "            if current.value == value:\n                return current.version\n"
                    "            raise BadVersion('lost') from error\n"
                ),
            ),
        ),
        "common/tests/metadata/test_settle.py::test_a_write_alone_is_applied_once",
    ),
    Mutation(
        "entries beyond the LAC are read",
        "ledger",
        (
            (
                "        if last <= self._last_entry:\n            return\n",
                "        if last <= self._last_entry or not self.closed:\n            return\n",
            ),
        ),
        "ledger/tests/read/test_reader.py::test_a_copy_on_one_bookie_beyond_lac_is_not_read",
    ),
    Mutation(
        "every bookie's denial counts",
        "ledger",
        (("return self._proofs.counts(self._ensemble[slot], answer)", "return True"),),
        "ledger/tests/recover/test_fence_proof.py::test_denials_do_not_count_while_the_force_fails",
    ),
    # -- the bookie
    Mutation(
        "first validation off",
        "bookie",
        (("return AddVerdict.STORE if validated else AddVerdict.VALIDATE", "return AddVerdict.STORE"),),
        f"{_PROMISES}::test_bookies_made_anew_take_nothing_from_a_writer_fenced_before",
    ),
    Mutation(
        "recovery counts as validation",
        "bookie",
        (
            (
                "ledger = self._create(request.ledger_id, request.master_key, validated=False)",
                "ledger = self._create(request.ledger_id, request.master_key, validated=True)",
            ),
        ),
        f"{_PROMISES}::test_bookies_made_anew_take_nothing_from_a_writer_fenced_before",
    ),
    Mutation(
        "a ledger without metadata is as good as an open one",
        "bookie",
        (
            (
                "    if metadata is None:\n        return None\n    if metadata.state is not",
                "    if metadata is None:\n        return V2Status.OK\n    if metadata.state is not",
            ),
        ),
        f"{_PROMISES}::test_a_writer_of_a_deleted_ledger_cannot_make_it_again",
    ),
    Mutation(
        "a wiped directory is formatted without asking",
        "bookie",
        (("    if lost and not replace_lost_disk:", "    if lost and replace_lost_disk is None:"),),
        "bookie/tests/begin/test_identity.py::test_a_wiped_directory_is_refused_and_may_be_replaced",
    ),
    Mutation(
        "adds do not look at the fence",
        "bookie",
        (("    if fenced:\n        return AddVerdict.FENCED\n", ""),),
        f"{_PROMISES}::test_no_normal_add_is_acknowledged_that_an_answered_fence_has_not_seen",
    ),
    Mutation(
        "a checkpoint leaves out ledgers without new entries",
        "bookie",
        (
            (
                "        ledger.fenced = True\n        self._index.touch(ledger)\n        _log.info(",
                "        ledger.fenced = True\n        _log.info(",
            ),
        ),
        f"{_PROMISES}::test_a_fence_of_a_stored_ledger_survives_checkpoints_with_no_entry_to_store",
    ),
    Mutation(
        "the mark is where the journal is when a checkpoint ends",
        "bookie",
        (("            group=cut.position.group,\n", "            group=journal.position.group,\n"),),
        f"{_PROMISES}::test_the_mark_is_where_the_checkpoint_began",
    ),
    Mutation(
        "a fencing read is answered at once",
        "bookie",
        (
            (
                "            self._storage.journal.when_durable(partial(self._fenced, fencing))\n",
                "            self._fenced(fencing, None)\n",
            ),
        ),
        f"{_SERVER}::test_a_fencing_read_is_answered_only_when_the_fence_is_durable",
    ),
    Mutation(
        "the journal is written without a flush",
        "bookie",
        (("file.write(self._offset, buffers, durable=True)", "file.write(self._offset, buffers, durable=False)"),),
        "bookie/tests/storage/test_storage_crashes.py::test_a_crash_at_every_step_loses_nothing_that_was_acknowledged",
    ),
    Mutation(
        "an entry that cannot be read is not there",
        "bookie",
        (("V2Status.OK if bodies else V2Status.IO_ERROR", "V2Status.OK if bodies else V2Status.NO_ENTRY"),),
        f"{_SERVER}::test_a_damaged_entry_is_io_error_and_a_batch_ends_before_it",
    ),
    Mutation(
        "stored entries are not checked",
        "bookie",
        (
            (
                "        whole = len(body) == length and crc == _CRC.unpack_from(stored)[0]\n",
                "        whole = len(body) == length\n",
            ),
        ),
        f"{_STORAGE}::test_a_damaged_stored_entry_is_unknown_and_never_absent",
    ),
    Mutation(
        "records of the journal are not checked",
        "bookie",
        (
            (
                "            if crc_of(body, crc_of(data[at + _CRC.size : start], salt)) != unpack_crc(data, at)[0]:\n",
                "            if crc_of(body, crc_of(data[at + _CRC.size : start], salt)) < 0:\n",
            ),
        ),
        f"{_PROMISES}::test_an_entry_of_which_only_some_sectors_reached_the_disk_is_not_there",
    ),
    Mutation(
        "the first proof deletes",
        "bookie",
        (
            (
                "!= (now.fact, now.session):\n        return Verdict.BEGIN\n",
                "!= (now.fact, now.session):\n        first = now._replace(read_at=now.read_at - grace_s)\n",
            ),
        ),
        "bookie/tests/space/test_gc_rules.py::test_one_read_deletes_nothing",
    ),
    Mutation(
        "collection does not look for what came meanwhile",
        "bookie",
        (("    if now.fact is Fact.ELSEWHERE and first[3:] != now[3:]:\n        return Verdict.BEGIN\n", ""),),
        "bookie/tests/space/test_gc_rules.py::test_a_copy_that_repair_may_be_using_is_kept",
    ),
    Mutation(
        "limbo denies",
        "bookie",
        (("return not self.is_over and (not validated or ledger_id in self._ledgers)", "return False"),),
        "bookie/tests/storage/test_limbo.py::test_in_limbo_what_is_held_is_read_and_nothing_is_denied",
    ),
    Mutation(
        "a key is logged where it does not match",
        "bookie",
        (
            (
                "        if verdict is FenceVerdict.UNAUTHORIZED:\n",
                '        if verdict is FenceVerdict.UNAUTHORIZED:\n            _log.warning("wrong key", found=master_key.hex())\n',
            ),
        ),
        f"{_PROMISES}::test_keys_are_in_no_log_line",
    ),
    *DISK_MUTATIONS,
    *EXPIRY_MUTATIONS,
    *HYGIENE_MUTATIONS,
    *HTTP_MUTATIONS,
    *TOKEN_MUTATIONS,
    *POISON_MUTATIONS,
    *STORE_MUTATIONS,
    *USERS_MUTATIONS,
)
