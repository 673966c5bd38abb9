"""Classifiers in the manner of scikit-learn, for people with pictures or features and a few labels."""

from innerloop.estimator.classifier import FewShotClassifier as FewShotClassifier
from innerloop.estimator.head import FewShotHead as FewShotHead
from innerloop.experiment.predicting.adapted import Prediction as Prediction
