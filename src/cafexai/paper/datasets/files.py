"""Where data files come from: a folder of the user, the cache, or the download with its check."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from .sources import FILES

VARIABLE = "CAFEXAI_DATA"
OFFLINE = ("ConnectionError", "ConnectTimeout", "ReadTimeout", "SSLError")  # of requests
Folder = str | os.PathLike[str] | None


class DataNotFound(FileNotFoundError):
    """A data file is neither in the folders nor to be had from its source."""


def cache() -> Path:
    """The folder that downloads are kept in: ``CAFEXAI_CACHE``, or the cache of the user's system."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "cafexai"
    return Path(os.environ.get("CAFEXAI_CACHE") or default).expanduser()


def folders(folder: Folder) -> list[Path]:
    """The folders to look in: the given one alone, or that of the environment and the cache."""
    if folder is not None:
        return [Path(folder).expanduser()]
    given = os.environ.get(VARIABLE)
    return [Path(given).expanduser(), cache()] if given else [cache()]


def find(call: str, *names: str, folder: Folder = None) -> Path:
    """The first of ``names`` (files that serve equally, relative to a data folder) that exists, or that can be downloaded."""
    places = folders(folder)
    for place in places:
        for name in names:
            if (place / name).exists():
                return place / name
    failures: list[str] = []
    if folder is None:
        for name in names:
            for url, known in FILES[name].urls if name in FILES else ():
                failure = _download(url, known, name)
                if failure is None:
                    return cache() / name
                failures.append(f"{url} ({failure})")
    raise DataNotFound(_message(call, names, places, failures))


def missing(call: str, what: str, folder: Folder, remedy: str) -> DataNotFound:
    """The error for data that no address has."""
    places = "".join(f"\n  looked for in {place}" for place in folders(folder))
    return DataNotFound(f"{call}: {what} is missing.{places}\n{remedy}")


def _message(call: str, names: tuple[str, ...], places: list[Path], failures: list[str]) -> str:
    lines = [f"{call}: {' or '.join(names)} is missing.", *(f"  looked for in {place}" for place in places)]
    lines += [f"  could not be downloaded from {failure}" for failure in failures]
    if VARIABLE in os.environ or not failures:
        remedy = f"Put the file at {places[0] / names[0]}."
    else:
        remedy = f"Put the file at <folder>/{names[0]} and pass folder=<folder> or set {VARIABLE}=<folder>."
    hints = [FILES[name].by_hand for name in names if name in FILES and FILES[name].by_hand]
    return "\n".join([*lines, " ".join([remedy, *hints])])


def _download(url: str, known: str | None, name: str) -> str | None:
    """None when the file arrived in the cache and holds what it should, else what went wrong."""
    try:
        import pooch
    except ModuleNotFoundError:
        return "this needs pooch: pip install 'cafexai[data]'"
    target = cache() / name
    part = target.with_name(f"{os.getpid()}.{target.name}")  # its own name until its content is known to be right
    bar = FILES[name].large and importlib.util.find_spec("tqdm") is not None
    pooch.get_logger().setLevel("WARNING")
    try:
        downloader = pooch.HTTPDownloader(timeout=30, progressbar=bar)
        pooch.retrieve(url, known, fname=part.name, path=part.parent, downloader=downloader)
        FILES[name].check(part)
        part.replace(target)
    except Exception as error:  # network, checksum, content: whatever it was, the next address is tried
        kind = type(error).__name__
        return "no connection" if kind in OFFLINE else f"{kind}: {' '.join(str(error).split())[:200]}"
    finally:
        part.unlink(missing_ok=True)
    return None
