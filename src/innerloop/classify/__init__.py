"""Your own pictures: from a few examples to labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.classify.backbone_evaluation import evaluate_backbone as evaluate_backbone
    from innerloop.classify.backbones import Backbone as Backbone
    from innerloop.classify.backbones import open_backbone as open_backbone
    from innerloop.classify.backbones import read_backbone as read_backbone
    from innerloop.classify.backbones import write_backbone as write_backbone
    from innerloop.classify.cross_validation import CurvePoint as CurvePoint
    from innerloop.classify.cross_validation import HeldOut as HeldOut
    from innerloop.classify.cross_validation import copies_of as copies_of
    from innerloop.classify.cross_validation import hold_out as hold_out
    from innerloop.classify.cross_validation import learning_curve as learning_curve
    from innerloop.classify.export import ExportResult as ExportResult
    from innerloop.classify.export import export_model as export_model
    from innerloop.classify.features import Features as Features
    from innerloop.classify.features import extract as extract
    from innerloop.classify.few_shot_classifier import FewShotClassifier as FewShotClassifier
    from innerloop.classify.few_shot_head import FewShotHead as FewShotHead
    from innerloop.classify.files import load_model as load_model
    from innerloop.classify.files import predictor_from as predictor_from
    from innerloop.classify.heads import HeadSettings as HeadSettings
    from innerloop.classify.predict import predict_pictures as predict_pictures
    from innerloop.classify.predictor import Prediction as Prediction
    from innerloop.classify.predictor import Predictor as Predictor
    from innerloop.classify.results import ClassesSummary as ClassesSummary
    from innerloop.classify.results import LabelledPicture as LabelledPicture
    from innerloop.classify.results import NetworkSummary as NetworkSummary
    from innerloop.classify.results import PredictResult as PredictResult
    from innerloop.classify.sureness import ExpectedAccuracy as ExpectedAccuracy
    from innerloop.classify.sureness import Novelty as Novelty
    from innerloop.classify.sureness import Sureness as Sureness
    from innerloop.classify.sureness import calibration_error as calibration_error
    from innerloop.classify.sureness import expected_accuracy as expected_accuracy
    from innerloop.classify.sureness import fitted_temperature as fitted_temperature
    from innerloop.classify.sureness import novelty_of as novelty_of
    from innerloop.classify.sureness import sureness_of as sureness_of
    from innerloop.core.preprocessing import Preprocessing as Preprocessing
    from innerloop.nets.pretrained import overlap as overlap
    from innerloop.runs.progress import TimeLeft as TimeLeft
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.classify.backbone_evaluation": "evaluate_backbone",
            "innerloop.classify.backbones": "Backbone open_backbone read_backbone write_backbone",
            "innerloop.classify.export": "ExportResult export_model",
            "innerloop.classify.features": "Features extract",
            "innerloop.classify.few_shot_classifier": "FewShotClassifier",
            "innerloop.classify.few_shot_head": "FewShotHead",
            "innerloop.classify.files": "load_model predictor_from",
            "innerloop.classify.cross_validation": "CurvePoint HeldOut copies_of hold_out learning_curve",
            "innerloop.classify.heads": "HeadSettings",
            "innerloop.classify.predict": "predict_pictures",
            "innerloop.classify.predictor": "Prediction Predictor",
            "innerloop.classify.results": "LabelledPicture ClassesSummary NetworkSummary PredictResult",
            "innerloop.classify.sureness": "ExpectedAccuracy Novelty Sureness calibration_error "
            "expected_accuracy fitted_temperature novelty_of sureness_of",
            "innerloop.core.preprocessing": "Preprocessing",
            "innerloop.nets.pretrained": "overlap",
            "innerloop.runs.progress": "TimeLeft",
        },
    )
