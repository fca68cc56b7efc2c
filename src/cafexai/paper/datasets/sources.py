"""Every file that can be downloaded: its addresses in order of preference and how its content is known to be right.

A checksum stands beside an address only if that very file is known by it. Where a source may pack its file differently
(Dataverse, PhysioNet, mirrors), the content is compared instead: the numbers of a table, or the unpacked bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .reading import bytes_digest, read_records, table_digest

AUTHORS = "https://raw.githubusercontent.com/adamdejl/hidden-conflicts/HEAD/experiments"
DATAVERSE = "https://dataverse.harvard.edu/api/access/datafile"
DEMO = "https://physionet.org/files/mimic-iv-demo/2.2"


@dataclass(frozen=True)
class Source:
    """Addresses with the checksum of the file there, if known; the digest of the content; what a user can do by hand."""

    urls: tuple[tuple[str, str | None], ...] = ()
    content: str | None = None
    digest: Callable[[Path], str] = bytes_digest
    by_hand: str = ""
    large: bool = False

    def check(self, path: Path) -> None:
        """Raise if the file does not hold what it should."""
        if self.content is not None and (found := self.digest(path)) != self.content:
            raise ValueError(f"the content is not the known one (digest {found[:12]}..., expected {self.content[:12]}...)")


def titanic_digest(path: Path) -> str:
    """SHA-256 of the columns that are used, whatever way numbers are written."""
    used = "Survived Pclass Sex Age SibSp Parch Fare".split()
    lines = []
    for record in read_records(path, used):
        lines.append(",".join(record[name] if name == "Sex" else str(float(record[name] or "nan")) for name in used))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


FILES: dict[str, Source] = {}

# OpenXAI: the number of the file in Harvard Dataverse, the checksum of the authors' copy, the digest of its numbers.
for name, number, checksum, content in (
    (
        "adult-train",
        8550940,
        "15ffa1eaa8a075ace38f5ec5adcbe93220c7995cf4fe756e1079d80389c76f5a",
        "6a2050205a985c0153662f48b861a0536bc216044ff2ce947275326e29390f62",
    ),
    (
        "adult-test",
        8550933,
        "f01af26113ac6f696697911c29a75375dc3541214646103d694581d05e3e31cc",
        "2a9408ab341124cc737b761aaf63eabde9005f36600f0f3a304e9a460a338694",
    ),
    (
        "compas-train",
        8550936,
        "fd4666753c588b36cc083792749ef3777a6ffe2a84d3f2e089b1af9ef1cef161",
        "b549020936d9f84716373790027378b63cdd69061ee6f439cde4a28dea8b746d",
    ),
    (
        "compas-test",
        8550944,
        "cf60ba6c12694d42a6950ae56306235cbeb525150a12cb015a28c8a31c268cb5",
        "b7f4cf5ae8b7a3e0493eb09a3d396fa4403e29c34f51c4bb1d469df990df2991",
    ),
    (
        "german-train",
        8550931,
        "c56f98bacc9e33c2d63cb7fde982ef4c38a3554b2ad7308357df15544b1c9852",
        "bd2f63bd2122788e0413ee45a514f729f4460cca8d763d841c10710da2f43374",
    ),
    (
        "german-test",
        8550930,
        "22ac371d06fcc19cc6146d713c1b1a87e15e24aea9f2825873b8b96284316e42",
        "1e9d60fcb4f40ae55d6ad92d8d1deebefc293debcd82739bf683200d04d4f0ac",
    ),
    (
        "heloc-train",
        8550942,
        "a6453c45f87641738a078807214cc0d0bf2c86402c2a2061dc33ed94e0ef9df1",
        "c0cba16f518eefc1665b30b933fccd0ac4807fc160f19a2c66802e7cfe19846f",
    ),
    (
        "heloc-test",
        8550943,
        "5ae64c7186fcb38e5be6143f269888957fbe6ff2317d8b75b108db2321f09b0c",
        "a03099dbd73013ad643ae099432000647714bec92a0228878e6c07bd4a2219e1",
    ),
):
    FILES[f"openxai/{name}.csv"] = Source(
        (
            (f"{DATAVERSE}/{number}?format=original", None),
            (f"{DATAVERSE}/{number}", None),
            (f"{AUTHORS}/data/{name.split('-')[0]}/{name}.csv", f"sha256:{checksum}"),
        ),
        content,
        table_digest,
    )

# The networks of today's Dataverse have another shape (two hidden layers), so these come from the authors of the paper.
for name, checksum in (
    ("adult", "9087b48241bf187c0e1db0636379dad54c4ed74194228f327309cb120bbbe0e2"),
    ("compas", "11f00ee68510a19062b2bb812caf098505f6392c42cb374aeb7ca80e12eee9a5"),
    ("german", "f2e6d2d8654e7f255e812cb51d0af4ee3f499382f07a9c8edcd8662850cef0bf"),
    ("heloc", "9555098c39c41cdff3f5f91833397ec2e245a8dff40c7bf441ea93d3a41db574"),
):
    FILES[f"openxai_weights/ann_{name}.pt"] = Source(
        ((f"{AUTHORS}/models/openxai_pretrained/ann_{name}.pt", f"sha256:{checksum}"),)
    )

FILES["titanic/titanic_train.csv"] = Source(
    (
        (
            f"{AUTHORS}/data/titanic_train.csv",
            "sha256:7d118fef8b6ccf7f81111877bc388536f7b1e498a655e3d649d19aaa010e9f6f",
        ),
        ("https://raw.githubusercontent.com/datasciencedojo/datasets/master/titanic.csv", None),
    ),
    "e07a03e581626e35d8907387b05630c4dbc34f4ba8fb38dc81301c7c95cc6ce0",
    titanic_digest,
    "It is train.csv of https://www.kaggle.com/competitions/titanic/data.",
)

FILES["covertype/covtype.data.gz"] = Source(
    tuple(
        (url, "sha256:614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771")
        for url in (
            "https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/covtype.data.gz",
            "https://ndownloader.figshare.com/files/5976039",
        )
    ),
    large=True,
)

IDX = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
for folder, mirrors, sums in (
    (
        "mnist",
        ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist"),
        "f68b3c2dcbeaaa9fbdd348bbdeb94873 d53e105ee54ea40749a09fcbcd1e9432 "
        "9fb629c4189551a2d022fa330f9573f3 ec29112dd5afa0611ce80d1b7f02629c",
    ),
    (
        "fashion-mnist",
        (
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        ),
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d 25c81989df183df01b3e8a0aad5dffbe "
        "bef4ecab320f06d8554ea6380940ec79 bb300cfdad3c16e7a12a480ee83cd310",
    ),
):
    for file, md5 in zip(IDX, sums.split(), strict=True):
        FILES[f"{folder}/{file}"] = Source(tuple((f"{mirror}/{file}", f"md5:{md5}") for mirror in mirrors), large=True)

# The binary version: the Python version is a pickle, which can run code.
FILES["cifar10/cifar-10-binary.tar.gz"] = Source(
    (("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530"),), large=True
)

FILES["dtd/dtd-r1.0.1.tar.gz"] = Source(
    (("https://www.robots.ox.ac.uk/~vgg/data/dtd/download/dtd-r1.0.1.tar.gz", "md5:fff73e5086ae6bdbea199a49dfb8a4c1"),),
    by_hand='Without it, shapes(textures="generated") needs no file.',
    large=True,
)

FILES["movie-snippets/vaderSentiment-3.3.2.tar.gz"] = Source(
    (
        (
            "https://files.pythonhosted.org/packages/77/8c/4a48c10a50f750ae565e341e697d74a38075a3e43ff0df6f1ab72e186902/"
            "vaderSentiment-3.3.2.tar.gz",
            "sha256:5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
        ),
    ),
    by_hand="It is the source archive of https://pypi.org/project/vaderSentiment/3.3.2/#files.",
    large=True,
)

for name, digest in (
    ("icu/icustays", "9a79a759372a6075560a0dcf53d10122e691a8a4dce7141101f6660ab8476f42"),
    ("hosp/patients", "d6f7f45cad83a977cfe40cf80572ad13df3970071c5f91bf2fd319c3903516f0"),
    ("hosp/admissions", "b08247c945ce0c69c505cf3427c6442135b89d9ea6315a89d4adb7b1733ce1d4"),
    ("icu/chartevents", None),
    ("icu/d_items", None),
):
    FILES[f"mimic-iv-demo/{name}.csv.gz"] = Source(
        ((f"{DEMO}/{name}.csv.gz", None),),
        digest,
        by_hand="It is open: https://physionet.org/content/mimic-iv-demo/2.2/.",
    )
