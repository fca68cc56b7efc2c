"""What stands around the rows: the model, the data, the baseline, what was left out, the check, and how to make it again."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .._core.variant import Variant
from .._files import checksum
from ..explanation import Explanation
from ..plotting.labels import variant_of
from ..plotting.row_lines import baseline_texts, number
from .escape import Html, join_parts, tag
from .rows import kind_of, percent, targets

LISTED = 40  # so many baseline values are written out


def about_model(explanation: Explanation, model: Any) -> list[tuple[str, Any]]:
    """What kind of model it is: name, layers, parameters and fingerprint, as far as it was given."""
    if hasattr(model, "explain") and hasattr(model, "model"):  # an explainer
        model = model.model
    facts: list[tuple[str, Any]] = []
    if isinstance(model, str):
        facts.append(("Model", model))
    elif model is not None:
        facts.append(("Model", getattr(model, "__name__", None) or type(model).__name__))
        steps = getattr(model, "steps", None)
        if isinstance(steps, (list, tuple)):
            facts.append(("Steps", ", ".join(type(step[-1]).__name__ for step in steps)))
    if isinstance(model, nn.Module):
        leaves = [type(module).__name__ for module in model.modules() if not list(module.children())]
        facts.append(("Layers", f"{len(leaves)}: " + ", ".join(f"{count} {name}" for name, count in Counter(leaves).items())))
        facts.append(("Parameters", f"{sum(one.numel() for one in model.parameters()):,}"))
        state = {name: one.detach().cpu().contiguous() for name, one in model.state_dict().items() if isinstance(one, Tensor)}
        facts.append(("Fingerprint", tag("code", checksum(state, "")[:16])))
    if model is None:
        layers = ", ".join(name or "the model itself" for name in explanation.bias_by_layer)
        facts.append(("Model", "not described: it was not given to the report"))
        facts += [("Layers with constants", layers)] * bool(layers)
    if explanation.meta.settings.get("layer") is not None:
        facts.append(("Seen at", f"layer {explanation.meta.settings['layer']}"))
    return facts


def about_data(explanation: Explanation, data: str | None) -> list[tuple[str, Any]]:
    """The rows, what is explained of them, and what they are compared with."""
    count = explanation.flat(explanation.positive).shape[1]
    what = {
        "image": "images of {} values each".format(" x ".join(map(str, explanation.parts(explanation.positive)[0].shape[1:]))),
        "text": "texts",
    }.get(kind_of(explanation), f"rows of {count} {feature_noun(explanation)}")
    facts: list[tuple[str, Any]] = [("Data", data)] if data else []
    facts.append(("Explained", f"{len(explanation):,} {what}"))
    outputs = Counter(targets(explanation))
    text = ", ".join(f"{name} ({rows:,} row{'s' * (rows != 1)})" for name, rows in outputs.most_common(6))
    facts.append(("The score", text + (f" and {len(outputs) - 6} others" if len(outputs) > 6 else "")))
    if explanation.meta.final or explanation.probability is not None:
        last = f", before its final {explanation.meta.final}," if explanation.meta.final else ""
        facts.append(("Scale", f"the score is a logit: the number from which the model{last} computes the probability"))
    facts.append(("Baseline", _baseline(explanation)))
    return facts


def _baseline(explanation: Explanation) -> str:
    """What every row is compared with."""
    if not len(explanation):
        return "none"
    many = number_of_baselines(explanation)
    if many > 1:
        what = "rows of the background" if explanation.meta.settings.get("typical") else "baselines"
        told = f"each of {many} {what}; scores are averages over them"
        values = _baseline_values(explanation)
        return f"{told}: {values}" if values else told
    if _nothing(explanation):
        parts = explanation.parts(explanation.baselines)
        words = ["0 everywhere"] * any(part.is_floating_point() for part in parts)
        words += ["nothing in the place of a word or category"] * any(not part.is_floating_point() for part in parts)
        own = explanation.features.display is not None
        values = _baseline_values(explanation) if own else ""
        behind = " in the numbers that the model reads" if own else ""
        return f"{', '.join(words)}{behind}{', which is ' * bool(values)}{values}"
    return _baseline_values(explanation) or _numbers_of_baseline(explanation)


def number_of_baselines(explanation: Explanation) -> int:
    """How many baselines the scores are averaged over."""
    return int(explanation.meta.settings.get("baselines", 1))


def _baseline_values(explanation: Explanation) -> str:
    """The baseline as the table of a row shows it; "" if it is not known in these units, or too long."""
    texts = baseline_texts(explanation[0])
    if texts is None:
        return ""
    shown = explanation.features.baseline_display
    flat = explanation.flat(explanation.baselines) if shown is None else shown
    if not torch.allclose(flat, flat[:1].expand_as(flat), equal_nan=True):
        return "a different one for each row"
    if number_of_baselines(explanation) > 1 and explanation.features.baseline_display is not None:
        texts = baseline_texts(dataclasses.replace(explanation[0], features=_undecided(explanation[0]))) or texts
    if len(set(texts)) == 1:
        return f"{texts[0]} everywhere"
    pairs, sign = zip(explanation.names(), texts, strict=True), " = " if number_of_baselines(explanation) == 1 else " "
    return "" if len(texts) > LISTED else ", ".join(f"{name}{sign}{text}" for name, text in pairs if text)


def _undecided(explanation: Explanation) -> Any:
    """The features of one row, none of which is as in every baseline: what is told holds for all rows."""
    found = explanation.features
    same = found.at_baseline
    return found if same is None else dataclasses.replace(found, at_baseline=torch.zeros_like(same))


def _numbers_of_baseline(explanation: Explanation) -> str:
    """The baseline in the numbers that the model reads."""
    units = " (in the numbers that the model reads)" if explanation.features.display is not None else ""
    parts = explanation.parts(explanation.baselines)
    if any((part != part[:1]).any() for part in parts):
        return f"a different one for each row{units}"
    values = explanation.flat(parts if len(parts) > 1 else parts[0])[0].tolist()
    if len(set(values)) == 1:
        return f"{number(values[0])} everywhere{units}"
    return f"the same for all rows, from {number(min(values))} to {number(max(values))}{units}"


def _nothing(explanation: Explanation) -> bool:
    """The baseline that stands where none was given: zeros, and -1 for codes."""
    return all(not (part if part.is_floating_point() else part + 1).any() for part in explanation.parts(explanation.baselines))


def list_omissions(explanation: Explanation) -> Html:
    """What the scores do not say: frozen values, features that the model cuts off, notes."""
    lines: list[Any] = [f"Taken as a constant at each row: {one}." for one in explanation.frozen]
    for name, amounts in explanation.checks.cut.items():
        tried = amounts[~amounts.isnan()]
        does = f"at most {number(tried.abs().max().item())}" if len(tried) else "unknown, it could not be tried"
        lines.append(f"{name}: the model cuts off influence, which is not in the score. In all, against its baseline: {does}.")
    lines += explanation.notes
    return tag("ul", *(tag("li", line) for line in lines)) if lines else tag("p", "Nothing was frozen, nothing was cut off.")


def check(explanation: Explanation, names: list[str], prefix: str) -> Html:
    """Do the scores add up? The largest error, and where."""
    if not len(explanation):
        return tag("p", "There are no rows.")
    errors = explanation.completeness_error.double().abs()
    changes = (explanation.output - explanation.baseline_output).double().abs()
    row = int(errors.argmax())
    share = (errors / changes.clamp_min(torch.finfo(torch.float64).tiny))[changes > 0]
    relative = f" Beside the change that it belongs to, the largest error is {small(share.max().item())}." if len(share) else ""
    where = tag("a", names[row], href=f"#{prefix}{row}")
    return join_parts(
        [
            tag(
                "p",
                "In every row, the baseline output and the scores of all features and constants must add up to the output of "
                f"the model. Before rounding the sums miss it by at most {small(errors[row].item())} (in ",
                where,
                f").{relative} The pass that was explained differs from a plain call of the model by at most "
                f"{small(explanation.checks.output_error)}. These are rounding errors; larger ones are refused.",
            ),
            tag(
                "p",
                "The numbers in the tables are rounded so that they add up exactly as they are printed: the baseline output "
                "and the column \u201cnet\u201d give the output, \u201cup\u201d minus \u201cdown\u201d gives \u201cnet\u201d.",
            ),
        ]
    )


def again(explanation: Explanation, by: tuple[str, ...], command: str | None) -> Html:
    """The settings, as a command where there was one, as Python and as JSON."""
    settings = dict(explanation.meta.settings)
    variant = variant_of(explanation)
    preset = variant.name if variant.name != "custom" else "default"
    options = {"c": settings.get("c", 0.5), "variant": preset, **variant.changes_from(Variant.preset(preset))}
    made = ", ".join(f"{word}={_python(value)}" for word, value in options.items())
    method, asked = "explain", []
    if settings.get("layer") is not None:
        method, asked = "explain_layer", [_python(settings["layer"])]
        asked += ["from_inputs=True"] if settings.get("start") is False else []
    elif settings.get("target_layer") is not None:
        method, asked = "explain_neuron", [_python(settings["target_layer"])]
    targets = {tuple(row) for row in explanation.target.tolist()}
    remarks = []
    if "c" in by:
        method, asked = "sweep", [f"c={_python([settings.get('c', 0.5)])}"]
    if "target" in by:
        method = "explain_classes"
    elif len(targets) == 1 and (only := next(iter(targets))):
        asked.append(f"target={only[0] if len(only) == 1 else only}")
    elif len(targets) > 1:
        asked.append("target=targets")
        remarks.append("# targets: one per row, the output that stands beside each row of this report")
    if getattr(explanation, "against", None) is not None:
        asked.append("against=against")
        remarks.append("# against: the output that was subtracted, as it stands above under \u201cThe score\u201d")
    if number_of_baselines(explanation) > 1 and explanation.meta.settings.get("typical"):
        asked.append('baselines="background"')
        remarks.append("# the explainer needs the background: CAFE(model, background=x_train)")
    elif not _nothing(explanation):
        asked.append("baselines=baselines")
        remarks.append("# baselines: as described above under \u201cBaseline\u201d")
    python = "\n".join(
        [
            "from cafexai import CAFE",
            "",
            "# model, x: the model and the rows that this report is about",
            *remarks,
            f"explainer = CAFE(model, {made})",
            f"explanation = explainer.{method}({', '.join(['x', *asked])})",
            'explanation.report("report.html", model=model)',
        ]
    )
    text = json.dumps(settings, indent=1, default=str, ensure_ascii=False)
    parts = [tag("h3", "As a command"), code(command)] if command else []
    return join_parts([*parts, tag("h3", "As Python"), code(python), tag("h3", "As JSON"), code(text)])


def feature_noun(explanation: Explanation) -> str:
    """What the scores of a table are of: features, or groups of them that have no value."""
    one = explanation.flat(explanation.positive).shape[1] == 1
    return ("group" if explanation.grouped and explanation.features.display is None else "feature") + "s" * (not one)


def small(value: float) -> str:
    """A small error with one digit, as people write it: 0.000006."""
    return f"{value:.{max(1, -math.floor(math.log10(value)))}f}" if 1e-9 < value < 1 else "0" if value == 0 else f"{value:.0e}"


def _python(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def code(text: str) -> Html:
    """Lines as they are; wide ones can be moved by keyboard."""
    return tag("pre", tag("code", text), tabindex="0", role="group", label="code")


def tiles(entries: Mapping[str, Explanation]) -> Html:
    """The few numbers that say at once what this is about."""
    first = next(iter(entries.values()))
    shares = torch.cat([one.conflict_share for one in entries.values()])
    worst = max(one.completeness_error.abs().max().item() for one in entries.values())
    kind = kind_of(first)
    unit = {"image": "parts of each picture", "text": "words at most"}.get(kind) or feature_noun(first)
    count = 9 if kind == "image" else first.flat(first.positive).shape[1]
    numbers = [
        (f"{len(first):,}", "row" if len(first) == 1 else "rows"),
        (f"{count:,}", unit),
        (percent(shares.median().item()), "conflict in the middle row: cancelled / (cancelled + left)"),
        (small(worst), "largest error of a sum"),
    ]
    return tag("ul", *(tag("li", tag("b", value), " ", tag("span", meaning)) for value, meaning in numbers), kind="tiles")
