"""The examples of RFC 7386, appendix A."""

from __future__ import annotations

import json

import pytest

from bokilib.records.codec import Json
from bokistore.model.merge_patch import merged

EXAMPLES = """
{"a":"b"} | {"a":"c"} | {"a":"c"}
{"a":"b"} | {"b":"c"} | {"a":"b","b":"c"}
{"a":"b"} | {"a":null} | {}
{"a":"b","b":"c"} | {"a":null} | {"b":"c"}
{"a":["b"]} | {"a":"c"} | {"a":"c"}
{"a":"c"} | {"a":["b"]} | {"a":["b"]}
{"a":{"b":"c"}} | {"a":{"b":"d","c":null}} | {"a":{"b":"d"}}
{"a":[{"b":"c"}]} | {"a":[1]} | {"a":[1]}
["a","b"] | ["c","d"] | ["c","d"]
{"a":"b"} | ["c"] | ["c"]
{"a":"foo"} | null | null
{"a":"foo"} | "bar" | "bar"
{"e":null} | {"a":1} | {"e":null,"a":1}
[1,2] | {"a":"b","c":null} | {"a":"b"}
{} | {"a":{"bb":{"ccc":null}}} | {"a":{"bb":{}}}
"""


@pytest.mark.parametrize("line", EXAMPLES.strip().splitlines())
def test_examples(line: str) -> None:
    target, patch, result = (json.loads(part) for part in line.split("|"))
    before = json.dumps(target)
    made: Json = merged(target, patch)
    assert made == result
    assert json.dumps(target) == before, "what is given is not changed"
