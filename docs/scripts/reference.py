"""Write the reference from docstrings: a page per public module, with every public name.

Signatures come from ``inspect``, so that options which a decorator adds are there, too. Names come from ``__all__``.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import cafexai

MODULES = ["cafexai", *sorted(f"cafexai.{one.name}" for one in pkgutil.iter_modules(cafexai.__path__) if one.name[0] != "_")]
SECTIONS = ("Args", "Returns", "Yields", "Raises", "Example", "Examples", "Attributes", "Note")
ENTRY = re.compile(r"^(\*{0,2}[\w.]+(?:, \*{0,2}\w+)*)(?: \([^)]*\))?: ?(.*)$", re.DOTALL)
OWN_PAGES = {"CAFE": "cafe", "Explanation": "explanation", "Explanations": "explanation"}


def public_objects() -> dict[str, Any]:
    """Name -> object, for everything in ``__all__`` of the public modules, and the public methods of classes."""
    found: dict[int, tuple[str, Any]] = {}
    for name in MODULES:
        module = importlib.import_module(name)
        for word in getattr(module, "__all__", []):
            thing = getattr(module, word)
            if callable(thing) and getattr(thing, "__module__", "").startswith("cafexai"):
                found.setdefault(id(thing), (f"{name}.{word}", thing))
    objects = dict(found.values())
    for name, thing in list(objects.items()):
        if inspect.isclass(thing):
            members = {word: getattr(thing, word) for word in dir(thing) if word[0] != "_"}
            own = {word: one for word, one in members.items() if (getattr(one, "__module__", "") or "").startswith("cafexai")}
            objects |= {f"{name}.{word}": one for word, one in own.items() if inspect.isroutine(one)}
    return objects


def public_tables() -> dict[str, list[tuple[str, str]]]:
    """Public dictionaries of names, such as METHODS: their entries, each with the first sentence about it."""
    tables: dict[str, list[tuple[str, str]]] = {}
    for name in MODULES:
        module = importlib.import_module(name)
        for word in getattr(module, "__all__", []):
            thing = getattr(module, word)
            if isinstance(thing, Mapping):
                entries = [(str(key), sentence_about(one)) for key, one in thing.items()]
                if all(text for _, text in entries):
                    tables[f"{name}.{word}"] = entries
    return tables


def sentence_about(thing: Any) -> str:
    """The first sentence that an entry of a table says about itself."""
    thing = getattr(thing, "loader", thing)  # of a data set
    text = getattr(thing, "title", None) if not callable(thing) else None
    text = text if isinstance(text, str) else (inspect.getdoc(thing) if callable(thing) else "") or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def table_lines(name: str, entries: list[tuple[str, str]]) -> Iterator[str]:
    """A table of names in Markdown."""
    yield f"## {name.rpartition('.')[2]} {{ #{name} }}\n"
    yield f"`{name}` has {len(entries)} entries.\n"
    yield "| name | what it is |\n| --- | --- |\n" + "\n".join(f"| `{key}` | {text} |" for key, text in entries) + "\n"


def page_of(name: str) -> str:
    """The page of a name: that of its module, or one of its own."""
    first = name.split(".")[1]
    return OWN_PAGES.get(first, first if first[0].islower() and f"cafexai.{first}" in MODULES else "cafexai")


def sections(thing: Any) -> tuple[str, dict[str, str]]:
    """The text of a docstring before its sections, and the sections by name, without their indentation."""
    parts = re.split(rf"^({'|'.join(SECTIONS)}):[ \t]*$", inspect.getdoc(thing) or "", flags=re.MULTILINE)
    return parts[0].strip(), {
        name: textwrap.dedent(text.strip("\n")) for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def entries(text: str) -> list[tuple[str, str]]:
    """Name and description of each entry of a section."""
    blocks = re.split(r"\n(?=\S)", text.strip())
    found = [(block, ENTRY.match(" ".join(block.split()))) for block in blocks]
    return [(match[1], match[2]) if match else ("", " ".join(block.split())) for block, match in found]


def signature(thing: Any) -> inspect.Signature | None:
    """How it is called; None for what nobody calls: errors, dictionaries, protocols."""
    if inspect.isclass(thing) and (issubclass(thing, (BaseException, dict)) or getattr(thing, "_is_protocol", False)):
        return None
    found = inspect.signature(thing)
    kept = [one for name, one in found.parameters.items() if name not in ("self", "cls")]
    return found.replace(parameters=kept)


def call(name: str, found: inspect.Signature) -> str:
    """A call as code, one parameter per line where it is long."""
    words, star = [], False
    for one in found.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not star and not any(word.startswith("*") for word in words):
            words.append("*")
            star = True
        value = "" if one.default is one.empty else f"={shown(one.default)}"
        words.append({one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "") + one.name + value)
    line = f"{name}({', '.join(words)})"
    return line if len(line) <= 88 else f"{name}(\n    " + ",\n    ".join(words) + ",\n)"


def shown(value: Any) -> str:
    """A default value as code; objects by the name of their class."""
    if inspect.isroutine(value) or inspect.isclass(value):
        return str(value.__name__)
    text = repr(value)
    return "..." if " at 0x" in text or text.startswith("<") else text


def typed(annotation: Any) -> str:
    """An annotation as text; empty if it says nothing."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return (
        ""
        if text in ("Any", "typing.Any", "inspect._empty", "")
        else text.replace("typing.", "").replace("torch.Tensor", "Tensor")
    )


