"""A page as one file: its own style and script and pictures inside it, and nothing from anywhere else."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

from .escape import Html, html


def write_document(title: str, body: Html, style: str, script: str = "") -> str:
    """Head and body, with a policy that allows the page's own style and script and pictures inside it, and nothing else."""
    allowed = f" script-src '{_digest(script)}';" if script else ""
    policy = f"default-src 'none'; style-src '{_digest(style)}';{allowed} img-src data:; base-uri 'none'; form-action 'none'"
    end = f"<script>{script}</script>" if script else ""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{html(policy)}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="color-scheme" content="light dark">'
        f'<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,"><title>{html(title)}</title>'
        f"<style>{style}</style></head>\n<body>{body}\n{end}</body></html>\n"
    )


def read_asset(name: str) -> str:
    """A style or script of this package."""
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
