"""pyright in its strict mode over programs of a library: one that is right, and wrong lines in a frame of declarations."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


def check_typed_programs(
    directory: Path,
    good: str,
    frame: str,
    wrong: Sequence[str],
    libraries: Sequence[str],
    *,
    end: str = "",
    **rules: str,
) -> None:
    """Assert that pyright accepts the good program, and refuses each wrong line at that line and nowhere else.

    Args:
        directory: for the programs.
        good: the program that is right.
        frame: declarations, which end in the header of a function.
        wrong: lines of its body, each for a program of its own.
        libraries: folders of `libs/` that the programs import.
        end: of the body.
        rules: settings of pyright's rules.
    """
    (directory / "good.py").write_text(good)
    for number, line in enumerate(wrong):
        (directory / f"wrong{number:02}.py").write_text(f"{frame}    {line}\n{end}")
    settings = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "extraPaths": [str(ROOT / folder) for folder in (*(f"libs/{one}" for one in libraries), "logbook", "common")],
        "venvPath": str(ROOT),
        "venv": ".venv",
        **rules,
    }
    (directory / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--project", str(directory)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    faults: dict[str, list[int]] = {}
    for one in json.loads(ran.stdout)["generalDiagnostics"]:
        faults.setdefault(Path(one["file"]).name, []).append(one["range"]["start"]["line"])
    assert "good.py" not in faults, ran.stdout
    last = frame.count("\n")
    expected = {f"wrong{number:02}.py": {last} for number in range(len(wrong))}
    assert {name: set(lines) for name, lines in faults.items()} == expected, ran.stdout
