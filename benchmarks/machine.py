"""What the numbers were measured on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

import torch


def machine() -> dict[str, object]:
    """Processor, memory, threads and versions."""
    packages = ("torch", "captum", "shap", "numpy", "transformers")
    return {
        "processor": _first("/proc/cpuinfo", "model name") or platform.processor(),
        "features": sorted({"avx2", "avx512f", "amx_tile"} & set(_first("/proc/cpuinfo", "flags").split())),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],  # of other programs too: much of it, and times of two threads mean little
        "cache_kib": _first("/proc/cpuinfo", "cache size"),
        "memory": _first("/proc/meminfo", "MemTotal"),
        "system": platform.platform(),
        "python": platform.python_version(),
        **{package: importlib.metadata.version(package) for package in packages},
    }


def _first(file: str, key: str) -> str:
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), "")
