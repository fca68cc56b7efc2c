"""Explanations as tables of pandas, and in the forms that SHAP, shapash and explainerdashboard take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .._extras import needs
from .._inputs.target import OTHERS
from ..explanation import Explanation, Tensors
from ..plotting.row_lines import baseline_texts, feature_lines, strongest_first, summary_word

if TYPE_CHECKING:
    import pandas


def long_table(e: Explanation) -> pandas.DataFrame:
    """A long table: one line per row and feature, and one for the bias. The filling of short rows is left out.

    Args:
        e: The explanation.

    Returns:
        The table; needs pandas.

    Example:
        >>> import torch
        >>> from cafexai import CAFE
        >>> model = torch.nn.Linear(2, 1)
        >>> model.weight.data, model.bias.data = torch.tensor([[2.0, -1.0]]), torch.zeros(1)
        >>> e = CAFE(model, feature_names=["age", "dose"]).explain(torch.tensor([[1.0, 2.0], [3.0, 0.0]]))
        >>> from cafexai.adapters import long_table
        >>> len(long_table(e))
        6
    """
    pandas = needs("pandas", "tabular")
    rows = len(e)
    names = [name for row in range(rows) for name in (*e.names(row), "(bias)")]
    each = len(names) // max(rows, 1)
    columns: dict[str, Any] = {"row": np.repeat(np.arange(rows), each)}
    if e.row_names is not None:
        columns["name"] = [name for name in e.row_names for _ in range(each)]
    for what, index in (("target", e.target), ("against", e.against)):
        if index is not None:
            columns[what] = [name for name in output_labels(e, index) for _ in range(each)]
    columns["feature"] = names
    if e.features.tokens is None and (not e.grouped or e.features.display is not None):
        columns["value"] = _readable_values(e, e.shown)
        starts = e.features.baseline_display
        if starts is not None or e.features.display is None:
            known = e.baselines if starts is None else starts.masked_fill(starts.isinf(), torch.nan)  # not known in these units
            columns["baseline"] = _say_summary(e, _readable_values(e, known))
    scores: list[tuple[str, Tensors, Tensor]] = [
        ("positive", e.positive, e.bias_positive),
        ("negative", e.negative, e.bias_negative),
        ("combined", e.combined, e.bias),
    ]
    if e.refinement is not None:
        scores.append(("refined", e.refined, e.bias))
    if e.if_missing is not None:
        scores.append(("if_missing", e.if_missing, torch.zeros_like(e.bias)))
    for name, features, bias in scores:
        columns[name] = torch.cat([e.flat(features), bias.to(e.flat(features))[:, None]], 1).flatten().cpu().numpy()
    frame = pandas.DataFrame(columns)
    return frame if "" not in names else frame[frame["feature"] != ""].reset_index(drop=True)


def output_labels(e: Explanation, index: Tensor) -> list[Any]:
    """The explained output of each row: the name of its class, else its place."""
    names = e.class_names if e.meta.settings.get("target_layer") is None else None
    found: list[Any] = []
    for place in index.tolist():
        if place and place[0] == OTHERS:
            found.append("others")
        elif len(place) <= 1 and names is not None:
            found.append(names[place[0] if place else 0])
        else:
            found.append(0 if not place else place[0] if len(place) == 1 else str(tuple(place)))
    return found


def storable(frame: pandas.DataFrame) -> pandas.DataFrame:
    """The table for a file whose columns are of one kind each: where numbers stand beside words, they are words, too."""
    mixed = [name for name in frame.columns if frame[name].dtype == object and frame[name].map(type).nunique() > 1]
    words: dict[str, Any] = {name: [None if one is None or one != one else str(one) for one in frame[name]] for name in mixed}
    return frame.assign(**words)


def _readable_values(e: Explanation, values: Tensors) -> Any:
    """Values as people know them, one for the bias after each row: numbers, or words where there are categories."""
    flat = e.flat(values)
    numbers = flat.double().cpu() if not flat.is_floating_point() else flat.cpu()
    padded = torch.cat([numbers, torch.full_like(numbers[:, :1], torch.nan)], 1).numpy()
    return (_in_words(e, padded) if e.features.categories else padded).flatten()


def _say_summary(e: Explanation, values: Any) -> Any:
    """Of several baselines a category is told as the most frequent one, a date as the median, if they are not all the same."""
    if e.meta.settings.get("baselines", 1) == 1 or not e.features.categories:
        return values
    found = values.reshape(len(e), -1).copy()
    same = e.at_baseline
    for place, name in enumerate(e.names()):
        if name in e.features.categories:
            word = summary_word(e, name)
            for row, one in enumerate(found[:, place]):
                if same is None or not same[row, place]:
                    found[row, place] = f"{word} {'missing' if one is None else one}"
    return found.flatten()


def _in_words(e: Explanation, numbers: np.ndarray) -> np.ndarray:
    """Codes by their words; a code that none belongs to is no category."""
    found = numbers.astype(object)
    for place, name in enumerate(e.names()):
        if name in e.features.categories:
            words = e.features.categories[name]
            codes = [-1 if code != code else int(code) for code in numbers[:, place].tolist()]
            found[:, place] = [words[code] if 0 <= code < len(words) else None for code in codes]
    return found


def _named_values(e: Explanation, numbers: np.ndarray) -> np.ndarray:
    """Values for SHAP's plots, which take no None: what is missing is called so."""
    found = _in_words(e, numbers)
    return np.where(found == None, "missing", found)  # noqa: E711


