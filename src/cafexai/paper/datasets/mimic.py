"""MIMIC-IV: death within 30 days of the first intensive care, from the user's own PhysioNet files or the open demo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .files import DataNotFound, Folder, find, folders, missing
from .record import Dataset, split
from .tables import encode

if TYPE_CHECKING:
    import pandas as pd

VITALS = {
    "Admission Weight (Kg)": "admission_weight",
    "HR": "hr",
    "NBPm": "mbp",
    "RR": "rr",
    "SpO2": "spo2",
    "Temperature F": "temperature",
}
PLAUSIBLE = {
    "admission_weight": (3, 650),
    "hr": (25, 480),
    "mbp": (20, 250),
    "rr": (1, 100),
    "spo2": (40, 100),
    "temperature": (40, 115),
    "admitage": (18, 100),
}
WORDS = ("admission_type", "gender")
LABEL = "died_30_days"
TABLES = ("hosp/patients", "hosp/admissions", "icu/icustays", "icu/chartevents", "icu/d_items")


def mimic(
    *,
    demo: bool = False,
    folder: Folder = None,
    first_hour: bool = False,
    positive_share: float | None = 0.3,
    test: float = 0.1,
    seed: int = 43,
) -> Dataset:
    """First vital signs, admission type, gender and age of each patient's first intensive care, and death within 30 days.

    Args:
        demo: The open demo instead of the full tables.
        folder: Where the files are; None takes ``CAFEXAI_DATA``.
        first_hour: Count only what was measured within an hour, as the paper says; its authors' code takes the first value
            whenever it came.
        positive_share: Training rows with a death are drawn again until they are this share of all; None leaves them as
            they are.
        test: The share of rows for testing.
        seed: Decides the split.

    Returns:
        The data set.

    Raises:
        DataNotFound: Its files are missing.
    """
    table = mimic_table(demo=demo, folder=folder, first_hour=first_hour)
    if len(table) < 20:
        raise ValueError(
            f"load('mimic', demo={demo}, first_hour={first_hour}): only {len(table)} stays have all six vital signs, too few "
            "to split; first_hour=False takes each first value whenever it came."
        )
    died = np.array(table[LABEL], dtype=bool)
    train, test_rows = split(len(table), test, seed)
    if positive_share is not None:
        train = _upsample(train, died, positive_share)
    numbers = {name: table[name].to_numpy(dtype=float) for name in table.columns if name not in (*WORDS, LABEL)}
    words = {name: table[name].to_numpy(dtype=str) for name in WORDS}
    x_train, x_test, scaler, names, blocks = encode(numbers, words, train, test_rows)
    y = torch.from_numpy(died).long()
    notes = ["the open demo: fit for trying out, not for results"] if demo else []
    return Dataset(
        name="mimic",
        x_train=x_train,
        y_train=y[train],
        x_test=x_test,
        y_test=y[test_rows],
        citation="Johnson et al., MIMIC-IV, a freely accessible electronic health record dataset, Scientific Data 2023"
        + ("; MIMIC-IV Clinical Database Demo 2.2, doi 10.13026/dp1f-ex47" if demo else ""),
        terms="ODbL 1.0" if demo else "PhysioNet Credentialed Health Data License; not to be passed on",
        feature_names=names,
        categories=blocks,
        class_names=("survived 30 days", "died within 30 days"),
        scaler=scaler,
        notes=(*notes, "values of the first hour" if first_hour else "first values, without a window of time"),
    )


def _upsample(rows: np.ndarray, died: np.ndarray, share: float) -> np.ndarray:
    """Rows with deaths drawn again up to the share, then shuffled, with the draws of the authors (seeds 42 and 43)."""
    positive = rows[died[rows]]
    extra = int((len(rows) * share - len(positive)) / (1 - share))
    if extra <= 0 or len(positive) == 0:
        return rows
    drawn = positive[np.random.RandomState(42).randint(0, len(positive), extra)]
    longer = np.concatenate([rows, drawn])
    return longer[np.random.RandomState(43).permutation(len(longer))]


def mimic_table(*, demo: bool = False, folder: Folder = None, first_hour: bool = False) -> pd.DataFrame:
    """One row per patient in original units: what ``mimic`` scales and splits.

    It is read from ``mimic-iv/simple_mimic.csv`` if that exists, else built from the PhysioNet tables, which takes a while:
    write the result to that file to be quicker next time.

    Args:
        demo: The open demo instead of the full tables.
        folder: Where the files are; None takes ``CAFEXAI_DATA``.
        first_hour: See ``mimic``.

    Returns:
        The table; needs pandas.

    Raises:
        DataNotFound: Its files are missing.
    """
    pd = _pandas()
    home = "mimic-iv-demo" if demo else "mimic-iv"
    ready = [place / home / "simple_mimic.csv" for place in folders(folder)]
    for path in ready:
        if path.exists() and not first_hour and not demo:
            return pd.read_csv(path)
    tables = {name: _locate(name, home, demo, folder) for name in TABLES[:3]}
    cohort = _cohort(*(pd.read_csv(path) for path in tables.values()))
    events = _first_values(_events(home, demo, folder), cohort, first_hour)
    return _assemble(cohort, events)


def _locate(name: str, home: str, demo: bool, folder: Folder) -> Path:
    """A table of PhysioNet, packed or not, in the folders of its distribution or all in one."""
    flat = name.split("/")[1]
    names = [f"{home}/{stem}.csv{end}" for stem in (name, flat) for end in (".gz", "")]
    if demo:
        return find("load('mimic', demo=True)", *names, folder=folder)
    for place in folders(folder):
        for candidate in names:
            if (place / candidate).exists():
                return place / candidate
    remedy = (
        f"MIMIC-IV 2.2 needs a PhysioNet account with the signed agreement: put {', '.join(TABLES)} (.csv.gz) of "
        f"https://physionet.org/content/mimiciv/2.2/ under <folder>/{home} and pass folder=<folder> or set "
        "CAFEXAI_DATA=<folder>; load('mimic', demo=True) is open."
    )
    raise missing("load('mimic')", names[0], folder, remedy)


def _cohort(patients: pd.DataFrame, admissions: pd.DataFrame, stays: pd.DataFrame) -> pd.DataFrame:
    """First stay of each patient, with age, label and admission, in the order of the stays' patients."""
    pd = _pandas()
    stays = stays.assign(intime=pd.to_datetime(stays["intime"]))
    first = stays.loc[stays.groupby("subject_id")["intime"].idxmin(), ["subject_id", "hadm_id", "stay_id", "intime"]]
    joined = first.merge(admissions[["hadm_id", "admittime", "admission_type"]], on="hadm_id")
    joined = joined.merge(patients[["subject_id", "gender", "anchor_age", "anchor_year", "dod"]], on="subject_id")
    age = pd.to_datetime(joined["admittime"]).dt.year - joined["anchor_year"] + joined["anchor_age"]
    alive = pd.to_datetime(joined["dod"]) - joined["intime"]
    cohort = joined.assign(admitage=age.clip(upper=91), **{LABEL: alive < pd.Timedelta(days=30)})  # no date is no death
    return cohort[cohort["admitage"] < 91]


