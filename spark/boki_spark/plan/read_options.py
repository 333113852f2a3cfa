"""Options of `spark.read` and `spark.readStream` with the format `boki`, parsed into values.

The start of a range is included, its end is not. Each end may be given as a seqnum, as offsets or as a time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from boki_common.ids import SEQNUM_MAX, book_id, tag_id
from boki_common.metadata.zookeeper_settings import ZookeeperSettings
from boki_spark.errors import BadOption, BadSchema
from boki_spark.plan.options import CLUSTER, GivenOptions, seconds
from boki_spark.plan.stream_rules import EARLIEST, LATEST, Beginning, decode_logs, decode_offset

RECORDS, SEGMENTS, METALOG = "records", "segments", "metalog"
DATASETS: Final = (RECORDS, SEGMENTS, METALOG)
"""The datasets of a read: records, the terms of logs, and the entries that the metalogs ordered."""
ENGINE, SNAPSHOT, AUTO = "engine", "snapshot", "auto"
PLANS: Final = (AUTO, ENGINE, SNAPSHOT)
WORDS: Final = (EARLIEST, LATEST)
ZOOKEEPER: Final = {
    "zookeeperDigestFile": "digest_file",
    "zookeeperTls": "tls",
    "zookeeperTlsCaFile": "tls_ca_file",
    "zookeeperTlsCertificateFile": "tls_certificate_file",
    "zookeeperTlsKeyFile": "tls_key_file",
    "zookeeperTlsCheckHost": "tls_check_host",
}
EITHER: Final = (
    *CLUSTER,
    *ZOOKEEPER,
    "metadata",
    "plan",
    "book",
    "bookNumber",
    "tags",
    "startingSeqnum",
    "startingOffsets",
    "startingTimestamp",
    "failOnDataLoss",
    "maxPartitionBytes",
    "minPartitions",
    "batchBytes",
)
BATCH: Final = (*EITHER, "dataset", "endingSeqnum", "endingOffsets", "endingTimestamp")
STREAM: Final = (*EITHER, "maxRecordsPerTrigger", "maxBytesPerTrigger")

MIB: Final = 1 << 20
LEAST_MS: Final = 10**11
"""The least number that is taken for milliseconds, of March 1973. Lower ones are seconds, or dates such as 20260131."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The address of a cluster. It is pickled, so that executors connect to the same one.

    Attributes:
        url: engines, boki://host:port,host:port; if empty, plans are made from the index snapshot.
        metadata: zk://host:port/chroot or sqlite:///absolute/path.db; if empty, an engine names it.
        token_file: path of the cluster token; empty for none.
        plan: engine, snapshot, or auto: an engine if one answers.
        timeout_s: seconds until an answer is overdue.
        zookeeper: credentials and TLS for ZooKeeper.
    """

    url: str = ""
    metadata: str = ""
    token_file: str = ""
    plan: str = AUTO
    timeout_s: float = 10.0
    zookeeper: ZookeeperSettings = field(default_factory=ZookeeperSettings)


FROM_THE_START: Final = Beginning(EARLIEST)
TO_THE_END: Final = Beginning(LATEST)


@dataclass(frozen=True)
class ReadOptions:
    """The parsed options of a read.

    Attributes:
        book: u64; None for all books.
        tags: u64 each; empty for all records.
        start: start of the range.
        end: end of the range; batches only.
        fail_on_data_loss: raise DataLoss for lost records instead of leaving them out.
        partition_bytes: the largest size of a partition.
        partitions: the smallest number of partitions.
        batch_bytes: data in one Arrow batch.
        dataset: one of `DATASETS`.
        rows_per_trigger: the size of a stream's batch in rows; None for no limit.
        bytes_per_trigger: the size of a stream's batch in bytes; None for no limit.
    """

    cluster: ClusterOptions
    book: int | None = None
    tags: tuple[int, ...] = ()
    start: Beginning = FROM_THE_START
    end: Beginning = TO_THE_END
    fail_on_data_loss: bool = True
    partition_bytes: int = 64 * MIB
    partitions: int = 1
    batch_bytes: int = MIB
    dataset: str = RECORDS
    rows_per_trigger: int | None = None
    bytes_per_trigger: int | None = None


def batch_options(options: Mapping[str, str]) -> ReadOptions:
    """Parse the options of `spark.read`. Raises BadOption."""
    given = GivenOptions(options, BATCH)
    read = _either(given, EARLIEST)
    given.together("endingSeqnum", "endingOffsets", "endingTimestamp")
    end = _place(given, "ending", LATEST)
    if read["start"] == Beginning(LATEST):
        raise BadOption(
            "expected startingOffsets of a batch to be earliest or offsets: a batch that starts at latest is empty"
        )
    dataset = given.one_of("dataset", DATASETS)
    return ReadOptions(**read, end=end, dataset=dataset)  # type: ignore[arg-type] # of its fields, see `_either`


def stream_options(options: Mapping[str, str]) -> ReadOptions:
    """Parse the options of `spark.readStream`. Raises BadOption."""
    given = GivenOptions(options, STREAM)
    given.together("maxRecordsPerTrigger", "maxBytesPerTrigger")
    return ReadOptions(
        **_either(given, LATEST),  # type: ignore[arg-type] # of its fields, see `_either`
        rows_per_trigger=given.value("maxRecordsPerTrigger", _count, None, "a number above 0"),
        bytes_per_trigger=given.value("maxBytesPerTrigger", _bytes, None, "bytes above 0, as 1048576 or 64m"),
    )


def _either(given: GivenOptions, start: str) -> dict[str, object]:
    """Parse the options that batches and streams share."""
    given.together("startingSeqnum", "startingOffsets", "startingTimestamp")
    book = given.book()
    no_tags: tuple[int, ...] = ()
    tags = given.value("tags", _tags, no_tags, 'names with commas between, or a JSON list as ["a", 7]')
    if tags and book is None:
        raise BadOption("expected the option book beside tags: tags are streams of a book")
    return {
        "cluster": _cluster(given),
        "book": None if book is None else book_id(book),
        "tags": tags,
        "start": _place(given, "starting", start),
        "fail_on_data_loss": given.value("failOnDataLoss", _truth, True, "true or false"),
        "partition_bytes": given.value("maxPartitionBytes", _bytes, 64 * MIB, "bytes above 0, as 1048576 or 64m"),
        "partitions": given.value("minPartitions", _count, 1, "a number above 0"),
        "batch_bytes": given.value("batchBytes", _bytes, MIB, "bytes above 0, as 1048576 or 1m"),
    }


def _cluster(given: GivenOptions) -> ClusterOptions:
    url, metadata = given.text("url"), given.text("metadata")
    if not url and not metadata:
        raise BadOption("expected the option url (engines, as boki://host:7040), or metadata (zk://… or sqlite://…)")
    plan = given.one_of("plan", PLANS)
    if (plan == "engine" and not url) or (plan == "snapshot" and not metadata):
        raise BadOption(f"expected the option {'url' if plan == 'engine' else 'metadata'} with plan={plan}")
    settings = ZookeeperSettings(
        digest_file=given.text("zookeeperDigestFile"),
        tls=given.value("zookeeperTls", _truth, False, "true or false"),
        tls_ca_file=given.text("zookeeperTlsCaFile"),
        tls_certificate_file=given.text("zookeeperTlsCertificateFile"),
        tls_key_file=given.text("zookeeperTlsKeyFile"),
        tls_check_host=given.value("zookeeperTlsCheckHost", _truth, True, "true or false"),
    )
    for fault in settings.faults():
        names = {of: name for name, of in ZOOKEEPER.items()}
        raise BadOption(" ".join(names.get(word, word) for word in fault.split()))
    timeout_s = given.value("timeout", seconds, 10.0, "seconds, more than 0")
    return ClusterOptions(url, metadata, given.text("tokenFile"), plan, timeout_s, settings)


def _place(given: GivenOptions, which: str, word: str) -> Beginning:
    seqnum = given.value(f"{which}Seqnum", _seqnum, None, "a seqnum, from 0 to 2**63-1")
    if seqnum is not None:
        return seqnum
    time_ms = given.value(
        f"{which}Timestamp",
        _time_ms,
        None,
        "milliseconds since 1970 (not seconds), or a time as 2026-01-31, 2026-01-31T12:00:00Z, 2026-01-31T13:00+01:00 (UTC if it says no "
        "zone)",
    )
    if time_ms is not None:
        return Beginning("", None, time_ms)
    expected = 'earliest, latest, or offsets as {"0": [term, position]}'
    return given.value(f"{which}Offsets", _offsets, Beginning(word), expected)


def _seqnum(text: str) -> Beginning:
    number = int(text)
    if not 0 <= number <= SEQNUM_MAX:
        raise ValueError(text)
    return Beginning("", None, None, number)


def _offsets(text: str) -> Beginning:
    if text in WORDS:
        return Beginning(text)
    found = json.loads(text)
    return Beginning("", decode_offset(found) if isinstance(found, dict) and "logs" in found else decode_logs(found))


def _time_ms(text: str) -> int:
    if text.isdecimal():
        number = int(text)
        if 0 < number < LEAST_MS:
            raise ValueError(text)
        return number
    found = datetime.fromisoformat(text)
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def _tags(text: str) -> tuple[int, ...]:
    found = json.loads(text) if text.lstrip().startswith("[") else [part.strip() for part in text.split(",")]
    return tuple(dict.fromkeys(tag_id(one) for one in found))


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _bytes(text: str) -> int:
    number, unit = text.strip().lower().removesuffix("b").removesuffix("i"), 1
    for name, size in (("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30)):
        if number.endswith(name):
            number, unit = number.removesuffix(name), size
    return _count(number) * unit


COLUMNS: Final = {
    "seqnum": "bigint",
    "term": "int",
    "pos": "bigint",
    "log": "int",
    "book": "bigint",
    "tags": "array<bigint>",
    "tag_names": "array<string>",
    "data": "binary",
    "time": "timestamp",
}
"""Columns of records, with their types as Spark names them."""
SCHEMA: Final = ", ".join(f"{name} {kind}{' NOT NULL' if name == 'seqnum' else ''}" for name, kind in COLUMNS.items())
"""The columns of records as Spark's schema text."""


def chosen_columns(columns: list[tuple[str, str]]) -> tuple[str, ...]:
    """Return the column names of a schema that the user gave.

    Raises:
        BadSchema: a column is unknown or has another type.
    """
    for name, kind in columns:
        if COLUMNS.get(name) != kind:
            raise BadSchema(f"expected columns among {SCHEMA}; found {name} {kind}")
    if not columns:
        raise BadSchema(f"expected at least one column among {SCHEMA}; found none")
    return tuple(name for name, _ in columns)
