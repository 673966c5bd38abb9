"""Scoring learners and heads on held-out tasks, with intervals."""

from innerloop.evaluation.comparison import Comparison as Comparison
from innerloop.evaluation.comparison import compare as compare
from innerloop.evaluation.comparison import over_seeds as over_seeds
from innerloop.evaluation.evaluate import Evaluation as Evaluation
from innerloop.evaluation.evaluate import evaluate as evaluate
from innerloop.evaluation.frozen import evaluate_head as evaluate_head
from innerloop.evaluation.heads import HEADS as HEADS
from innerloop.evaluation.heads import fit_heads as fit_heads
from innerloop.evaluation.heads import head_scores as head_scores
from innerloop.evaluation.protocol import Protocol as Protocol
