"""README, docs, docstrings, comments and messages are in plain English: no sentence that readers stumbled over."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATED = ("evidence.md", "paper.md", "zoo.md")  # written by scripts from results
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *(file for file in sorted(ROOT.glob("docs/**/*.md")) if file.name not in GENERATED)]
PHRASES = [  # parts of the sentences that the style guide replaces
    "who names none",
    "who names one",
    "who names any",
    "leaves the choice to the model",
    "gets the published value of the others",
    "what features do whose influence",
    "where the scores start",
    "where these have scores",
    "at which nothing is said",
    "nothing is said here",
    "add up and say little",
    "adds up and says little",
    "what flows through them, not what set them",
    "what flows through a pattern, not what set it",
    "does not read its sizes as effects",
    "cost nothing here has reasons",
    "in shorter numbers",
    "which something outside of it has kept",
    "let forward not write there",
    "have met it, and the way back",
    "in this company alone",
    "in other company",
    "in different company",
    "which nobody has used yet",
    "somebody is there: engines",
    "it began when it began",
    "the way of deep models",
    "the way of shallow",
    "what people have in their hands",
    "the plan of the house",
]
NAMES = [  # of files and folders that were renamed
    "`_scores/",
    "`show/",
    "`_commands/",
    "`_server/",
    "`_sources/",
    "`explain.py`",
    "`_engine/way.py`",
    "`cafe.way`, `e.settings`",
]


def plain(document):
    return re.sub(r"\s+", " ", document.read_text(encoding="utf-8")).lower()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_no_sentence_that_readers_stumbled_over(document):
    text = plain(document)
    assert [phrase for phrase in (*PHRASES, *NAMES) if phrase in text] == []


DEPRECATED = [
    r"explain\([^)]*\b(target=\"all\"|refine=|layer=|check=|c=\[|tokenizer=|preprocess=|feature_names=)",
    r"CAFE\(model, (netting|flows|biases|norms|norm_mean)=",
    r"\.plot_(pairs|biases)\(",
]


@pytest.mark.parametrize("document", [file for file in DOCUMENTS if file.name != "CHANGELOG.md"], ids=lambda file: file.name)
def test_no_deprecated_form(document):
    text = document.read_text(encoding="utf-8")
    if document.name == "default.md":  # explains the warning
        text = text.replace('`CAFE(model, netting="path")` took', "")
    assert [found for pattern in DEPRECATED for found in re.findall(pattern, text)] == []


def sentences(text):
    """Sentences of paragraphs and lists, without code, tables, headings and pictures."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(\||#|!).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    for paragraph in re.split(r"\n\s*\n|^- ", text, flags=re.MULTILINE):
        for sentence in re.split(r"(?<=[.?!])\*?\s+", " ".join(paragraph.split())):
            words = re.findall(r"[\w`'.-]*\w[\w`'-]*", sentence)
            if len(words) > 2:
                yield sentence, len(words)


def test_sentences_of_the_readme_are_short():
    lengths = dict(sentences((ROOT / "README.md").read_text(encoding="utf-8")))
    assert len(lengths) > 25
    assert sum(lengths.values()) / len(lengths) < MEAN
    assert {sentence: length for sentence, length in lengths.items() if length > LONGEST} == {}


NAVIGATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
START_AND_HOW_TO = re.findall(r"[\w/-]+\.md", NAVIGATION[NAVIGATION.index("- Start here:") : NAVIGATION.index("- Understand:")])
LONGEST, MEAN = 35, 22  # words of a sentence


@pytest.mark.parametrize("page", START_AND_HOW_TO)
def test_sentences_of_start_here_and_how_to_are_short(page):
    lengths = dict(sentences((ROOT / "docs" / page).read_text(encoding="utf-8")))
    assert sum(lengths.values()) / max(len(lengths), 1) < MEAN
    assert {sentence: length for sentence, length in lengths.items() if length > LONGEST} == {}


def test_the_readme_is_one_page():
    """At most 600 words, tables and links included; code is not counted."""
    text = re.sub(r"^```.*?^```", "", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert len(text.split()) <= 600


def test_the_citation_is_that_of_the_package():
    yaml = pytest.importorskip("yaml")
    from cafexai import __version__

    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    paper, readme = cited["preferred-citation"], (ROOT / "README.md").read_text(encoding="utf-8")
    assert cited["version"] == __version__
    assert f"doi = {{{paper['doi']}}}" in readme
    assert f"title = {{{paper['title']}}}" in readme
    assert " and ".join(f"{one['family-names']}, {one['given-names']}" for one in paper["authors"]) in readme


# ---- the package: docstrings, comments and messages ------------------------------------------------------------------------

SOURCES = sorted((ROOT / "src" / "cafexai").rglob("*.py"))
PATTERNS = [  # a word of the field says the same
    r"\bthe words are\b",  # Allowed values: ...
    r"\bthe (kinds|methods|names) are [{'\"]",
    r"\bThere are: \{",
    r"\bold words? for\b",  # an earlier name of
    r"(^|[.;:] )Who(ever)? [a-z]+s (?!whom)",  # a headless relative: If you ...
    r"\b(no|some)body\b",
    r"\bwhoever\b",
    r"\b(this|other|any|different) company\b",  # this batch
    r"\bthe way back\b",  # the backward pass
    r"\bput away\b",  # removed
    r"\bdisturb(s|ed)?\b",  # perturb
    r"\bthe book\b",  # the bias ledger
    r"\bvalues? under explanation\b",  # scored value
    r"\bexplain\(\.\.\., (layer|target_layer|refine)=",  # forms of version 0.1
    r"\bCAFE\(\w+, (netting|flows|biases|norms|norm_mean|attention)=",  # without variant=, which gives a FutureWarning
]
BANNED = re.compile("|".join(PATTERNS))


def texts(file):
    """The docstrings, comments and messages of a file, with the line of each."""
    source = file.read_text(encoding="utf-8")
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, " ".join(node.value.split())
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def test_the_package_is_in_plain_english():
    found = []
    for file in SOURCES:
        if file.name == "_old_forms.py":
            continue
        for line, text in texts(file):
            lower = text.lower()
            words = [phrase for phrase in PHRASES if phrase in lower] + [match[0] for match in BANNED.finditer(text)]
            found += [f"{file.relative_to(ROOT)}:{line}: {word}" for word in words]
    assert found == []


def test_files_are_short():
    """At most 400 lines, of Python and of what pages are made of."""
    files = [file for kind in ("py", "js", "css", "html") for file in (ROOT / "src" / "cafexai").rglob(f"*.{kind}")]
    lengths = {file.relative_to(ROOT).as_posix(): len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    assert len(lengths) > 400
    assert {file: length for file, length in lengths.items() if length > 400} == {}


def test_the_glossary_is_linked():
    assert "docs/glossary.md" in (ROOT / "README.md").read_text(encoding="utf-8")
