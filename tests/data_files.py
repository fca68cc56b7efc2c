"""Tiny files in the formats of the real ones, written from a seed."""

from __future__ import annotations

import csv
import gzip
import io
import struct
import tarfile

import numpy as np
from PIL import Image

ADULT = (
    "age,fnlwgt,education-num,capital-gain,capital-loss,hours-per-week,sex_Male,workclass_Private,marital-status_Non-Married,"
    "occupation_Other,relationship_Non-Husband,race_White,native-country_US,income"
)
COMPAS = "age,two_year_recid,priors_count,length_of_stay,c_charge_degree_F,sex_Female,race,risk"
BLOCKS = {"status": 4, "history": 5, "purpose": 10, "savings": 5, "employment": 5, "personal": 4, "debtors": 3, "property": 4}
BLOCKS |= {"plans": 3, "housing": 3, "job": 4, "telephone": 2}
MEMBERS = ("data_batch_1", "data_batch_2", "test_batch")


def write_all(folder):
    """The whole layout of a data folder."""
    random = np.random.default_rng(0)
    openxai(folder / "openxai", random)
    titanic(folder / "titanic", random)
    covertype(folder / "covertype", random)
    for name in ("mnist", "fashion-mnist"):
        idx(folder / name, random)
    cifar(folder / "cifar10", random)
    textures(folder / "dtd", random)
    snippets(folder / "movie-snippets")
    for name in ("mimic-iv", "mimic-iv-demo"):
        mimic(folder / name, random)
    return folder