def described(name: str, thing: Any, level: int) -> Iterator[str]:
    """The text of one name in Markdown."""
    head, parts = sections(thing)
    yield f"{'#' * level} {name.rpartition('.')[2]} {{ #{name} }}\n"
    found = signature(thing)
    if found is not None:
        short = ".".join(name.split(".")[-2:]) if level > 2 else name
        yield f"```py\n{call(short, found)}\n```\n"
    yield head + "\n"
    for title in ("Args", "Attributes"):
        if title in parts:
            yield f"**{'Parameters' if title == 'Args' else title}**\n"
            yield from parameter_lines(parts[title], found)
    for title in ("Returns", "Yields"):
        if title in parts:
            kind = "" if found is None else typed(found.return_annotation)
            yield (
                f"**{title}** " + (f"(`{kind}`) " if kind and "\n" not in kind else "") + " ".join(parts[title].split()) + "\n"
            )
    if "Raises" in parts:
        yield "**Raises**\n"
        yield "\n".join(f"- `{word}`: {text}" if word else f"- {text}" for word, text in entries(parts["Raises"])) + "\n"
    for title in ("Note", "Example", "Examples"):
        if title in parts:
            code = parts[title]
            yield f"**{title}**\n"
            yield f"```pycon\n{code.strip()}\n```\n" if ">>>" in code else code + "\n"
    if inspect.isclass(thing):
        yield from property_lines(thing)


def parameter_lines(text: str, found: inspect.Signature | None) -> Iterator[str]:
    """One line per parameter: name, type, default, meaning."""
    lines = []
    for words, meaning in entries(text):
        one = None if found is None else found.parameters.get(words.lstrip("*"))
        kind = "" if one is None else typed(one.annotation)
        lines.append(f"- `{words}`" + (f" (`{kind}`)" if kind else "") + f": {meaning}" if words else f"- {meaning}")
    yield "\n".join(lines) + "\n"


def property_lines(thing: Any) -> Iterator[str]:
    """The properties of a class with their first sentence."""
    fields = {one.name for one in dataclasses.fields(thing)} if dataclasses.is_dataclass(thing) else set()
    found = {
        word: one
        for word in dir(thing)
        if word[0] != "_" and word not in fields
        for one in [inspect.getattr_static(thing, word)]
    }
    lines = [
        f"- `{word}`: {' '.join(sections(one)[0].split(chr(10) * 2)[0].split())}"
        for word, one in found.items()
        if isinstance(one, property) and one.__doc__ and (one.fget.__module__ or "").startswith("cafexai")
    ]
    if lines:
        yield "**Properties**\n"
        yield "\n".join(lines) + "\n"


def reference_pages() -> dict[str, str]:
    """File name -> Markdown of every page of the reference, the index first."""
    pages: dict[str, list[str]] = {"index": []}
    objects, tables = public_objects(), public_tables()
    tops = [name for name in objects if name.rpartition(".")[0] not in objects]
    for page in sorted(
        {page_of(name) for name in tops}, key=lambda page: (page not in ("cafe", "explanation", "cafexai"), page)
    ):
        names = [name for name in tops if page_of(name) == page]
        if page == "explanation":
            names.sort(key=lambda name: name.count("."))
        module = importlib.import_module("cafexai" if page in ("cafe", "cafexai") else f"cafexai.{page}")
        title = {"cafe": "CAFE, the explainer", "cafexai": "cafexai, further names", "explanation": "Explanation, the result"}
        text = [f"# {title.get(page, f'cafexai.{page}')}\n", f"{sections(module)[0]}\n"]
        for name in names:
            text += described(name, objects[name], 2)
            members = [other for other in objects if other.rpartition(".")[0] == name]
            for other in members:
                text += described(other, objects[other], 3)
        own = {name: entries for name, entries in tables.items() if page_of(name) == page}
        for name, entries in own.items():
            text += table_lines(name, entries)
        pages[page] = text
        pages["index"] += [f"## {title.get(page, f'cafexai.{page}')}\n", "| name | what it is |\n| --- | --- |"]
        for name in names:
            pages["index"].append(index_line(page, name, objects[name]))
            if page in ("cafe", "explanation") and name.count(".") == 1:
                pages["index"] += [
                    index_line(page, other, one) for other, one in objects.items() if other.rpartition(".")[0] == name
                ]
        pages["index"] += [
            f"| [`{name.removeprefix('cafexai.')}`]({page}.md#{name}) | A dictionary of {len(entries)} entries, by name. |"
            for name, entries in own.items()
        ]
        pages["index"].append("")
    intro = f"# Reference\n\nAll {len(objects)} public names and {len(tables)} tables of names, from docstrings. "
    intro += "The examples run as tests.\n"
    pages["index"].insert(0, intro)
    return {f"reference/{page}.md": "\n".join(text) for page, text in pages.items()}


def index_line(page: str, name: str, thing: Any) -> str:
    """A line of the index: the name as a link, and its first sentence."""
    first = " ".join(sections(thing)[0].split("\n\n")[0].split()).replace("|", "\\|")
    return f"| [`{name.removeprefix('cafexai.')}`]({page}.md#{name}) | {first} |"


def write_reference(folder: Path) -> list[Any]:
    """Write all pages below a folder; their entries for the navigation."""
    pages = reference_pages()
    for file, text in pages.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")
    return list(pages)
