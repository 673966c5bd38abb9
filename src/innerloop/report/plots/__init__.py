"""Figures: each is a data function (run data → plain lists) and a renderer (plain lists → Figure)."""

from innerloop.report.plots.cells import cell_picture_data as cell_picture_data
from innerloop.report.plots.cells import cell_picture_figure as cell_picture_figure
from innerloop.report.plots.curves import adaptation_curve_data as adaptation_curve_data
from innerloop.report.plots.curves import adaptation_curve_figure as adaptation_curve_figure
from innerloop.report.plots.curves import sinusoid_data as sinusoid_data
from innerloop.report.plots.curves import sinusoid_figure as sinusoid_figure
from innerloop.report.plots.curves import training_curve_data as training_curve_data
from innerloop.report.plots.curves import training_curve_figure as training_curve_figure
from innerloop.report.plots.scores import calibration_data as calibration_data
from innerloop.report.plots.scores import calibration_figure as calibration_figure
from innerloop.report.plots.scores import learning_curve_data as learning_curve_data
from innerloop.report.plots.scores import learning_curve_figure as learning_curve_figure
from innerloop.report.plots.scores import score_histogram_data as score_histogram_data
from innerloop.report.plots.scores import score_histogram_figure as score_histogram_figure
from innerloop.report.plots.style import figure_to_svg as figure_to_svg
from innerloop.report.plots.style import write_figures as write_figures