def table(path, header, rows, separator=","):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [separator.join(header), *(separator.join(f"{value:g}" for value in row) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


def openxai(folder, random, train=60):
    for part, rows in (("train", train), ("test", 20)):
        numbers = random.integers(0, 90, (rows, 6))
        binary = random.integers(0, 2, (rows, 8))
        table(folder / f"adult-{part}.csv", ADULT.split(","), np.concatenate([numbers, binary], 1))
        mixed = np.stack([numbers[:, 0], binary[:, 0], numbers[:, 1], numbers[:, 2], *binary[:, 1:5].T], 1)
        table(folder / f"compas-{part}.csv", COMPAS.split(","), mixed, "\t")  # as Dataverse serves it
        names = [f"n{i}" for i in range(23)]
        table(folder / f"heloc-{part}.csv", [*names, "RiskPerformance"], np.c_[random.normal(size=(rows, 23)), binary[:, :1]])
        header = [f"number{i}" for i in range(8)]
        columns = [random.integers(0, 9, (rows, 8))]
        for name, size in BLOCKS.items():
            header += [f"{name}_{i}" for i in range(size)]
            columns.append(np.eye(size, dtype=int)[random.integers(0, size, rows)])
        table(folder / f"german-{part}.csv", [*header, "credit-risk"], np.concatenate([*columns, binary[:, :1]], 1))


def openxai_weights(folder, name, inputs):
    """A network in OpenXAI's format, d-100-2."""
    import torch
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(0)
    shapes = {"input1.weight": (100, inputs), "input1.bias": (100,), "input2.weight": (2, 100), "input2.bias": (2,)}
    folder.mkdir(parents=True, exist_ok=True)
    save_file({key: torch.randn(shape, generator=generator, dtype=torch.float32) for key, shape in shapes.items()},
              folder / f"ann_{name}.safetensors")  # fmt: skip


def titanic(folder, random):
    folder.mkdir(parents=True)
    header = "PassengerId Survived Pclass Name Sex Age SibSp Parch Ticket Fare Cabin Embarked".split()
    with (folder / "titanic_train.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for i in range(50):
            age = "" if i % 7 == 0 else int(random.integers(1, 80))
            sex = ("male", "female")[i % 2]
            family = random.integers(0, 3, 2).tolist()
            fare = round(float(random.gamma(2, 15)), 4)
            writer.writerow([i, i % 3 % 2, i % 3 + 1, f'Doe, "J" {i}', sex, age, *family, "A/5", fare, "", "S"])


def covertype(folder, random):
    folder.mkdir(parents=True)
    rows = 200
    numbers = random.integers(-100, 4000, (rows, 10))
    blocks = [np.eye(size, dtype=int)[random.integers(0, size, rows)] for size in (4, 40)]
    values = np.concatenate([numbers, *blocks, 1 + (np.arange(rows) % 7)[:, None]], 1)
    text = "\n".join(",".join(map(str, row)) for row in values.tolist()) + "\n"
    (folder / "covtype.data.gz").write_bytes(gzip.compress(text.encode()))


def idx(folder, random):
    folder.mkdir(parents=True)
    for part, rows in (("train", 60), ("t10k", 40)):
        images = random.integers(0, 256, (rows, 28, 28)).astype(np.uint8)
        labels = (np.arange(rows) % 10).astype(np.uint8)
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", labels)


def write_idx(path, values):
    head = struct.pack(">HBB", 0, 8, values.ndim) + struct.pack(f">{values.ndim}I", *values.shape)
    path.write_bytes(gzip.compress(head + values.tobytes()))


def cifar(folder, random):
    folder.mkdir(parents=True)
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as archive:
        for name in MEMBERS:
            rows = random.integers(0, 256, (10, 3073)).astype(np.uint8)
            rows[:, 0] = np.arange(10)
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            member.size = rows.size
            archive.addfile(member, io.BytesIO(rows.tobytes()))


def textures(folder, random):
    folder.mkdir(parents=True)
    for i in range(3):
        Image.fromarray(random.integers(0, 256, (90, 80, 3)).astype(np.uint8)).save(folder / f"banded_{i}.jpg")


def snippets(folder):
    """Thirty sentences: ten positive, ten negative, ten that are rated near 0 or too short."""
    folder.mkdir(parents=True)
    rated = [(3.0, "a film as fine as number {} of the year"), (-2.5, "a film as dull as number {} of the year")]
    lines = [f"{i}\t{rated[i % 2][0]}\t{rated[i % 2][1].format(i)}" for i in range(20)]
    lines += [f"{i}\t{0.2 if i % 2 else 2.0}\t{'a film like number 7 of all' if i % 2 else 'fine film'}" for i in range(10)]
    (folder / "movieReviewSnippets_GroundTruth.txt").write_text("\n".join(lines) + "\n")


def mimic(folder, random, patients=60):
    """The five tables; patient 0 is too old, 1 lacks a temperature, 2 has an impossible weight, 3 was there twice."""
    items = {
        "HR": 220045,
        "SpO2": 220277,
        "RR": 220210,
        "Admission Weight (Kg)": 226512,
        "NBPm": 220181,
        "Temperature F": 223761,
    }
    usual = {"HR": 80, "SpO2": 96, "RR": 18, "Admission Weight (Kg)": 75, "NBPm": 80, "Temperature F": 98}
    people, admissions, stays, events = [], [], [], []
    for i in range(patients):
        died = "2150-03-10" if i % 5 == 0 else ("2151-03-10" if i % 5 == 1 else "")
        people.append([i, "FM"[i % 2], 95 if i == 0 else 40 + i % 40, 2150, died])
        for stay in range(2 if i == 3 else 1):
            key, day = 100 + 2 * i + stay, 1 + stay
            admissions.append([i, 1000 + key, f"2150-03-0{day} 08:00:00", ("EW EMER.", "URGENT", "ELECTIVE")[i % 3]])
            stays.append([i, 1000 + key, key, f"2150-03-0{day} 10:00:00"])
            for name, item in items.items():
                if i == 1 and name == "Temperature F":
                    continue
                for hour in (13, 10, 11):  # not in order; the first is half past ten
                    value = 9999 if i == 2 and name.startswith("Adm") else usual[name] + hour - 10 + stay
                    events.append([key, f"2150-03-0{day} {hour}:30:00", item, value])
    random.shuffle(events)
    tables = {
        "hosp/patients": ("subject_id gender anchor_age anchor_year dod", people),
        "hosp/admissions": ("subject_id hadm_id admittime admission_type", admissions),
        "icu/icustays": ("subject_id hadm_id stay_id intime", stays),
        "icu/chartevents": ("stay_id charttime itemid valuenum", events),
        "icu/d_items": ("itemid abbreviation", [[item, name] for name, item in items.items()] + [[1, "other"]]),
    }
    for name, (header, rows) in tables.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = io.StringIO()
        csv.writer(text).writerows([header.split(), *rows])
        path.write_bytes(gzip.compress(text.getvalue().encode()))
