"""Write docs/zoo.md from the results of the zoo."""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
VERDICTS = ["explained", "refused", "wrong", "broken", "traceback", "no answer"]
HEAD = """# The zoo: models of public packages, explained as they are

Written by `make zoo` from `zoo/results.jsonl`. Every model is built with random weights, small where the package lets us say
so (`zoo/families/`; ONNX files in packages have their trained weights), and explained on two random rows by
`CAFE(model).explain(x)` in float32, with nothing chosen. What is explained is the largest number of the first output; where
every picture or sound is compared with every text, that of its own text. Weights are drawn anew where another input moves
the output by less than a thousandth of it (`zoo/liveliness.py`). Names with `+pictures`: codes and pictures are both inputs.
Versions are pinned in `zoo/requirements.txt`.

- *explained*: the scores add up to the change of the output, to 1e-4 of it + 1e-5 of sum |combined| (+ the rounding of the two
  outputs that are subtracted), and the output is that of the model.
- *refused*: an error of ours that says what stands in the way, and what to do instead.
- *wrong*, *broken*, *traceback*, *no answer*: sums that miss; a law that we found broken ourselves; an error that nobody
  meant; longer than the limit of time, or more memory than the limit.

"sum misses" is what the sum of the scores lacks, of the change of the output ("of allowed": of what it may lack; where the
output hardly changes, that is the rounding of the output); "size" is sum |combined| of the output, "time"
`attribute` beside a forward and a backward pass of the model, median of five, seconds of one processor: most models here are so
small that it says what a call costs, not what arithmetic costs. "supported" is whether `cafexai.supported` says the same.
"""


EXACT_HEAD = """Sums of models with attention against two runs of the model itself, at the row and at its baseline, in
float32 (`make zoo ZOO=--exact`, from `zoo/exactness.jsonl`). They hold if they miss at most 1e-4 of the change, or of 1 %
of the largest output. The last column counts models in which a softmax, attention or a norm is frozen. What `topk` or
`argmax` route by an index is frozen: such sums miss what other choices at the baseline change. Models that run and are not
in this table were not asked yet."""


def page(records: list[dict[str, Any]], exact: list[dict[str, Any]]) -> str:
    """The summary, what does not work, sums against the model itself, and one table for each package."""
    ran = [record for record in records if record["verdict"] != "not run"]
    packages = dict.fromkeys(record["model"].split("/")[0] for record in records)
    summary = [f"| package | version | models | {' | '.join(VERDICTS)} | time |", "| --- " * (len(VERDICTS) + 4) + "|"]
    for name in [*packages, None]:
        of = [record for record in ran if name is None or record["model"].split("/")[0] == name]
        if of:
            counts = Counter(record["verdict"] for record in of)
            what = "**all**" if name is None else name
            version = "" if name is None else of[0]["version"]
            numbers = " | ".join(str(counts[verdict]) for verdict in VERDICTS)
            summary.append(f"| {what} | {version} | {len(of)} | {numbers} | {_quartiles(of)} |")
    explained = sum(record["verdict"] == "explained" for record in ran)
    agrees = sum(record.get("supported") == (record["verdict"] == "explained") for record in ran)
    said = [
        f"{explained} of {len(ran)} models that run are explained ({explained / max(len(ran), 1):.1%}); `cafexai.supported` "
        f"agrees with what happened on {agrees}. Time: median, and the middle half.",
    ]
    failed = [record for record in ran if record["verdict"] != "explained"]
    known = [
        f"- **{record['model']}**, {record['verdict']}: {_line(record['why'] if 'why' in record else _misses(record))}"
        for record in failed
    ]
    out = [record for record in records if record["verdict"] == "not run"]
    parts = [
        HEAD,
        "## Summary",
        "",
        *said,
        "",
        *summary,
        "",
        "## What does not work",
        "",
        *known,
        "",
        *_against_the_model(exact),
    ]
    for name in packages:
        of = [record for record in ran if record["model"].split("/")[0] == name]
        rows = [_row(record) for record in of]
        parts += [f"## {name} {of[0]['version'] if of else ''}".rstrip(), "", *TABLE, *rows, ""]
    names = ", ".join(record["model"] for record in out)
    parts += ["## Not counted", "", f"{len(out)} models that our scripts did not get to run by themselves: {names}.", ""]
    return "\n".join(parts)


def _against_the_model(records: list[dict[str, Any]]) -> list[str]:
    """How many sums hold against model(x) - model(baseline), by package, and which do not."""
    asked = [record for record in records if record.get("attention")]
    lines = ["| package | models | hold | miss | refused | not known | frozen |", "| --- " * 7 + "|"]
    for name in [*dict.fromkeys(record["model"].split("/")[0] for record in asked), None]:
        of = [record for record in asked if name is None or record["model"].split("/")[0] == name]
        counts = Counter(record["verdict"] for record in of)
        numbers = [len(of), *(counts[verdict] for verdict in ("holds", "misses", "refused", "not known"))]
        frozen = sum(bool(record.get("of attention")) for record in of)
        lines.append(f"| {name or '**all**'} | {' | '.join(map(str, numbers))} | {frozen} |")
    listed = [
        f"- **{record['model']}** misses {record['misses']:.2g}; frozen: {', '.join(record['frozen']) or 'nothing'}."
        for record in asked
        if record["verdict"] == "misses" or record.get("of attention")
    ]
    return ["## Against the model at the baseline", "", EXACT_HEAD, "", *lines, "", *listed, ""]


TABLE = ["| model | | sum misses | of allowed | size | time | supported |", "| --- " * 7 + "|"]


def _row(record: dict[str, Any]) -> str:
    numbers = [record.get(key, "") for key in ("missing", "of allowed", "size", "ratio")]
    agrees = "yes" if record.get("supported") == (record["verdict"] == "explained") else "no"
    return f"| {record['model'].split('/', 1)[1]} | {record['verdict']} | {' | '.join(map(str, numbers))} | {agrees} |"


def _misses(record: dict[str, Any]) -> str:
    return f"the sum misses {record['missing']} of the change, the output is {record['apart']} away from that of the model"


def _line(text: str) -> str:
    return " ".join(text.split())[:700].replace("|", "\\|")


def _quartiles(records: list[dict[str, Any]]) -> str:
    ratios = [record["ratio"] for record in records if "ratio" in record]
    if len(ratios) < 2:
        return "".join(map(str, ratios))
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.1f} ({low:.1f} to {high:.1f})"


def write(target: Path = ROOT / "docs" / "zoo.md") -> None:
    records, exact = (
        [json.loads(line) for line in (ROOT / "zoo" / f"{name}.jsonl").read_text().splitlines()]
        for name in ("results", "exactness")
    )
    target.write_text(page(records, exact))


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:]))
