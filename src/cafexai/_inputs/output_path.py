"""Which part of an output is meant, as people write it: ``"logits[:, -1]"``. It is read, never evaluated."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any


def follow_path(raw: Any, path: str) -> Any:
    """The part at this path: names or keys, and what stands in brackets (numbers, words, slices).

    Raises ValueError if it is no path; KeyError, IndexError, AttributeError or TypeError if there is no such part.
    """
    text = path.strip()
    try:
        tree = ast.parse(f"_{text}" if text.startswith(("[", ".")) else f"_.{text}", mode="eval").body
    except SyntaxError:
        raise ValueError(f"{path!r} is no path") from None
    return _part(raw, tree, path)


def _part(raw: Any, node: ast.expr, path: str) -> Any:
    if isinstance(node, ast.Name):
        return raw
    if isinstance(node, ast.Attribute) and not node.attr.startswith("_"):
        whole = _part(raw, node.value, path)
        return whole[node.attr] if isinstance(whole, Mapping) else getattr(whole, node.attr)
    if isinstance(node, ast.Subscript):
        return _part(raw, node.value, path)[_index(node.slice, path)]
    raise ValueError(f"{path!r} is no path")


def _index(node: ast.expr | None, path: str) -> Any:
    if node is None:
        return None
    if isinstance(node, ast.Slice):
        return slice(*(_index(end, path) for end in (node.lower, node.upper, node.step)))
    if isinstance(node, ast.Tuple):
        return tuple(_index(part, path) for part in node.elts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_index(node.operand, path)
    if isinstance(node, ast.Constant) and (isinstance(node.value, str) or type(node.value) is int or node.value in (None, ...)):
        return node.value
    raise ValueError(f"{path!r} is no path")
