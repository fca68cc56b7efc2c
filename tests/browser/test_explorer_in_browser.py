"""The explorer in headless Chromium: a real server, a real page, the numbers of ``explain``.

``make browser`` installs what this needs.
"""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from cafexai import CAFE, Schema
from cafexai.plotting.conflict_words import fighting_sentence

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
sys.path.insert(0, str(Path(__file__).parent.parent))
from explorer_server import ODD, ROWS, SCRIPT, USUAL, network, serving, table, write_files

pytestmark = pytest.mark.browser
VIEWS = {
    "rows": "#rows",
    "row": "#output",
    "fights": "#pair-sentences",
    "sides": "#side-told-1",
    "overview": "#covered",
    "take": "#python",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("explorer"))


@pytest.fixture(scope="module")
def server(folder):
    with serving(folder, *USUAL) as running:
        yield running


@pytest.fixture
def visit(browser):
    """Open an explorer in a context of its own; whatever it logs, or asks of others, is an error at the end."""
    contexts, trouble = [], []

    def opened(server, fragment="", quiet=True, **options):
        context = browser.new_context(accept_downloads=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        if quiet:
            page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith((server.root, "data:", f"blob:{server.root}")) else trouble.append(request.url)
            ),
        )
        page.goto(server.url + fragment)
        page.locator("main h2").wait_for()
        return page

    yield opened
    for context in contexts:
        context.close()
    assert trouble == []


def explainer(**options):
    schema = Schema.from_frame(table().drop(columns="repaid"), one_hot=True, classes=["no", "yes"], probability="softmax")
    frame = table().drop(columns="repaid")
    return CAFE(
        network().eval(), schema=schema, background=frame, **options
    ), frame  # from the command line the data are typical


READ = """() => [...document.querySelectorAll(".ledger tbody tr")].map(row => [row.querySelector("th").textContent,
  ...[...row.querySelectorAll("td")].slice(3).map(cell =>
    [...cell.childNodes].filter(n => n.nodeName !== "S").map(n => n.textContent).join(""))])"""


def numbers(page):
    """The ledger as the page shows it: name -> (up, down, net), without what was before."""
    return {name: tuple(text.strip().replace("\u2212", "-") for text in cells) for name, *cells in page.evaluate(READ)}


def expected(e, most=20):
    """The same from Python."""
    from cafexai.plotting.rounding import round_explanation

    row = round_explanation(e, most)
    lines = {line.name: (line.positive, line.negative, line.net) for line in row.lines}
    return {"baseline output": ("", "", row.start), **lines, "output": ("", "", row.end)}


def until(read, wanted, seconds=20):
    """Wait for what is wanted, and give what is there in the end."""
    end = time.monotonic() + seconds
    while (found := read()) != wanted and time.monotonic() < end:
        time.sleep(0.05)
    return found


def go(page, view):
    page.locator(f"#view-{view}").click()
    page.locator(VIEWS[view]).first.wait_for()


def open_row(page, place):
    go(page, "row")
    page.locator("#go-row").fill(str(place))
    page.keyboard.press("Enter")
    page.locator("#row-name", has_text=re.compile(rf"^Row {place}( |$)")).wait_for()


def test_the_page_shows_the_numbers_of_explain(server, visit):
    page = visit(server)
    cafe, frame = explainer()
    for place in (0, 7):
        open_row(page, place)
        assert until(lambda: numbers(page), wanted := expected(cafe.explain(frame.iloc[[place]]))) == wanted


