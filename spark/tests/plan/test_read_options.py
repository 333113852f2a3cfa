"""Parsed options of reads."""

from __future__ import annotations

import pytest

from boki_common.ids import seqnum, tag_id
from boki_common.metadata.zookeeper_settings import ZookeeperSettings
from boki_spark.errors import BadOption, BadSchema
from boki_spark.plan.read_options import COLUMNS, ClusterOptions, batch_options, chosen_columns, stream_options
from boki_spark.plan.stream_rules import EARLIEST, LATEST, Beginning

URL = {"url": "boki://a:7040"}


def test_a_batch_reads_all_there_is_by_default_and_a_stream_what_comes() -> None:
    batch, stream = batch_options(URL), stream_options(URL)
    assert (batch.start, batch.end, batch.book, batch.tags) == (Beginning(EARLIEST), Beginning(LATEST), None, ())
    assert stream.start == Beginning(LATEST) and stream.rows_per_trigger is None
    assert batch.cluster == ClusterOptions("boki://a:7040")


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({"startingOffsets": "earliest"}, Beginning(EARLIEST)),
        ({"startingoffsets": '{"0": [3, 7]}'}, Beginning("", {0: (3, 7)})),
        ({"startingOffsets": '{"logs": {"0": [3, 7]}, "v": 1}'}, Beginning("", {0: (3, 7)})),
        ({"startingSeqnum": str(seqnum(3, 7))}, Beginning("", None, None, seqnum(3, 7))),
        ({"startingSeqnum": "1"}, Beginning("", None, None, 1)),
        ({"startingTimestamp": "1700000000000"}, Beginning("", None, 1_700_000_000_000)),
        ({"startingTimestamp": "0"}, Beginning("", None, 0)),
        ({"startingTimestamp": "2023-11-14T22:13:20"}, Beginning("", None, 1_700_000_000_000)),
        ({"startingTimestamp": "2023-11-14T23:13:20+01:00"}, Beginning("", None, 1_700_000_000_000)),
    ],
)
def test_a_beginning_is_a_seqnum_an_offset_or_a_time(options: dict[str, str], start: Beginning) -> None:
    assert batch_options(URL | options).start == start


def test_tags_are_names_or_a_json_list() -> None:
    options = URL | {"book": "orders"}
    assert batch_options(options | {"tags": "a, b,a"}).tags == (tag_id("a"), tag_id("b"))
    assert batch_options(options | {"tags": '["a,b", 7]'}).tags == (tag_id("a,b"), 7)


def test_sizes_may_have_units() -> None:
    found = batch_options(URL | {"maxPartitionBytes": "64m", "batchBytes": "512KiB", "minPartitions": "8"})
    assert (found.partition_bytes, found.batch_bytes, found.partitions) == (64 << 20, 512 << 10, 8)


def test_the_cluster_may_want_a_token_and_zookeeper_more() -> None:
    options = {
        "metadata": "zk://z:2181/boki",
        "plan": "snapshot",
        "tokenFile": "/t",
        "zookeeperTls": "true",
        "zookeeperDigestFile": "/d",
    }
    settings = ZookeeperSettings(tls=True, digest_file="/d")
    assert batch_options(options).cluster == ClusterOptions("", "zk://z:2181/boki", "/t", "snapshot", 10.0, settings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "expected the option url"),
        (URL | {"startingOffset": "earliest"}, "did you mean startingOffsets"),
        (URL | {"maxRecordsPerTrigger": "7"}, "there is no option"),
        (URL | {"startingOffsets": "latest"}, "a batch that starts at latest is empty"),
        (URL | {"startingOffsets": "soon"}, "earliest, latest, or offsets"),
        (URL | {"startingOffsets": '{"0": 1}'}, "earliest, latest, or offsets"),
        (URL | {"startingSeqnum": "1", "startingOffsets": "earliest"}, "found both"),
        (URL | {"startingSeqnum": "-1"}, "a seqnum"),
        (URL | {"startingTimestamp": "yesterday"}, "milliseconds since 1970.*UTC if it says no zone"),
        (URL | {"startingTimestamp": "1700000000"}, "milliseconds since 1970 .not seconds."),
        (URL | {"endingTimestamp": "20300101"}, "a time as 2026-01-31,"),
        (URL | {"tags": "a"}, "beside tags"),
        (URL | {"book": "a", "tags": '["", 7]'}, "names with commas"),
        (URL | {"dataset": "segment"}, "did you mean segments"),
        (URL | {"failOnDataLoss": "maybe"}, "true or false"),
        (URL | {"maxPartitionBytes": "0"}, "bytes above 0"),
        (URL | {"plan": "snapshot"}, "metadata with plan=snapshot"),
        ({"metadata": "zk://z", "plan": "engine"}, "url with plan=engine"),
        (URL | {"zookeeperTlsCaFile": "/ca"}, "zookeeperTls = true|tls = true"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        batch_options(options)


def test_a_stream_has_one_limit() -> None:
    assert stream_options(URL | {"maxBytesPerTrigger": "1g"}).bytes_per_trigger == 1 << 30
    with pytest.raises(BadOption, match="found both"):
        stream_options(URL | {"maxRecordsPerTrigger": "1", "maxBytesPerTrigger": "1"})


def test_columns_may_be_chosen_by_name_and_type() -> None:
    assert chosen_columns([("data", "binary"), ("seqnum", "bigint")]) == ("data", "seqnum")
    assert chosen_columns(list(COLUMNS.items())) == tuple(COLUMNS)
    for wrong in ([("data", "string")], [("value", "binary")], []):
        with pytest.raises(BadSchema, match="expected"):
            chosen_columns(wrong)
