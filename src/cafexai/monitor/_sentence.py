"""A verdict in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from ._verdict import Verdict

NAMED = 3  # features or pairs in a sentence
LOST = {  # faults with a share of rows: verbs for one and several columns, and what is said behind
    "missing": (("is missing", "are missing"), ""),
    "not finite": (("is not finite", "are not finite"), ""),
    "new missing": (("is missing", "are missing"), " and never was in the reference"),
    "new infinite": (("is not finite", "are not finite"), " and always was in the reference"),
}


def write_sentence(verdict: Verdict, features: int, minimum: int) -> str:
    """What changed; whether the output moved; how many features push differently; accuracy, if labels are known."""
    parts = _changes(verdict)
    enough = verdict.scored >= minimum
    if verdict.kind != "none" and enough:
        parts += _effects(verdict, features)
    if verdict.harm == "unknown":
        parts.append("whether predictions are worse is unknown without labels")
    if verdict.scored < verdict.rows:
        parts.append(f"{verdict.rows - verdict.scored} of {verdict.rows} rows could not be scored")
        if not enough and verdict.scored:
            parts.append(f"scores and output of {verdict.scored} rows are too few to judge them")
    if verdict.performance is not None:
        now, before = verdict.performance.accuracy_now, verdict.performance.accuracy_before
        parts.append(f"accuracy is {now:.1%}, in the reference {before:.1%}")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _effects(verdict: Verdict, features: int) -> list[str]:
    if verdict.output is None:
        return []
    pushing = {one.feature for one in verdict.moved if one.kind in ("positive", "negative", "net")}
    moved = f"moved by {verdict.output}" if "output" in verdict.alarms else "did not move noticeably"
    return [f"the model's output {moved}", f"{len(pushing)} of {features} features push differently"]


def _changes(verdict: Verdict) -> list[str]:
    if verdict.kind == "none":
        found = f"no change was found in {verdict.rows} rows"
        return [found if verdict.harm != "seen" else f"{found}, but predictions are worse"]
    if verdict.columns:
        return [*_broken(verdict), *_moved(verdict), *_apart(verdict)]
    if verdict.kind == "correlation shift":
        return [f"each input looks the same, but {', '.join(_apart(verdict))}"]
    if inputs := _moved(verdict):
        return [*inputs, *_apart(verdict)]
    if verdict.kind == "covariate shift":
        return ["each input looks the same, but together they push the model differently"]
    return ["the inputs look the same"]


def _moved(verdict: Verdict) -> list[str]:
    """Inputs with other values, of columns that are neither lost nor have new values."""
    inputs = [one.feature for one in verdict.moved if one.kind == "input" and one.feature not in verdict.columns]
    return [f"{_list(inputs)} {'has' if len(inputs) == 1 else 'have'} other values than in the reference"] if inputs else []


def _apart(verdict: Verdict) -> list[str]:
    """Pairs whose correlation changed, of columns that are neither lost nor have new values: of others it is no news."""
    if "correlations" not in verdict.alarms:
        return []
    pairs = [one for one in verdict.pairs if not {one.first, one.second} & set(verdict.columns)]
    shown = ", and ".join(f"{_quote(one.first)} and {_quote(one.second)}" for one in pairs[:NAMED])
    more = f" ({len(pairs) - NAMED} more pairs)" if len(pairs) > NAMED else ""
    return [f"{shown} no longer move together as before{more}"] if pairs else []


def _broken(verdict: Verdict) -> list[str]:
    """Columns that are missing (with the shares), frozen, or have new values."""
    by_fault: dict[str, list[str]] = {}
    for feature, fault in verdict.columns.items():
        by_fault.setdefault(fault, []).append(feature)
    found = []
    for fault, names in by_fault.items():
        single = len(names) == 1
        if fault in LOST:
            shares = [verdict.missing[name] for name in names]
            most = show_share(max(shares))
            rows = "all rows" if min(shares) == 1 else f"{'' if single else 'up to '}{most} of the rows"
            verb, ending = LOST[fault]
            found.append(f"{_list(names)} {verb[0 if single else 1]} in {rows}{ending}")
        elif fault == "frozen":
            found.append(f"{_list(names)} no longer {'varies' if single else 'vary'}")
        else:
            found.append(f"{_list(names)} {'has' if single else 'have'} values never seen in the reference")
    return found


def show_share(share: float) -> str:
    """A share in percent; only nothing is 0 %, and only everything is 100 %."""
    if share in (0, 1) or 0.01 <= share < 0.995:
        return f"{share:.0%}"
    return f"{min(max(share, 0.0001), 0.9999):.2%}"


def show_p(p: float) -> str:
    """A p-value with one digit; none is 0."""
    return f"{p:.1g}" if p > 0 else "<1e-300"


def _list(names: Sequence[str]) -> str:
    shown = [_quote(name) for name in names[:NAMED]]
    if len(names) > NAMED:
        return f"{', '.join(shown)} and {len(names) - NAMED} more columns"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _quote(name: str) -> str:
    return f"`{name}`"