def test_the_slider_and_all_choices_give_the_numbers_of_explain(server, visit):
    page = visit(server)
    open_row(page, 3)
    _, frame = explainer()
    row = frame.iloc[[3]]
    page.locator("#c").focus()
    page.keyboard.press("Home")
    assert until(lambda: numbers(page), wanted := expected(explainer()[0].explain(row, c=0.0))) == wanted
    page.keyboard.press("End")
    assert until(lambda: numbers(page), wanted := expected(explainer()[0].explain(row, c=1.0))) == wanted
    page.locator("#variant").select_option("feature")
    assert until(lambda: numbers(page), wanted := expected(explainer(variant="feature")[0].explain(row, c=1.0))) == wanted
    page.locator("#variant").select_option("published")
    cafe, _ = explainer(variant="published")
    assert until(lambda: numbers(page), wanted := expected(cafe.explain(row, c=1.0))) == wanted
    for word in ("mean", "median", "mode"):
        page.locator("#baseline").select_option(word)
        assert (
            until(lambda: numbers(page), wanted := expected(cafe.replace(background=frame).explain(row, word, c=1.0))) == wanted
        )
    page.locator("#baseline").select_option("row")
    page.locator("#baseline-row").fill("11")
    page.keyboard.press("Enter")
    assert until(lambda: numbers(page), wanted := expected(cafe.explain(row, frame.iloc[[11]], c=1.0))) == wanted
    page.locator("#baseline").select_option("zero")
    page.locator("#target").select_option("0")
    assert until(lambda: numbers(page), wanted := expected(cafe.explain(row, "zero", c=1.0, target=0))) == wanted
    page.locator("#against").select_option("1")
    assert until(lambda: numbers(page), wanted := expected(cafe.explain(row, "zero", c=1.0, target=0, against=1))) == wanted


def test_what_if_and_undo(server, visit):
    page = visit(server)
    open_row(page, 5)
    page.locator("#baseline").select_option("zero")
    cafe, frame = explainer()
    before = cafe.explain(frame.iloc[[5]], "zero")
    assert until(lambda: numbers(page), wanted := expected(before)) == wanted
    target = int(before.target[0, 0])
    changed = frame.iloc[[5]].copy()
    changed["income"] = 9.5
    page.locator('[id="cell-income"]').fill("9.5")
    page.keyboard.press("Enter")
    assert until(lambda: numbers(page), one := expected(cafe.explain(changed, "zero", target=target))) == one
    assert page.locator("#output-before").inner_text().startswith(expected(before)["output"][2].replace("-", "\u2212"))
    assert page.locator(".bar .old").count() > 0
    changed["job"] = "nurse" if frame["job"].iloc[5] != "nurse" else "cook"
    page.locator('[id="cell-job"]').select_option(changed["job"].iloc[0])
    assert until(lambda: numbers(page), wanted := expected(cafe.explain(changed, "zero", target=target))) == wanted
    page.locator("#undo").click()
    assert until(lambda: numbers(page), one) == one
    page.locator("#output").click()
    page.keyboard.press("Control+z")
    assert until(lambda: numbers(page), wanted := expected(before)) == wanted
    assert page.locator("#undo").is_disabled()
    # to the baseline: 0
    page.get_by_label("Set income to the baseline, 0").click()
    changed = frame.iloc[[5]].assign(income=0.0)
    assert until(lambda: numbers(page), wanted := expected(cafe.explain(changed, "zero", target=target))) == wanted
    page.locator("#reset").click()
    assert until(lambda: numbers(page), wanted := expected(before)) == wanted


def test_a_wrong_value_is_told_beside_its_field(server, visit):
    page = visit(server, quiet=False)  # a refused request is in the console
    open_row(page, 2)
    before = numbers(page)
    field = page.locator('[id="cell-age"]')
    for text in ("old", "", "1e999"):
        field.fill(text)
        page.keyboard.press("Enter")
        assert page.locator('[id="cell-age-wrong"]').inner_text() == "Give a number, such as 4.5."
        assert field.get_attribute("aria-invalid") == "true"
    assert numbers(page) == before
    field.fill("40")
    page.keyboard.press("Enter")
    page.locator("#output-before").wait_for()
    assert page.locator('[id="cell-age-wrong"]').inner_text() == ""
    page.locator("#baseline").select_option("row")
    page.locator("#baseline-row").fill("100000")
    page.keyboard.press("Enter")
    page.locator("#baseline-wrong", has_text=f"Give a row from 0 to {ROWS - 1}.").wait_for()


def tab_to(page, identity, back=False):
    """Reach an element by the tab key alone."""
    for _ in range(150):
        page.keyboard.press("Shift+Tab" if back else "Tab")
        if page.evaluate("() => document.activeElement.id || document.activeElement.dataset.row") == identity:
            return
    raise AssertionError(f"{identity} cannot be reached by the tab key")


