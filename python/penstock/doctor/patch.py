"""The change that puts Penstock's DataLoader into a script, as a diff."""

import ast
import difflib
import io
import os
from dataclasses import dataclass

TORCH = "torch.utils.data", "torch.utils.data.dataloader"
OURS = "penstock.torch"


@dataclass(frozen=True)
class Edit:
    """These characters of the source become this text."""

    begin: int
    end: int
    text: str


def lines_of(text: str) -> list[str]:
    """Ended by line feeds, as a tree counts them; splitlines() also splits at form feeds and more."""
    return list(io.StringIO(text, newline="\n"))


class Source:
    """A file's text, its tree, and the way from one to the other."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._lines = lines_of(text)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        """Lines count from 1; columns of a tree count bytes."""
        before = self._lines[line - 1].encode()[:column]
        return self._starts[line - 1] + len(before.decode())

    def span(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def after_imports(self) -> int:
        """Behind the last import at the top of the file."""
        imports = [n for n in self.tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
        return self._starts[max((n.end_lineno or 0 for n in imports), default=0)]


def is_own(path: str, folder: str) -> bool:
    """Is the file part of the project that the script's folder holds, and for its author to change?"""
    parts = os.path.relpath(os.path.realpath(path), os.path.realpath(folder)).split(os.sep)
    return parts[0] != ".." and not {"site-packages", "dist-packages"} & set(parts)


def propose(path: str) -> str | None:
    """A unified diff of the file, or None if it does not mention torch's DataLoader by name."""
    try:
        with open(path, encoding="utf-8") as file:
            source = Source(file.read())
    except (OSError, SyntaxError, ValueError):
        return None
    aliases = _aliases(source.tree)
    edits = [edit for node in ast.walk(source.tree) for edit in _edits(node, aliases, source)]
    if not edits:
        return None
    if any(edit.text.startswith(f"{OURS}.") for edit in edits):
        at = source.after_imports()
        edits.append(Edit(at, at, f"import {OURS}\n"))
    changed = source.text
    for edit in sorted(edits, key=lambda e: e.begin, reverse=True):
        changed = changed[: edit.begin] + edit.text + changed[edit.end :]
    name = os.path.basename(path)
    old, new = lines_of(source.text), lines_of(changed)
    return "".join(difflib.unified_diff(old, new, name, name, n=0))


def _aliases(tree: ast.AST) -> dict[str, str]:
    """Names that stand for a module: `import torch.utils.data as d` is {"d": "torch.utils.data"}."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    found[alias.asname] = alias.name
                else:
                    found[alias.name.partition(".")[0]] = alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def _edits(node: ast.AST, aliases: dict[str, str], source: Source) -> list[Edit]:
    if isinstance(node, ast.ImportFrom) and node.module in TORCH and node.level == 0:
        return _split_import(node, source)
    if (
        isinstance(node, ast.Attribute)
        and node.attr == "DataLoader"
        and _dotted(node.value, aliases) in TORCH
    ):
        return [Edit(*source.span(node), f"{OURS}.DataLoader")]
    return []


def _split_import(node: ast.ImportFrom, source: Source) -> list[Edit]:
    """`from torch.utils.data import DataLoader, Dataset`: what is not ours stays."""
    ours = [alias for alias in node.names if alias.name == "DataLoader"]
    if not ours:
        return []
    lines = [f"from {OURS} import {_name(alias)}" for alias in ours]
    rest = [alias for alias in node.names if alias.name != "DataLoader"]
    if rest:
        lines.append(f"from {node.module} import {', '.join(map(_name, rest))}")
    indent = " " * node.col_offset
    return [Edit(*source.span(node), f"\n{indent}".join(lines))]


def _name(alias: ast.alias) -> str:
    return f"{alias.name} as {alias.asname}" if alias.asname else alias.name


def _dotted(node: ast.expr, aliases: dict[str, str]) -> str | None:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in aliases:
        return None
    return ".".join([aliases[node.id], *reversed(names)])
