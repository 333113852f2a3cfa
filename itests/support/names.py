"""Names in backticks, and whether the project has what they name. Reads syntax trees; imports nothing of the project.

- A file (`errors.py`, `docs/queue.md`) has to be in the repository, at that path or below some folder.
- A dotted name that begins with a module (`checkpoint_rules.must_rewrite`, `bokilib.Log`) has to be defined or imported there. A
  module may be named by the end of its path.
- A dotted name that begins with a class (`Log.append`) has to be a member of it or of a base.
- A name that begins with a variable (`follower.current`) or stands alone has to occur in the code: as a definition, parameter,
  attribute or keyword, or as a string that is an identifier (settings, metrics, labels).
- Other text in backticks (commands, tags with placeholders, JSON) is not a name. Of a table that compares the project with others, whose
  first column is headed "here", only that column is read.

What this does not know: which variable is of which class. So a stale name that exists elsewhere by chance is not found.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Final

SPAN: Final = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
NAME: Final = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(.*\))?")
FILE: Final = re.compile(r"[\w./-]+\.(?:py|md|toml)")
WORD: Final = re.compile(r"[A-Za-z_]\w*")
ELSEWHERE: Final = frozenset(sys.stdlib_module_names)


class Names:
    """Modules, classes and words of a project, collected from its files by `add`."""

    def __init__(self, files: Iterable[str] = ()) -> None:
        """Create an empty collection.

        Args:
            files: paths of all files in the repository.
        """
        self._files: Final = frozenset(files)
        self._folders: Final = {str(folder) for file in self._files for folder in PurePosixPath(file).parents}
        self._modules: Final[dict[str, set[str]]] = {}
        self._by_end: Final[dict[str, set[str]]] = {}
        self._packages: Final[set[str]] = set()
        self._members: Final[dict[str, set[str]]] = {}
        self._bases: Final[dict[str, set[str]]] = {}
        self._foreign: Final = set(ELSEWHERE)
        self._imported: Final[set[str]] = set()
        self._words: Final = {*dir(builtins), *keyword.kwlist}

    def add(self, module: str, tree: ast.Module) -> None:
        """Add the names of a module, by its dotted path."""
        parts = module.split(".")
        for start in range(len(parts)):
            self._by_end.setdefault(".".join(parts[start:]), set()).add(module)
            self._packages.update(".".join(parts[start:end]) for end in range(start + 1, len(parts)))
        tops = self._modules.setdefault(module, set())
        for statement in tree.body:
            tops.update(_defined(statement))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                tops.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
            if isinstance(node, ast.ClassDef):
                self._members.setdefault(node.name, set()).update(_members(node))
                self._bases.setdefault(node.name, set()).update(filter(None, map(_last_name, node.bases)))
            if isinstance(node, ast.Import):
                self._foreign.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
            if isinstance(node, ast.ImportFrom):
                self._foreign.add((node.module or "").partition(".")[0])
                self._imported.update(alias.asname or alias.name for alias in node.names)
            self._words.update(_words(node))

    def own(self) -> None:
        """Take the project's packages out of the imported modules, once all are added."""
        self._foreign.difference_update(module.partition(".")[0] for module in self._modules)

    def resolves(self, span: str, others: frozenset[str] = frozenset()) -> bool:
        """Return whether the text of a span in backticks names something, or is not a name.

        Args:
            span: the text.
            others: further words that are known where it stands, as those of a page's code blocks.
        """
        if FILE.fullmatch(span):
            return span in self._files or any(file.endswith(f"/{span.lstrip('./')}") for file in self._files)
        matched = NAME.fullmatch(span)
        if matched is None:
            return True
        parts = matched[1].split(".")
        if parts[0] in self._foreign or "/".join(parts) in self._folders:
            return True
        known = self._words | others
        if len(parts) == 1:
            return (
                parts[0] in known
                or parts[0] in self._imported
                or parts[0] in self._packages
                or parts[0] in self._by_end
            )
        if matched[1] in self._packages or self._in_module(parts):
            return True
        if parts[0] in self._members:
            return self._in_class(parts[0], parts[1:])
        return all(part in known for part in parts)

    def _in_module(self, parts: list[str]) -> bool:
        for end in range(len(parts), 0, -1):
            for module in self._by_end.get(".".join(parts[:end]), ()):
                rest = parts[end:]
                if not rest:
                    return True
                if rest[0] in self._modules[module]:
                    return len(rest) == 1 or rest[0] not in self._members or self._in_class(rest[0], rest[1:])
        return False

    def _in_class(self, name: str, rest: list[str]) -> bool:
        """Return whether a class has a member. A base of another project may have any word as a member."""
        waiting, seen = [name], set()
        while waiting:
            one = waiting.pop()
            if one in seen:
                continue
            seen.add(one)
            if one not in self._members:
                return rest[0] in self._words or hasattr(getattr(builtins, one, None), rest[0])
            if rest[0] in self._members[one]:
                return True
            waiting.extend(sorted(self._bases[one] - {"Protocol", "Generic", "object"}))
        return False


def _members(kind: ast.ClassDef) -> Iterator[str]:
    for statement in kind.body:
        yield from _defined(statement)
    for node in ast.walk(kind):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _last_name(node.value) == "self":
            yield node.attr


def _defined(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
    elif isinstance(statement, ast.If | ast.Try):
        for inner in ast.iter_child_nodes(statement):
            if isinstance(inner, ast.stmt):
                yield from _defined(inner)


def _last_name(node: ast.expr) -> str | None:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None


def _words(node: ast.AST) -> Iterator[str]:
    """Yield the words that a node defines or uses; not those that it imports."""
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Store):
            yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.arg | ast.keyword):
        yield node.arg or ""
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler):
        yield node.name or ""
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 256:
        yield from WORD.findall(node.value) if " " not in node.value else ()


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each docstring of a module, its classes, functions and attributes, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def page_text(page: str) -> tuple[list[tuple[int, str]], frozenset[str]]:
    """Return the lines of a Markdown page outside its code blocks, with their numbers, and the words inside them."""
    lines: list[tuple[int, str]] = []
    words: set[str] = set()
    code = compared = False
    for number, line in enumerate(page.splitlines(), 1):
        compared = line.startswith("| here |") or (compared and line.startswith("|"))
        if line.lstrip().startswith("```"):
            code = not code
        elif code:
            words.update(WORD.findall(line))
        else:
            lines.append((number, line.split("|")[1] if compared else line))
    return lines, frozenset(words)


def module_of(file: str) -> str:
    """Return the dotted path of a module from its path in the repository: `libs/x/x/a.py` and `core/x/a.py` are x.a."""
    parts = list(PurePosixPath(file).with_suffix("").parts)
    parts = parts[2 if parts[0] == "libs" else 1 :] if len(parts) > 1 and parts[0] != "examples" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