def test_from_start_to_report_by_keyboard_alone(server, visit, tmp_path):
    page = visit(server)
    page.locator("#rows tbody tr").first.wait_for()
    tab_to(page, "4")
    page.keyboard.press("Enter")
    page.locator("#row-name", has_text="Row 4").wait_for()
    tab_to(page, "c")
    for _ in range(10):
        page.keyboard.press("ArrowRight")
    assert until(lambda: page.locator("output[for=c]").inner_text(), "0.60") == "0.60"
    tab_to(page, "cell-age")
    page.keyboard.press("Control+a")
    page.keyboard.type("33")
    page.keyboard.press("Enter")
    page.locator("#output-before").wait_for()
    page.keyboard.press("Alt+6")
    page.locator("#python").wait_for()
    tab_to(page, "report")
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    download.value.save_as(tmp_path / "report.html")
    report = (tmp_path / "report.html").read_text("utf-8")
    assert "Row 4, changed" in report
    cafe, frame = explainer()
    target = int(cafe.explain(frame.iloc[[4]]).target[0, 0])
    e = cafe.explain(frame.iloc[[4]].assign(age=33.0), c=0.6, target=target)
    assert expected(e)["output"][2].replace("-", "\u2212") in report


def test_rows_are_sorted_filtered_and_described(server, visit):
    page = visit(server)
    cafe, frame = explainer()
    page.locator("#progress", has_text="All rows are scored").wait_for()
    e = cafe.explain(frame)
    shown = lambda: page.locator("#rows tbody th").all_inner_texts()  # noqa: E731
    page.locator('[data-by="conflict"]').click()
    conflict = np.sort(e.conflict.float().numpy())

    def shown_conflict():
        """Of the rows in their order; rows that differ by rounding alone may come in any."""
        return np.round(e.conflict.float().numpy()[[int(name.split()[1]) for name in shown()]], 4).tolist()

    assert until(shown_conflict, wanted := np.round(conflict[::-1][:50], 4).tolist()) == wanted
    page.locator('[data-by="conflict"]').click()
    assert until(shown_conflict, wanted := np.round(conflict[:50], 4).tolist()) == wanted
    page.locator('[data-by="error"]').click()
    likely = torch.softmax(network().eval()(torch.tensor(cafe.schema.encode(frame)[0]).float()), 1)
    truth = torch.tensor((table()["repaid"] == "yes").to_numpy()).long()
    wrong = (1 - likely[torch.arange(ROWS), truth]).detach().float().numpy()
    assert until(shown, wanted := [f"Row {i}" for i in np.argsort(wrong, kind="stable")[::-1][:50].tolist()]) == wanted
    page.locator('[data-by="age"]').click()
    assert until(shown, wanted := [f"Row {i}" for i in np.argsort(frame["age"], kind="stable")[:50].tolist()]) == wanted
    page.locator("#search").fill("city=oslo")
    few = frame.index[frame["city"] == "Oslo"]
    wanted = [f"Row {i}" for i in few[np.argsort(frame["age"][few], kind="stable")].tolist()]
    assert until(shown, wanted[:50]) == wanted[:50]
    page.locator("#filter-column").select_option("age")
    page.locator("#filter-from").fill("60")
    page.keyboard.press("Enter")
    wanted = [name for name in wanted if frame["age"][int(name.split()[1])] >= 60]
    assert until(shown, wanted) == wanted
    assert page.locator("#rows thead svg").count() == 6  # a distribution above each column


def test_two_rows_two_methods_two_c(server, visit):
    page = visit(server)
    open_row(page, 0)
    page.locator("#baseline").select_option("zero")  # other methods take one baseline
    go(page, "sides")
    cafe, frame = explainer()
    page.locator("#side-row-1").fill("9")
    page.keyboard.press("Enter")
    page.locator("#side-told-1", has_text="Row 9").wait_for()
    both = [expected(cafe.explain(frame.iloc[[place]], "zero", c=c), 500) for place, c in ((0, 0.5), (9, 0.0))]
    cells = page.locator(".sides tbody tr", has_text="income").locator("td").all_inner_texts()
    assert [cells[2].replace("\u2212", "-"), cells[5].replace("\u2212", "-")] == [one["income"][2] for one in both]
    page.locator("#side-method-1").select_option("integrated_gradients")
    page.locator("#side-told-1", has_text="integrated gradients").wait_for()
    net = page.locator(".sides tbody tr", has_text="income").locator("td").nth(5).inner_text().replace("\u2212", "-")
    from cafexai.methods import METHODS

    x = torch.tensor(cafe.schema.encode(frame.iloc[[9]])[0]).float()
    target = int(network().eval()(x).argmax())
    scores = METHODS["integrated_gradients"](network().eval(), x, target=target)
    assert float(net) == pytest.approx(scores[0, 1].item(), rel=1e-3)