def top(e: Explanation, row: int | str, most: int, order: str = "net") -> pandas.DataFrame:
    """The strongest features of one row, in the order of the ledger."""
    pandas = needs("pandas", "tabular")
    one = e[row]
    names, values = one.names(), one.values()
    feature_lines(one, most)  # refuses what cannot be shown
    scores = (one.flat(part)[0] for part in (one.positive, one.negative, one.combined))
    kept = [place for place in strongest_first(order, *scores) if names[place]][:most]
    found: dict[str, Any] = {"feature": [names[place] for place in kept]}
    several = e.meta.settings.get("baselines", 1) > 1
    for name, known in (("value", values), ("baseline", baseline_texts(one) if several else one.baseline_values())):
        if known is not None:
            found[name] = [known[place] for place in kept]
    refined, missing = ["refined"] * (e.refinement is not None), ["if_missing"] * (e.if_missing is not None)
    for name in ("positive", "negative", "combined", *refined, *missing):
        found[name] = one.flat(getattr(one, name))[0, kept].tolist()
    return pandas.DataFrame(found)


def for_shap(e: Explanation, scores: str) -> Any:
    """A shap.Explanation: (rows, features), or pictures with their channels last.

    Args:
        e: The explanation.
        scores: "combined", "positive" or "negative".

    Returns:
        The object of SHAP.

    Raises:
        ValueError: There are no such scores.

    Example:
        >>> import torch
        >>> from cafexai import CAFE
        >>> model = torch.nn.Linear(2, 1)
        >>> model.weight.data, model.bias.data = torch.tensor([[2.0, -1.0]]), torch.zeros(1)
        >>> e = CAFE(model, feature_names=["age", "dose"]).explain(torch.tensor([[1.0, 2.0], [3.0, 0.0]]))
        >>> from cafexai.adapters import for_shap
        >>> for_shap(e, "positive").values.shape
        (2, 2)
    """
    shap = needs("shap", "shap")
    bases = {
        "combined": e.baseline_output + e.bias,
        "positive": e.baseline_output + e.bias_positive,
        "negative": e.bias_negative,
    }
    if scores not in bases:
        raise ValueError(f"to_shap({scores!r}): unknown scores. Allowed values: {', '.join(map(repr, bases))}.")
    base, names = bases[scores].cpu().numpy(), list(e.names())
    tensors: Tensors = getattr(e, scores)
    called = {"output_names": e.target_name()} if len(e) else {}
    if e.features.tokens is not None:
        return shap.Explanation(
            values=e.flat(tensors).cpu().numpy(), base_values=base, data=np.array(e.features.tokens), **called
        )
    if isinstance(tensors, Tensor) and tensors.ndim > 2:
        values, data = (_channels_last(e, part) for part in (tensors, e.parts(e.shown)[0]))
        return shap.Explanation(values=values, base_values=base, data=data)  # its pictures name outputs otherwise
    known = None if e.grouped and e.features.display is None else e.flat(e.shown).cpu().numpy()
    return shap.Explanation(
        values=e.flat(tensors).cpu().numpy(),
        base_values=base,
        data=known,
        display_data=_named_values(e, known) if known is not None and e.features.categories else None,
        feature_names=names,
        **called,
    )


