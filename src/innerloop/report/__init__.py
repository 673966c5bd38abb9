"""A page from run directories: one file that opens anywhere, without a network."""

from innerloop.report import plots as plots
from innerloop.report.page import write_page as write_page
