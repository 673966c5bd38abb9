"""A scikit-learn-like front for people with pictures and labels."""

from innerloop.estimator.classifier import FewShotClassifier as FewShotClassifier
from innerloop.estimator.heads import Prediction as Prediction