def _channels_last(e: Explanation, part: Tensor) -> np.ndarray:
    first = e.kind == "image" and part.shape[1] <= 4 and part.shape[1] <= part.shape[3]
    return (part.movedim(1, -1) if first else part).cpu().numpy()


def scores_and_values(e: Explanation, call: str) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Combined scores and values of a table, one column per feature."""
    pandas = needs("pandas", "tabular")
    if e.kind != "table" or (e.grouped and e.features.display is None):
        raise ValueError(
            f"{call}: it shows tables, features with a value each; this explanation is one of {e.kind}s or groups."
        )
    names = list(e.names())
    values = pandas.DataFrame(_in_words(e, e.flat(e.shown).double().cpu().numpy()), columns=names).infer_objects()
    return pandas.DataFrame(e.flat(e.combined).double().cpu().numpy(), columns=names), values


class Answers:
    """Stands for the model in tools that show scores which they are given: it knows the outputs of the explained rows."""

    def __init__(self, outputs: Tensor) -> None:
        self.outputs = outputs.double().cpu().numpy()

    def predict(self, rows: Any) -> np.ndarray:
        """The outputs; for some of the rows, by the index of their frame."""
        places = np.asarray(rows.index) if hasattr(rows, "index") and not callable(rows.index) else np.arange(len(rows))
        return self.outputs[places]


def for_shapash(e: Explanation) -> Any:
    """A compiled SmartExplainer.

    Args:
        e: The explanation of a table.

    Returns:
        The SmartExplainer.

    Raises:
        ValueError: The explanation is not one of a table.
    """
    pandas, shapash = needs("pandas", "tabular"), needs("shapash", "shapash")
    scores, values = scores_and_values(e, "to_shapash()")
    answers = Answers(e.output)
    explainer = shapash.SmartExplainer(model=answers)
    explainer.compile(x=values, contributions=scores, y_pred=pandas.DataFrame({e.target_name(): answers.outputs}))
    return explainer


def for_explainerdashboard(e: Explanation, y: Any) -> Any:
    """A RegressionExplainer whose contributions are the combined scores.

    Args:
        e: The explanation of a table.
        y: The true values.

    Returns:
        The explainer.

    Raises:
        ValueError: The explanation is not one of a table.
    """
    pandas, dashboard = needs("pandas", "tabular"), needs("explainerdashboard", "explainerdashboard")
    scores, values = scores_and_values(e, "to_explainerdashboard()")
    base = (e.baseline_output + e.bias).double().cpu().numpy()
    start = float(base.mean())
    if not np.allclose(base, start):  # it knows one start for all rows: what the biases did to each stands beside the features
        scores["(bias)"], values["(bias)"] = base - start, base
    answers = Answers(e.output)
    truth = pandas.Series(answers.outputs if y is None else np.asarray(y), name=e.target_name())
    explainer = dashboard.RegressionExplainer(answers, values, truth, shap="kernel")  # never computed: ours are set
    explainer.set_shap_values(start, scores.to_numpy())
    return explainer
