"""Which columns of a table each feature behind scikit-learn's preprocessing steps is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .table_values import is_missing, word

Sources = list[frozenset[int]]  # for each feature the columns it depends on
Labels = dict[int, tuple[str, ...]]  # column -> the categories that an encoder has learnt


def sources(step: Any, before: Sources, count: int, labels: Labels) -> Sources:
    """The columns behind each of ``count`` features that the fitted step makes; all of them where it is not known which."""
    found = _find_sources(step, before, count, labels)
    if found is not None and len(found) == count:
        return found
    return [frozenset().union(*before)] * count


def _find_sources(step: Any, before: Sources, count: int, labels: Labels) -> Sources | None:
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import FeatureUnion, Pipeline

    if step is None or isinstance(step, str):  # "passthrough"
        return before
    if isinstance(step, Pipeline):
        steps = [one for _, one in step.steps if one is not None and one != "passthrough"]
        for one, after in zip(steps, [*steps[1:], None], strict=True):
            outputs = count if after is None else getattr(after, "n_features_in_", None)
            if outputs is None:
                return None
            before = sources(one, before, outputs, labels)
            labels = labels if _keeps_values(one) else {}  # categories of what a step has made are none of the column
        return before
    if isinstance(step, ColumnTransformer):
        found: Sources = [frozenset()] * count
        for name, one, columns in step.transformers_:
            place = step.output_indices_.get(name, slice(0, 0))
            width = place.stop - place.start
            if width and not (isinstance(one, str) and one == "drop"):
                inside = [before[i] for i in column_places(columns, list(getattr(step, "feature_names_in_", ())), len(before))]
                found[place] = sources(one, inside, width, labels)
        return found
    if hasattr(step, "between"):  # two steps, and how many features stand between them
        return sources(step.then, sources(step.first, before, step.between, labels), count, {})
    if hasattr(step, "side_by_side"):  # steps of several estimators, each with its width
        return [one for own, width in step.side_by_side for one in sources(own, before, width, labels)]
    if isinstance(step, FeatureUnion):
        found = []
        for _, one in step.transformer_list:
            if isinstance(one, str) and one == "drop":
                continue
            outputs = len(before) if isinstance(one, str) else len(one.get_feature_names_out())
            found += sources(one, before, outputs, labels)
        return found
    return _of_one_step(step, before, count, labels)


def _of_one_step(step: Any, before: Sources, count: int, labels: Labels) -> Sources | None:
    from sklearn.base import OneToOneFeatureMixin
    from sklearn.feature_selection import SelectorMixin

    from sklearn import preprocessing

    if isinstance(step, (preprocessing.OneHotEncoder, preprocessing.OrdinalEncoder, preprocessing.TargetEncoder)):
        for columns, categories in zip(before, step.categories_, strict=True):
            if len(columns) == 1:
                labels[min(columns)] = tuple(word(one) for one in categories if not is_missing(one))
    if isinstance(step, preprocessing.OneHotEncoder):
        return _blocks(before, one_hot_widths(step))
    if isinstance(step, preprocessing.KBinsDiscretizer):
        return before if step.encode == "ordinal" else _blocks(before, step.n_bins_)
    if isinstance(step, (preprocessing.SplineTransformer, preprocessing.TargetEncoder)):
        return _blocks(before, [count // len(before)] * len(before))
    if isinstance(step, preprocessing.PolynomialFeatures):
        return [frozenset().union(*(before[i] for i in np.flatnonzero(powers))) for powers in step.powers_]
    if isinstance(step, SelectorMixin):
        return [before[i] for i in step.get_support(indices=True)]
    if hasattr(step, "indicator_"):  # an imputer
        marks = [] if step.indicator_ is None else [before[i] for i in step.indicator_.features_]
        if count - len(marks) != len(before) and hasattr(step, "statistics_"):  # columns without any value are left out
            before = [one for one, typical in zip(before, step.statistics_, strict=True) if not is_missing(typical)]
        return [*before, *marks]
    if isinstance(step, preprocessing.FunctionTransformer):
        return before if len(before) == count and _column_by_column(step, count) else None
    if isinstance(step, OneToOneFeatureMixin) and not isinstance(step, preprocessing.Normalizer):  # that takes the whole row
        return before
    return None


def _keeps_values(step: Any) -> bool:
    """What comes out are values of the columns: an imputer or a selector."""
    from sklearn.feature_selection import SelectorMixin

    return hasattr(step, "indicator_") or isinstance(step, SelectorMixin)


def _blocks(before: Sources, widths: Sequence[int]) -> Sources:
    return [one for one, width in zip(before, widths, strict=True) for _ in range(int(width))]


def one_hot_widths(encoder: Any) -> list[int]:
    """How many features each column gets."""
    widths = []
    rare = getattr(encoder, "infrequent_categories_", None) or [None] * len(encoder.categories_)
    for place, categories in enumerate(encoder.categories_):
        width = len(categories) if rare[place] is None else len(categories) - len(rare[place]) + 1
        dropped = encoder.drop_idx_ is not None and encoder.drop_idx_[place] is not None
        widths.append(width - dropped)
    return widths


def _column_by_column(step: Any, count: int) -> bool:
    """A function keeps columns apart: it says so, or a change of one column, in numbers, changes that one alone."""
    if step.func is None or step.feature_names_out == "one-to-one":
        return True
    rows = np.random.default_rng(0).uniform(0.5, 2.0, (8, count))
    names = getattr(step, "feature_names_in_", None)

    def result(x: np.ndarray) -> np.ndarray:
        if names is not None:
            import pandas

            return np.asarray(step.transform(pandas.DataFrame(x, columns=names)), dtype=np.float64)
        return np.asarray(step.transform(x), dtype=np.float64)

    try:
        plain = result(rows.copy())
        for place in range(count):
            other = rows.copy()
            other[:, place] = other[::-1, place] + 0.25
            if np.delete(result(other) != plain, place, axis=1).any():
                return False
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):  # of the encoder
        return False
    return True


def column_places(columns: Any, names: list[str], count: int) -> list[int]:
    """Columns as a ColumnTransformer is given them, as their places."""
    if isinstance(columns, str):
        return [names.index(columns)]
    if isinstance(columns, slice):
        ends: list[Any] = [names.index(end) if isinstance(end, str) else end for end in (columns.start, columns.stop)]
        if isinstance(columns.stop, str):
            ends[1] += 1  # by name the last one belongs to it
        return list(range(count))[slice(ends[0], ends[1], columns.step)]
    listed = [columns] if np.ndim(columns) == 0 else list(columns)
    if listed and all(isinstance(one, (bool, np.bool_)) for one in listed):
        return [place for place, inside in enumerate(listed) if inside]
    return [names.index(one) if isinstance(one, str) else range(count)[int(one)] for one in listed]
