"""Scoring learners on held-out tasks, with intervals."""

from innerloop.evaluation.evaluate import Evaluation as Evaluation
from innerloop.evaluation.evaluate import evaluate as evaluate