def test_hidden_conflicts_the_percentile_and_the_check_stand_below_the_ledger(server, visit):
    page = visit(server)
    cafe, frame = explainer()
    open_row(page, 6)
    e = cafe.explain(frame.iloc[[6]])
    hidden = cafe.hidden_conflicts(e)
    told = hidden.sentences(0)
    if told:
        assert until(lambda: page.locator("#row-hidden li").all_inner_texts(), told) == told
    else:
        assert page.locator("#row-hidden").count() == 0
    rank = re.compile(r"more than .* of the rows of the data")  # no background was given
    page.locator("#conflict-sentence", has_text=rank).or_(page.locator("#conflict-sentence")).wait_for()
    page.wait_for_timeout(1000)
    page.locator("#go-row").press("Enter")
    open_row(page, 7)
    open_row(page, 6)
    assert until(lambda: bool(rank.search(page.locator("#conflict-sentence").inner_text())), True)
    assert page.locator("#check-told").inner_text() == ""
    page.locator("#check").click()
    check = cafe.check_by_changing(e, 0)
    wanted = f"{check.evaluations} evaluations of the model."
    page.locator("#check-told", has_text=wanted).wait_for()
    assert page.locator("#check-told").inner_text().startswith("Checked by changing: ")
    assert f"{check.correlation:.2f}" in page.locator("#check-told").inner_text()


def test_a_slow_method_is_cancelled_while_the_slider_works(folder, visit):
    with serving(folder, *USUAL[:6], model="shop:slow") as server:
        page = visit(server)
        open_row(page, 0)
        page.locator("#baseline").select_option("zero")
        go(page, "sides")
        page.locator("#side-method-1").select_option("shapley_value_sampling")
        page.locator("#stop-1").wait_for()
        calls = page.locator("fieldset", has_text="Shapley value sampling:").last
        calls.get_by_text(re.compile(r"Shapley value sampling: [1-9]")).wait_for()
        page.locator("#side-row-0").fill("1")
        page.keyboard.press("Enter")
        page.locator("#side-told-0", has_text="Row 1").wait_for()  # CAFE answers meanwhile
        assert page.locator("#stop-1").is_visible()
        page.locator("#stop-1").click()
        page.locator("#ended-1", has_text="was ended").wait_for(timeout=5000)


def test_who_fights_whom(server, visit):
    page = visit(server)
    open_row(page, 6)
    page.locator("#baseline").select_option("zero")
    go(page, "fights")
    cafe, frame = explainer()
    exact = cafe.hidden_conflicts(cafe.explain(frame.iloc[[6]], "zero"))
    assert page.locator("#pair-sentences li").all_inner_texts() == [fighting_sentence(one) for one in exact.fights(0)]
    cells = page.locator("#pair-sentences ~ .scroll .map tbody td").evaluate_all(
        "all => all.map(one => one.firstChild?.data ?? '')"
    )
    largest = exact.conflict.max().item()
    assert max(float(cell or 0) for cell in cells) == pytest.approx(largest, rel=1e-3)
    assert page.locator("#pairs-measured").inner_text() == "Measured by 16 evaluations of the model, against zero."
    cafe, frame = explainer(variant="feature")
    e = cafe.explain(frame.iloc[[6]], "zero", pairs=True)
    up, down, amount = e.pairs(most=1)[0]
    first = page.locator("#inside-sentences li").first.inner_text()
    assert f"{amount:.4g}" in first
    assert all("the constants of the model" in first if name == "(bias)" else name in first for name in (up, down))
    page.locator(".card svg").first.wait_for()
    # the unit that is shown first, by hand
    model = network().eval().double()
    x = torch.tensor(cafe.schema.encode(frame.iloc[[6]])[0])
    hidden = model[1](model[0](x)).detach().requires_grad_()
    target = int(model(x).argmax())
    (slope,) = torch.autograd.grad(model[2:](hidden)[0, target], hidden)
    parts = (model[0].weight * x).detach()
    held = torch.minimum(parts.clamp_min(0).sum(1), -parts.clamp_max(0).sum(1)) * slope[0].abs()
    told = page.locator(".layers tbody tr").first.locator("td").first.inner_text()
    assert float(told) == pytest.approx(held.sum().item(), rel=1e-3)


