"""Your own pictures: from a few examples to labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.classify.estimator.classifier import FewShotClassifier as FewShotClassifier
    from innerloop.classify.estimator.head import FewShotHead as FewShotHead
    from innerloop.classify.features.backbone import Backbone as Backbone
    from innerloop.classify.features.extracting import Features as Features
    from innerloop.classify.features.extracting import extract as extract
    from innerloop.classify.features.files import read_backbone as read_backbone
    from innerloop.classify.features.files import write_backbone as write_backbone
    from innerloop.classify.features.opening import open_backbone as open_backbone
    from innerloop.classify.features.overlap import overlap as overlap
    from innerloop.classify.features.progress import TimeLeft as TimeLeft
    from innerloop.classify.predicting.adapted import Prediction as Prediction
    from innerloop.classify.predicting.loading import load_model as load_model
    from innerloop.classify.predicting.loading import predictor_from as predictor_from
    from innerloop.classify.predicting.predict import predict_pictures as predict_pictures
    from innerloop.classify.predicting.predictor import Predictor as Predictor
    from innerloop.classify.predicting.told import LabelledPicture as LabelledPicture
    from innerloop.classify.predicting.told import LearnedTold as LearnedTold
    from innerloop.classify.predicting.told import NetworkTold as NetworkTold
    from innerloop.classify.predicting.told import PredictResult as PredictResult
    from innerloop.classify.pretrained import evaluate_backbone as evaluate_backbone
    from innerloop.classify.takeaway.exporting import ExportResult as ExportResult
    from innerloop.classify.takeaway.exporting import export_model as export_model
    from innerloop.core.preprocessing import Preprocessing as Preprocessing
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.classify.estimator.classifier": "FewShotClassifier",
            "innerloop.classify.estimator.head": "FewShotHead",
            "innerloop.classify.features.backbone": "Backbone",
            "innerloop.classify.features.extracting": "Features extract",
            "innerloop.classify.features.files": "read_backbone write_backbone",
            "innerloop.classify.features.opening": "open_backbone",
            "innerloop.classify.features.overlap": "overlap",
            "innerloop.classify.features.progress": "TimeLeft",
            "innerloop.classify.predicting.adapted": "Prediction",
            "innerloop.classify.predicting.loading": "load_model predictor_from",
            "innerloop.classify.predicting.predict": "predict_pictures",
            "innerloop.classify.predicting.predictor": "Predictor",
            "innerloop.classify.predicting.told": "LabelledPicture LearnedTold NetworkTold PredictResult",
            "innerloop.classify.pretrained": "evaluate_backbone",
            "innerloop.core.preprocessing": "Preprocessing",
            "innerloop.classify.takeaway.exporting": "ExportResult export_model",
        },
    )
