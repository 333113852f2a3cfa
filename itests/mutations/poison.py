"""What can be taken out of how a cluster lives with what nobody can read: see docs/defects.md for what each is about."""

from __future__ import annotations

from typing import Final

from itests.mutations.mutation import Mutation

_CARRIED: Final = "metalog/tests/sequencer/test_term_server_carried.py"
_FEED: Final = "logbook/tests/engine/apply/test_header_feed.py"
_ENTRIES: Final = "logbook/tests/engine/test_poisoned_entries.py"
_STOPS: Final = "metalog/tests/follow/test_follower_stops.py"
_FOREIGN: Final = "logbook/tests/engine/writers/test_foreign_runs.py"
_END: Final = "metalog/tests/terms/test_term_end.py"
_UNREADABLE_END: Final = "metalog/tests/test_unreadable_end.py"
_KEEPING: Final = "logbook/tests/engine/test_housekeeping.py"

POISON_MUTATIONS: Final[tuple[Mutation, ...]] = (
    Mutation(
        "carry unparsed",
        "metalog",
        (("            check_carried(carry, self._builder.known_end(shard))\n", ""),),
        f"{_CARRIED}::test_of_an_entry_with_a_changed_header_nothing_unusable_is_carried",
    ),
    Mutation(
        "what a term does not order is decided as any",
        "logbook",
        (
            (
                "        foreign = () if guard is None else guard.foreign(batch)\n",
                "        foreign: Sequence[int] = ()\n",
            ),
        ),
        f"{_FOREIGN}::test_engines_that_hear_of_the_logs_in_any_order_know_the_same",
    ),
    Mutation(
        "a command about a book that a term does not order is obeyed",
        "logbook",
        (
            (
                "        if guard is not None and isinstance(command, (Trim, Expire)) and not indexed(command.book, guard.slots):\n",
                "        if False:\n",
            ),
        ),
        f"{_FOREIGN}::test_commands_about_books_of_other_slots_change_nothing",
    ),
    Mutation(
        "a head is believed whatever follows it",
        "metalog",
        (("        except VersionMismatch as later:\n", "        except ProtocolError as later:\n"),),
        f"{_END}::test_what_cannot_be_known_is_not_made_up",
    ),
    Mutation(
        "a head is believed that does not go on",
        "metalog",
        (
            (
                "            if head.start_pos != before.end_pos or head.time_ms < before.time_ms:\n",
                "            if False:\n",
            ),
        ),
        f"{_END}::test_what_cannot_be_known_is_not_made_up",
    ),
    Mutation(
        "what can be read may be given up",
        "metalog",
        (("    if fault is None or found.entries != decision.entry:\n", "    if fault is None:\n"),),
        f"{_END}::test_nothing_is_given_up_but_the_first_that_cannot_be_read",
    ),
    Mutation(
        "a standby ends with the term that it cannot end",
        "metalog",
        (
            (
                "            except MetalogUnreadable as error:\n                # Other logs may need",
                "            except ZeroDivisionError as error:\n                # Other logs may need",
            ),
        ),
        f"{_UNREADABLE_END}::test_a_standby_that_cannot_end_a_term_lives_and_takes_other_logs",
    ),
    Mutation(
        "who has applied what was given up goes on",
        "metalog",
        (
            (
                "        if self._position.entry > record.last_entry + 1:\n",
                "        if self._position.entry > record.closed_at + 1:\n",
            ),
        ),
        f"{_UNREADABLE_END}::test_who_has_applied_what_was_given_up_stops_and_says_so",
    ),
    Mutation(
        "carry parsed and not compared with its row",
        "metalog",
        (("    if found != expected:\n        raise UnfitCarry(", "    if False:\n        raise UnfitCarry("),),
        "metalog/tests/sequencer/test_carried_check.py::test_another_batch_than_its_row_says_is_refused",
    ),
    Mutation(
        "unparsable body raises",
        "logbook",
        (
            (
                '            self._unfit_carried[ledger_id, entry] = f"is no record batch: {error}"\n            return None\n',
                "            raise CorruptData(str(error)) from error\n",
            ),
        ),
        f"{_FEED}::test_what_is_carried_and_nobody_can_read_is_waited_for_and_may_be_given_up",
    ),
    Mutation(
        "an entry is believed that its cut does not mean",
        "logbook",
        (
            (
                "        if fit.has(first, first + batch.record_count) and (\n",
                "        if True or fit.has(first, first + batch.record_count) and (\n",
            ),
        ),
        f"{_ENTRIES}::test_an_entry_that_is_not_what_its_cut_means_is_waited_for_and_given_up",
    ),
    Mutation(
        "one bad entry hides its neighbours",
        "logbook",
        (
            (
                "        for entry in range(first, last + 1):\n            await self._read_one(ledger_id, entry, None, error)\n",
                (
                    "        for entry in range(last, first - 1, -1):\n"
                    "            await self._read_one(ledger_id, entry, None, error)\n"
                ),
            ),
        ),
        f"{_FEED}::test_of_entries_that_are_read_together_only_the_bad_one_is_waited_for",
    ),
    Mutation(
        "who catches up waits behind an entry that cannot be read",
        "logbook",
        (("        if self.pending > cuts and not self._feed.waits:\n", "        if self.pending > cuts:\n"),),
        f"{_ENTRIES}::test_what_was_given_up_long_after_it_is_heard_of_by_who_begins_later",
    ),
    Mutation(
        "a metalog entry that is none ends the engine",
        "metalog",
        (
            (
                "            except ProtocolError as error:\n                return entries, error\n",
                "            except ProtocolError:\n                raise\n",
            ),
        ),
        f"{_STOPS}::test_a_log_stops_before_an_unreadable_entry_and_goes_on_when_it_is_mended",
    ),
    Mutation(
        "a metalog entry that is none is passed over",
        "metalog",
        (
            (
                "            except ProtocolError as error:\n                return entries, error\n",
                "            except ProtocolError:\n                entry = entries[-1]\n",
            ),
        ),
        f"{_STOPS}::test_a_metalog_entry_with_any_byte_changed_is_applied_or_stops_the_log",
    ),
    Mutation(
        "what was pushed badly is not read from bookies",
        "metalog",
        (
            (
                "            if self._stopped is not None:  # a copy on a bookie",
                "            if False:  # a copy on a bookie",
            ),
        ),
        f"{_STOPS}::test_what_was_pushed_badly_is_read_from_bookies",
    ),
    Mutation(
        "payloads unopened",
        "logbook",
        (("        check_payloads(batch)\n", ""),),
        "logbook/tests/engine/test_server.py::test_a_record_that_nobody_could_open_is_refused_before_it_is_stored",
    ),
    Mutation(
        "of a payload the names up to the first fault are looked at",
        "common",
        (("        if at != end:\n", "        if at > end:\n"),),
        "common/tests/records/test_payload_check.py::test_one_record_that_cannot_be_opened_is_found_among_many",
    ),
    Mutation(
        "a record that cannot be opened ends its page",
        "sdk",
        (
            (
                "            except CorruptData as error:\n                records.append(gap_of(seqnum, error, book))\n",
                "            except CorruptData:\n                raise\n",
            ),
        ),
        "logbook/tests/sdk/test_record.py::test_a_record_whose_names_do_not_fit_it_is_a_gap_among_its_neighbours",
    ),
    Mutation(
        "data that nobody can read ends a range",
        "logbook",
        (
            (
                "            except UnreadableEntry:\n                continue  # it is known now, and one more gap\n",
                "            except UnreadableEntry:\n                raise\n",
            ),
        ),
        "logbook/tests/engine/test_unreadable_data.py::test_a_range_has_a_gap_where_nobody_can_read_and_goes_on",
    ),
    Mutation(
        "a snapshot goes back in a log",
        "logbook",
        (("        late = behind(before, snapshot.logs)\n", "        late: list[int] = []\n"),),
        f"{_KEEPING}::test_an_engine_that_is_behind_the_snapshot_in_a_log_does_not_replace_it",
    ),
    Mutation(
        "a damaged snapshot stays the one that is named",
        "logbook",
        (("        self._supersede = fault is not None\n", ""),),
        f"{_KEEPING}::test_an_engine_that_cannot_use_the_snapshot_rebuilds_and_replaces_it",
    ),
    Mutation(
        "a shard is closed when the sequencer has room, or never",
        "logbook",
        (
            (
                (
                    "            except Overloaded as error:  # what waits for it to close would wait for the term's end\n"
                    '                _log.info("shard not closed yet", term=link.term, shard=number, error=error)\n'
                ),
                "",
            ),
        ),
        "logbook/tests/engine/append/test_appender_carried.py::test_a_busy_sequencer_is_asked_again_to_close_a_shard_whose_end_nobody_knows",
    ),
)
