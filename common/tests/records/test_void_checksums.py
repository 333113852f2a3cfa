"""Checksums in voids."""

from __future__ import annotations

from boki_common.records.void_checksums import EMPTY_CRC, compared_to, void_checksum


def test_a_void_is_of_the_record_whose_checksum_it_says_or_says_nothing() -> None:
    crcs = [0, 1, EMPTY_CRC, 2**32 - 1]
    for kept in crcs:
        for voided in crcs:
            assert (compared_to(kept, void_checksum(voided)) == kept) == (kept == voided)
        assert compared_to(kept, EMPTY_CRC) == kept, "SDKs of earlier versions say no more"
