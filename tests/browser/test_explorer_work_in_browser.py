"""The explorer as a place to work, in headless Chromium: wrong rows, threshold, cohort, curves, dates, methods."""

import re

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("sklearn")
from sklearn.compose import ColumnTransformer
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from cafexai import CAFE, explore, from_sklearn

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")]


def frame():
    random = np.random.default_rng(0)
    found = pd.DataFrame({"age": random.normal(40, 9, 80).round(1), "grade": random.integers(1, 4, 80)})
    found["since"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 900, 80), unit="D")
    found["paid"] = np.where(found.age + 5 * found.grade + random.normal(0, 9, 80) > 50, "yes", "no")
    return found


def days(rows):
    return rows.apply(lambda column: (column - pd.Timestamp("2020-01-01")).dt.days)


def fitted():
    dates = make_pipeline(FunctionTransformer(days), StandardScaler())
    steps = ColumnTransformer([("n", StandardScaler(), ["age"]), ("g", OneHotEncoder(), ["grade"]), ("d", dates, ["since"])])
    last = MLPClassifier((5,), max_iter=40, random_state=0)
    return make_pipeline(steps, last).fit(frame().drop(columns="paid"), frame().paid)


@pytest.fixture(scope="module")
def explorer():
    made = explore(CAFE(from_sklearn(fitted())), frame(), label="paid", open_browser=False, block=False, title="people")
    yield made
    made.close()


@pytest.fixture
def page(browser, explorer):
    trouble = []
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    page = context.new_page()
    page.set_default_timeout(30_000)
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.goto(explorer.url)
    page.locator("#progress", has_text="All rows are scored").wait_for()
    yield page
    context.close()
    assert trouble == []


def chances():
    return fitted().predict_proba(frame().drop(columns="paid"))[:, 1]


def wrong(threshold):
    return np.flatnonzero((chances() > threshold) != (frame().paid == "yes").to_numpy())


def test_wrong_rows_are_marked_and_filtered_by_the_threshold(page):
    heads = page.locator("#rows thead th").all_inner_texts()
    assert [re.sub(r"\s.*", "", head) for head in heads[1:4]] == ["row", "prediction", "truth"]
    assert heads[3].splitlines()[0].strip() == "truth (paid)"
    assert sum("paid" in head for head in heads) == 1
    marked = page.locator("#rows tbody tr.mistaken th").all_inner_texts()
    assert marked == [f"Row {place}" for place in wrong(0.5) if place < 50]
    page.locator("#only-wrong").check()
    page.locator("#found", has_text=f"{len(wrong(0.5))} rows of 80").wait_for()
    page.locator("#threshold").fill("0.8")
    page.keyboard.press("Enter")
    page.locator("#found", has_text=f"{len(wrong(0.8))} rows of 80").wait_for()
    page.locator("#threshold").fill("3")
    page.keyboard.press("Enter")
    page.locator("#threshold-wrong", has_text="from 0 to 1").wait_for()


def test_the_overview_follows_the_filter(page):
    page.locator("#filter-column").select_option("grade")
    page.locator("#filter-is").select_option("2")
    count = int((frame().grade == 2).sum())
    page.locator("#found", has_text=f"{count} rows of 80").wait_for()
    page.locator("#view-overview").click()
    page.locator("#cohort", has_text=f"Cohort: the {count} rows of 80").wait_for()
    page.locator("#all-rows").click()
    page.locator("#covered", has_text="80 of 80 rows").wait_for()
    assert page.locator("#cohort").count() == 0


def test_curves_and_dates(page):
    page.locator("#view-row").click()
    page.locator("#output").wait_for()
    assert page.locator("#cell-since").input_value() == str(frame().since[0].date())
    page.locator("#curve-column").select_option("since")
    page.locator("#curve polyline").wait_for()
    page.locator("#curve-column").select_option("grade")
    page.locator("#curve rect.here").wait_for()
    assert page.locator("#curve rect").count() == 3
    page.locator("#cell-since").fill("2021-06-30")
    page.locator("#cell-since").press("Tab")
    page.locator("#output-before").wait_for()
    changed = frame().drop(columns="paid").iloc[[0]].assign(since=pd.Timestamp("2021-06-30"))
    chance = 100 * fitted().predict_proba(changed)[0, 1]
    told = float(re.search(r"probability ([\d.]+)", page.locator("#output").inner_text())[1])
    assert abs(told - chance) <= 0.51


def test_methods_have_names_in_words(page):
    page.locator("#view-sides").click()
    page.locator("#side-method-0 option[value=integrated_gradients]").wait_for(state="attached")
    names = page.locator("#side-method-0 option").all_inner_texts()
    assert names[0] == "CAFE"
    assert {"Integrated gradients", "DeepLIFT (Rescale)"} <= set(names)
    assert not any("_" in name for name in names)


@pytest.mark.parametrize(
    "options", [{"color_scheme": "dark"}, {"viewport": {"width": 400, "height": 800}}], ids=["dark", "narrow"]
)
def test_pages_fit(browser, explorer, options):
    context = browser.new_context(**options)
    page = context.new_page()
    page.goto(explorer.url)
    page.locator("#rows tbody tr").first.wait_for()
    for view, part in (("row", "#output"), ("overview", "#covered")):
        page.locator(f"#view-{view}").click()
        page.locator(part).wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    context.close()


def test_hyphens_of_numbers_are_minus_and_those_of_words_and_dates_stay(page):
    source = page.locator("script[src]").get_attribute("src")
    found = page.evaluate(
        "async ([source, text]) => (await import(new URL(source.replace('main.js', 'dom.js'), location.href))).minus(text)",
        [source, "-1.5 (net -2e-05) median 2018-10-19 middle-aged +3-4 (-.5)"],
    )
    assert found == "\u22121.5 (net \u22122e\u221205) median 2018-10-19 middle-aged +3-4 (\u2212.5)"


def test_the_overview_names_the_only_output(page):
    page.locator("#view-overview").click()
    page.locator("h3", has_text="Mean scores of rows explained for the logit of 'yes'").wait_for()