def test_overview_groups_and_drift(server, visit):
    page = visit(server)
    page.locator("#progress", has_text="All rows are scored").wait_for()
    go(page, "overview")
    cafe, frame = explainer()
    e = cafe.explain(frame)
    counts = e.target[:, 0].bincount()
    for output in counts.argsort(descending=True).tolist():
        page.locator("#overview-output").select_option(str(output))
        page.locator("h3", has_text=f"Mean scores of rows explained for {cafe.class_names[output]}").wait_for()
        own = e.target[:, 0] == output
        line = page.locator(".ledger tbody tr", has_text="income").locator("td").all_inner_texts()
        assert float(line[1]) == pytest.approx(e.flat(e.positive)[own, 1].mean().item(), rel=1e-3)
        assert float(line[2]) == pytest.approx(e.flat(e.negative)[own, 1].mean().item(), rel=1e-3)
        assert float(line[4]) == pytest.approx(e.flat(e.combined)[own, 1].abs().mean().item(), rel=1e-3)  # mean |net|
    page.locator("#group").select_option("city")
    share = e.conflict_share
    mean = share[torch.tensor((frame["city"] == "Rome").to_numpy())].mean().item()
    row = page.locator(".layers tbody tr", has_text="Rome").first
    row.wait_for()
    assert row.locator("td").first.inner_text() == f"{100 * mean:.2f}\u00a0%"
    page.locator("#apart").wait_for()
    later = pd.concat([frame[:50]]).assign(income=frame["income"][:50] / 2)
    other = cafe.explain(later)
    other_share = other.conflict_share
    page.locator(
        "figcaption", has_text=f"later.csv: 50 of 50 rows, mean conflict {100 * other_share.mean().item():.2f}\u00a0%"
    ).wait_for()


def test_take_away(server, folder, visit, tmp_path):
    page = visit(server)
    open_row(page, 8)
    page.locator('[id="cell-age"]').fill("21")
    page.keyboard.press("Enter")
    page.locator("#output-before").wait_for()
    page.locator("#variant").select_option("feature")
    cafe, frame = explainer(variant="feature")
    target = int(cafe.explain(frame.iloc[[8]]).target[0, 0])
    e = cafe.explain(frame.iloc[[8]].assign(age=21.0), target=target)
    assert until(lambda: numbers(page), wanted := expected(e)) == wanted
    go(page, "take")
    code = page.locator("#python").inner_text()
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == e.ledger().strip(), done.stderr
    link = page.locator("#link").input_value()
    with page.expect_download() as download:
        page.locator("#csv").click()
    download.value.save_as(tmp_path / "scores.csv")
    scores = pd.read_csv(tmp_path / "scores.csv")
    assert scores["row"].unique().tolist() == [8]
    np.testing.assert_allclose(scores["combined"][:-1], e.flat(e.combined)[0].numpy(), rtol=1e-5)
    page.locator("#which-found").check()
    with page.expect_download() as download:
        page.locator("#csv").click()
    download.value.save_as(tmp_path / "all.csv")
    assert pd.read_csv(tmp_path / "all.csv")["row"].tolist()[::6] == list(range(ROWS))
    assert page.locator("#parquet").count() == bool(importlib.util.find_spec("pyarrow"))
    if page.locator("#parquet").count():
        with page.expect_download() as download:
            page.locator("#parquet").click()
        download.value.save_as(tmp_path / "scores.parquet")
        assert pd.read_parquet(tmp_path / "scores.parquet")["row"].tolist()[::6] == list(range(ROWS))
    again = visit(server, link.removeprefix(server.root))
    again.locator("#output-before").wait_for()
    assert until(lambda: numbers(again), wanted) == wanted
    assert again.locator("#variant").input_value() == "feature"


