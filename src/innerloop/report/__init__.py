"""A page from run directories: one file that opens anywhere, without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.report import plots as plots
    from innerloop.report.page import write_page as write_page
else:
    __getattr__, __dir__ = lazy(__name__, {"innerloop.report.page": "write_page"}, rooms="plots")
