"""A scikit-learn-like front for people with pictures and labels."""

from innerloop.estimator.classifier import FewShotClassifier as FewShotClassifier
from innerloop.estimator.head import FewShotHead as FewShotHead
from innerloop.experiment.predicting.adapted import Prediction as Prediction
