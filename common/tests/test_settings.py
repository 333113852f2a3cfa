"""Settings: sources and their order, conversion, and that every fault is found and named."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from boki_common.errors import SettingsError
from boki_common.settings import NOT_SETTINGS, document, load_settings, rows, setting, table, validate


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    journal_segment_bytes: int = setting(1024, unit="bytes", help="Size of a segment.", minimum=512, maximum=4096)
    sync: bool = setting(True, unit="", help="Whether to sync.")
    groups: int = setting(1, unit="", help="Groups in a segment.", minimum=1)

    def faults(self) -> Iterable[str]:
        if self.groups > self.journal_segment_bytes:
            yield f"expected at most {self.journal_segment_bytes} groups, found {self.groups}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    metadata: str = setting("memory://", unit="", help="Where metadata lives.")
    data: Path | None = setting(None, unit="", help="Data directory.")
    ratio: float = setting(0.5, unit="ratio", help="A ratio.", minimum=0.0, maximum=1.0)
    level: Literal["debug", "info"] = setting("info", unit="", help="Log level.")
    listen: tuple[str, ...] = setting(("a:1",), unit="", help="Addresses.")
    bookie: JournalSettings = table(JournalSettings)


def load(
    environ: dict[str, str] | None = None, flags: dict[str, object] | None = None, file: Path | None = None
) -> ServerSettings:
    return load_settings(ServerSettings, file=file, environ=environ or {}, flags=flags or {})


def faults_of(raised: pytest.ExceptionInfo[SettingsError]) -> list[str]:
    return list(raised.value.faults)


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    file = tmp_path / "boki.toml"
    file.write_text('metadata = "file"\nratio = 1\nlisten = ["b:2", "c:3"]\n[bookie]\ngroups = 2\nsync = false\n')
    return file


def test_defaults_hold_when_no_source_names_a_setting() -> None:
    assert load() == ServerSettings()


def test_file_then_environment_then_flags(toml: Path) -> None:
    environ = {"BOKI_METADATA": "environment", "BOKI_BOOKIE_GROUPS": "3", "PATH": "/bin"}
    found = load(environ, {"bookie.groups": 4, "level": None}, toml)
    assert found.metadata == "environment"
    assert found.ratio == 1.0 and isinstance(found.ratio, float)
    assert found.listen == ("b:2", "c:3")
    assert found.bookie == JournalSettings(groups=4, sync=False)


def test_environment_texts_become_values() -> None:
    found = load(
        {
            "BOKI_DATA": "/var/lib/boki",
            "BOKI_RATIO": "0.25",
            "BOKI_LEVEL": "debug",
            "BOKI_LISTEN": "a:1, b:2,",
            "BOKI_BOOKIE_SYNC": "No",
            "BOKI_BOOKIE_JOURNAL_SEGMENT_BYTES": "2_048",
        }
    )
    assert found == ServerSettings(
        data=Path("/var/lib/boki"),
        ratio=0.25,
        level="debug",
        listen=("a:1", "b:2"),
        bookie=JournalSettings(sync=False, journal_segment_bytes=2048),
    )
    assert load({"BOKI_DATA": ""}).data is None


def test_flags_may_be_texts_or_values() -> None:
    assert load(flags={"bookie.sync": "off", "ratio": "1"}) == load(flags={"bookie.sync": False, "ratio": 1.0})


def test_names_that_are_no_settings_are_left_alone() -> None:
    assert load(dict.fromkeys(NOT_SETTINGS, "x")) == ServerSettings()


def test_unknown_keys_name_the_nearest_in_every_source(tmp_path: Path) -> None:
    file = tmp_path / "boki.toml"
    file.write_text("[bookie]\njournal_segment_byte = 1\n[booky]\ngroups = 1\n")
    with pytest.raises(SettingsError) as raised:
        load({"BOKI_BOOKIE_GROUP": "1"}, {"levl": "info"}, file)
    assert faults_of(raised) == [
        f"{file}: unknown setting bookie.journal_segment_byte; did you mean bookie.journal_segment_bytes?",
        f"{file}: unknown setting booky; did you mean bookie?",
        "environment: unknown variable BOKI_BOOKIE_GROUP; did you mean BOKI_BOOKIE_GROUPS?",
        "flag: unknown setting levl; did you mean level?",
    ]
    assert "4 settings are wrong" in str(raised.value)


def test_a_setting_in_the_wrong_table_is_pointed_to_its_own() -> None:
    with pytest.raises(SettingsError, match=r"did you mean bookie\.groups\?"):
        load(flags={"groups": 1})


@pytest.mark.parametrize(
    ("environ", "fault"),
    [
        ({"BOKI_BOOKIE_GROUPS": "many"}, "bookie.groups: expected a whole number, found 'many'"),
        ({"BOKI_RATIO": "half"}, "ratio: expected a number, found 'half'"),
        ({"BOKI_BOOKIE_SYNC": "maybe"}, "bookie.sync: expected true or false, found 'maybe'"),
        ({"BOKI_LEVEL": "loud"}, "level: expected one of 'debug', 'info', found 'loud'"),
    ],
)
def test_wrong_texts(environ: dict[str, str], fault: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load(environ)
    assert faults_of(raised) == [f"environment {next(iter(environ))}: {fault}"]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("metadata = 1", "metadata: expected a string, found 1"),
        ("ratio = true", "ratio: expected a number, found True"),
        ('listen = "a:1"', "listen: expected a list of strings, found 'a:1'"),
        ("bookie = 3", "bookie: expected a table, found 3"),
        ("data = ''", "data: expected a path, found ''"),
        ("[bookie]\ngroups = true", "bookie.groups: expected a whole number, found True"),
        ("[bookie]\ngroups = 1.5", "bookie.groups: expected a whole number, found 1.5"),
    ],
)
def test_wrong_types_in_the_file(tmp_path: Path, line: str, fault: str) -> None:
    file = tmp_path / "boki.toml"
    file.write_text(line + "\n")
    with pytest.raises(SettingsError) as raised:
        load(file=file)
    assert faults_of(raised) == [f"{file}: {fault}"]


def test_an_unreadable_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        load(file=tmp_path / "absent.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("a = \n")
    with pytest.raises(SettingsError, match=r"expected TOML in .*broken\.toml"):
        load(file=broken)
    broken.write_bytes(b"a = '\xff'\n")
    with pytest.raises(SettingsError, match=r"expected TOML in .*broken\.toml"):
        load(file=broken)


def test_ranges_and_rules_between_fields_are_collected_with_their_source() -> None:
    with pytest.raises(SettingsError) as raised:
        load(
            {"BOKI_RATIO": "1.5"},
            {"bookie.groups": 600, "bookie.journal_segment_bytes": 511},
        )
    assert faults_of(raised) == [
        "environment BOKI_RATIO: ratio: expected at most 1.0 ratio, found 1.5",
        "flag: bookie.journal_segment_bytes: expected at least 512 bytes, found 511",
        "bookie: expected at most 511 groups, found 600",
    ]


def test_not_a_number_is_out_of_every_range() -> None:
    with pytest.raises(SettingsError, match="at least"):
        load({"BOKI_RATIO": "nan"})


def test_validate_checks_settings_that_were_built_by_hand() -> None:
    validate(ServerSettings())
    with pytest.raises(SettingsError, match="at least 512 bytes, found 1"):
        validate(ServerSettings(bookie=JournalSettings(journal_segment_bytes=1)))


def test_document_has_a_row_for_each_setting() -> None:
    page = document(ServerSettings)
    for row in rows(ServerSettings):
        assert f"| `{row.key}` | `{row.variable}` |" in page
    assert "BOKI_BOOKIE_JOURNAL_SEGMENT_BYTES" in page


def test_two_settings_with_one_variable_are_a_programmers_error() -> None:
    @dataclass(frozen=True)
    class Twice:
        bookie_groups: int = setting(1, unit="", help="The same variable as bookie.groups.")
        bookie: JournalSettings = table(JournalSettings)

    Twice.__annotations__ = {"bookie_groups": int, "bookie": JournalSettings}
    with pytest.raises(AssertionError, match="one environment variable"):
        rows(Twice)