def test_nothing_from_the_data_runs(server, visit):
    page = visit(server)
    for view in VIEWS:
        go(page, view)
        page.wait_for_timeout(300)
        assert page.evaluate("() => window.hacked") is None
        assert page.locator("main script, main img").count() == 0
    go(page, "rows")
    page.locator("#rows tbody tr").first.wait_for()
    assert page.locator("#rows thead").get_by_text(SCRIPT).count() == 1
    assert page.locator("#rows tbody").get_by_text(ODD).count() > 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_axe_finds_no_violation(server, visit, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe: make browser installs it")
    page = visit(server, quiet=False, color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True)
    page.locator("#progress", has_text="All rows are scored").wait_for()
    for view in VIEWS:
        go(page, view)
        if view == "row":
            page.locator('[id="cell-age"]').fill("30")
            page.keyboard.press("Enter")
            page.locator("#output-before").wait_for()
        page.wait_for_timeout(700)
        result = axe.Axe().run(page)
        assert result.response["passes"]
        assert result.violations_count == 0, f"{view}: {result.generate_report()}"
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), f"{view} is wider than {width}"


def test_it_says_when_the_server_is_gone_and_comes_back(folder, visit):
    with serving(folder, *USUAL, "--token-file", "tok-back") as server:
        page = visit(server, quiet=False)  # connections that fail are in the console
        open_row(page, 1)
        port = server.port
        server.end(signal.SIGKILL)
        page.locator("#c").focus()
        page.keyboard.press("ArrowRight")
        page.locator("#banner", has_text="cannot be reached").wait_for()
    with serving(folder, *USUAL, "--token-file", "tok-back", port=port):
        page.locator("#banner").wait_for(state="hidden")
        cafe, frame = explainer()
        assert until(lambda: numbers(page), wanted := expected(cafe.explain(frame.iloc[[1]], c=0.51))) == wanted


def test_pictures_can_be_painted_over(tmp_path, browser, visit):
    torch.manual_seed(0)
    x = torch.rand(6, 3, 16, 16).float()
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(784, 3)).float().eval()
    explorer = started(CAFE(model, class_names=["a", "b", "c"]), x.numpy(), title="pictures")
    try:
        page = visit(explorer)
        go(page, "row")
        before = CAFE(model).explain(x[:1])
        page.locator(".maps img").nth(4).wait_for()
        page.locator("#region-bottom").fill("8")
        page.locator("#region-right").fill("8")
        page.locator("#paint").click()
        painted = x[:1].clone()
        painted[:, :, :8, :8] = 0
        from cafexai.reporting.summed import by_region

        e = by_region(CAFE(model).explain(painted, target=int(before.target[0, 0])))
        assert until(lambda: numbers(page), wanted := expected(e)) == wanted
        box = page.locator(".paint").bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.55, box["y"] + box["height"] * 0.55)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.95, box["y"] + box["height"] * 0.95)
        page.mouse.up()
        painted[:, :, 8:16, 8:16] = 0
        e = by_region(CAFE(model).explain(painted, target=int(before.target[0, 0])))
        assert until(lambda: numbers(page), wanted := expected(e)) == wanted
        page.locator("#view-fights").click()
        page.locator("#pair-sentences").wait_for()
    finally:
        explorer.close()


