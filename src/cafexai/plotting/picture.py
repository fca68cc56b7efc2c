"""A figure of matplotlib that notebooks show, once, and that pyplot does not know of."""

from __future__ import annotations

import sys
from io import BytesIO

from matplotlib.figure import Figure

DPI = 100


class Picture(Figure):
    """What ``plot`` returns: a notebook shows it where a cell ends with it, ``show`` anywhere; ``savefig`` writes it."""

    def _repr_png_(self) -> bytes:
        with BytesIO() as file:
            self.savefig(file, format="png", dpi=DPI)
            return file.getvalue()

    def show(self, warn: bool = True) -> None:
        """Now: in a notebook below the cell, elsewhere in a window, which is waited for."""
        notebooks = sys.modules.get("IPython")
        if notebooks is not None and hasattr(notebooks.get_ipython(), "kernel"):
            notebooks.display.display(self)
            return
        from matplotlib import pyplot

        manager = pyplot.new_figure_manager(1, FigureClass=lambda: self)
        if self.canvas.required_interactive_framework is None:
            raise RuntimeError('show(): there is no display to open a window on. Write a file: savefig("picture.png").')
        manager.set_window_title("cafexai")
        manager.show()
        manager.start_main_loop()