def _events(home: str, demo: bool, folder: Folder) -> Any:
    """Chunks of (stay_id, charttime, vital, valuenum) for the six vital signs."""
    pd = _pandas()
    columns = ["stay_id", "charttime", "itemid", "valuenum"]
    if demo:
        for place in folders(folder):
            short = place / home / "chartevents_vitals.csv.gz"  # the six vitals alone, with their abbreviations
            if short.exists():
                part = pd.read_csv(short)
                yield part.assign(vital=part["abbreviation"].map(VITALS))
                return
    items = pd.read_csv(_locate("icu/d_items", home, demo, folder))
    chosen = items[items["abbreviation"].isin(list(VITALS))].set_index("itemid")["abbreviation"].map(VITALS)
    events = _locate("icu/chartevents", home, demo, folder)
    for part in pd.read_csv(events, usecols=columns, chunksize=5_000_000):
        yield part[part["itemid"].isin(chosen.index)].assign(vital=lambda kept: kept["itemid"].map(chosen))


def _first_values(chunks: Any, cohort: pd.DataFrame, first_hour: bool) -> pd.DataFrame:
    """Earliest value of each vital in each stay, (stays, vitals)."""
    pd = _pandas()
    intime = cohort.set_index("stay_id")["intime"]
    earliest = []
    for part in chunks:
        part = part[part["stay_id"].isin(intime.index)]
        part = part.assign(charttime=pd.to_datetime(part["charttime"]))
        if first_hour:
            since = part["charttime"] - part["stay_id"].map(intime)
            part = part[(since >= pd.Timedelta(0)) & (since <= pd.Timedelta(hours=1))]
        earliest.append(_earliest(part))  # chunk by chunk: the whole table has 300 million rows
    kept = _earliest(pd.concat(earliest))
    return kept.pivot(index="stay_id", columns="vital", values="valuenum")


def _earliest(events: pd.DataFrame) -> pd.DataFrame:
    ordered = events.sort_values("charttime", kind="stable")
    return ordered.drop_duplicates(["stay_id", "vital"])[["stay_id", "vital", "charttime", "valuenum"]]


def _assemble(cohort: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """The final columns of complete and plausible stays."""
    columns = [*VITALS.values(), *WORDS, "admitage", LABEL]
    table = events.reindex(columns=list(VITALS.values())).dropna().merge(cohort, left_index=True, right_on="stay_id")
    for name, (low, high) in PLAUSIBLE.items():
        table = table[table[name].between(low, high)]
    if table.empty:
        raise DataNotFound("load('mimic'): no stay has all six vital signs; are these the tables of MIMIC-IV?")
    return table[columns].reset_index(drop=True)


def _pandas() -> Any:
    try:
        import pandas
    except ModuleNotFoundError:
        raise ModuleNotFoundError("load('mimic') needs pandas: pip install 'cafexai[tabular]'.") from None
    return pandas