def test_words_can_be_struck(visit):
    from inputs.test_text import word_pieces

    tok = word_pieces()
    torch.manual_seed(0)
    embed, head = nn.Embedding(len(tok), 6).float(), nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)).float()

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = embed, head

        def forward(self, input_ids, attention_mask=None):
            return self.head(self.embed(input_ids)).sum(1)

    texts = ["a good film", "not a good film , the cafe", "a good film , a cafe"]
    cafe = CAFE(Reader().eval(), class_names=["bad", "fine"])
    explorer = started(cafe.replace(tokenizer=tok), texts, title="reviews")
    try:
        page = visit(explorer)
        open_row(page, 1)
        before = cafe.explain(texts[1:2], tokenizer=tok)
        assert until(lambda: numbers(page).get("output"), wanted := expected(before)["output"]) == wanted
        page.locator("#word-0").click()
        e = cafe.explain(["a good film , the cafe"], tokenizer=tok, target=int(before.target[0, 0]))
        assert until(lambda: numbers(page).get("output"), wanted := expected(e)["output"]) == wanted
        assert page.locator(".words span").count() == len([name for name in e.names() if name])
        page.locator("#word-0").click()
        assert until(lambda: numbers(page).get("output"), wanted := expected(before)["output"]) == wanted
        open_row(page, 2)
        page.locator("#word-2").click()  # film
        page.locator("#output-before").wait_for()
        rows = page.locator("#main .ledger tbody tr")
        twice = rows.filter(has=page.get_by_role("rowheader", name="a", exact=True))
        assert (twice.count(), twice.locator(".old").count()) == (2, 0)  # which of them was it?
        assert rows.filter(has=page.get_by_role("rowheader", name="good", exact=True)).locator(".old").count() == 2
    finally:
        explorer.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_language_model_writes(visit, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe: make browser installs it")
    from generation.test_generation import PROMPT, build, byte_pairs

    tokenizer = byte_pairs()
    cafe = CAFE(build("gpt2", len(tokenizer)), tokenizer=tokenizer)
    explorer = started(cafe, ["You may copy", PROMPT], output="logits[:, -1]", title="prompts")
    try:
        page = visit(explorer, color_scheme=scheme, viewport={"width": 400, "height": 900}, bypass_csp=True)
        open_row(page, 1)
        page.locator("#write-tokens").fill("4")
        page.locator("#write").click()
        page.locator(".heat").wait_for()
        expected = cafe.generation(PROMPT, max_new_tokens=4)
        assert page.locator("#written-text").text_content() == expected.text
        assert page.locator(".heat thead b").count() == 4
        assert page.locator(".heat tbody tr").count() == int(expected.seen.any(0).sum())
        first = page.locator(".heat tbody tr").first.locator("td").first.text_content().replace("\u2212", "-")
        assert float(first) == pytest.approx(expected.scores[0, 0].item(), abs=0.005)
        result = axe.Axe().run(page)
        assert result.violations_count == 0, result.generate_report()
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        if shots := os.environ.get("CAFEXAI_SHOTS"):
            page.screenshot(path=f"{shots}/writing-{scheme}.png", full_page=True)
        page.locator("#word-0").click()
        page.locator(".heat").wait_for(state="detached")
    finally:
        explorer.close()


def started(cafe, data, **options):
    """An explorer that Python has started."""
    from cafexai import explore

    explorer = explore(cafe, data, open_browser=False, block=False, **options)
    explorer.root = explorer.url.split("?")[0]
    return explorer


@pytest.mark.slow
def test_a_million_rows(folder, tmp_path, visit):
    random = np.random.default_rng(0)
    count = 1_000_000
    frame = table().sample(count, replace=True, random_state=0, ignore_index=True)
    frame["income"] = random.lognormal(1, 0.5, count).round(4)
    frame.to_csv(folder / "million.csv", index=False)
    with serving(folder, *USUAL[:6], data="million.csv") as server:
        begin = time.perf_counter()
        page = visit(server)
        page.locator("#rows tbody tr").nth(49).wait_for()
        first = time.perf_counter() - begin
        shown = lambda: page.locator("#rows tbody th").all_inner_texts()  # noqa: E731
        begin = time.perf_counter()
        page.locator('[data-by="income"]').click()
        order = np.argsort(frame["income"].to_numpy(), kind="stable")
        assert until(shown, wanted := [f"Row {i}" for i in order[:50].tolist()]) == wanted
        by_column = time.perf_counter() - begin
        page.locator("#last").click()
        assert until(shown, wanted := [f"Row {i}" for i in order[-50:].tolist()]) == wanted
        page.locator("#page").fill("10000")
        page.keyboard.press("Enter")
        assert until(shown, wanted := [f"Row {i}" for i in order[499_950:500_000].tolist()]) == wanted
        page.locator('[data-by="conflict"]').click()
        page.locator("#found", has_text="that are scored so far").wait_for()
        page.locator('[data-by="income"]').click()
        begin = time.perf_counter()
        page.locator("#search").fill("city=oslo")
        page.locator("#found", has_text=f"{int((frame['city'] == 'Oslo').sum()):,} rows of 1,000,000").wait_for()
        print(f"first page {first:.2f} s, sorted {by_column:.2f} s, searched {time.perf_counter() - begin:.2f} s")
        page.close()
    if "CAFEXAI_FIRST_PAGE" in os.environ:  # seconds, where the machine has nothing else to do
        assert first < float(os.environ["CAFEXAI_FIRST_PAGE"])
