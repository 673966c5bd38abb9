"""From a recipe to a trained network: training, judging, predicting, and the runs that keep it all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.experiment.backbones import run_backbone as run_backbone
    from innerloop.experiment.experiment import Experiment as Experiment
    from innerloop.experiment.judged import AfterSteps as AfterSteps
    from innerloop.experiment.judged import Judged as Judged
    from innerloop.experiment.parts import Parts as Parts
    from innerloop.experiment.predicting.loading import load_model as load_model
    from innerloop.experiment.predicting.loading import predictor_from as predictor_from
    from innerloop.experiment.predicting.predict import predict_pictures as predict_pictures
    from innerloop.experiment.predicting.predictor import Predictor as Predictor
    from innerloop.experiment.predicting.told import LabelledPicture as LabelledPicture
    from innerloop.experiment.predicting.told import LearnedTold as LearnedTold
    from innerloop.experiment.predicting.told import NetworkTold as NetworkTold
    from innerloop.experiment.predicting.told import PredictResult as PredictResult
    from innerloop.experiment.results import TrainResult as TrainResult
    from innerloop.experiment.run import evaluate_run as evaluate_run
    from innerloop.experiment.run import resume as resume
    from innerloop.experiment.run import train as train
    from innerloop.experiment.sweeps.sweep import sweep as sweep
    from innerloop.experiment.sweeps.table import SweepResult as SweepResult
    from innerloop.experiment.sweeps.table import SweepRow as SweepRow
    from innerloop.experiment.takeaway.exporting import ExportResult as ExportResult
    from innerloop.experiment.takeaway.exporting import export_model as export_model
    from innerloop.experiment.trained import Run as Run
    from innerloop.experiment.trained import judge_backbone as judge_backbone
    from innerloop.experiment.trained import load as load
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.experiment.backbones": "run_backbone",
            "innerloop.experiment.experiment": "Experiment",
            "innerloop.experiment.judged": "AfterSteps Judged",
            "innerloop.experiment.parts": "Parts",
            "innerloop.experiment.predicting.loading": "load_model predictor_from",
            "innerloop.experiment.predicting.predict": "predict_pictures",
            "innerloop.experiment.predicting.told": "LabelledPicture LearnedTold NetworkTold PredictResult",
            "innerloop.experiment.predicting.predictor": "Predictor",
            "innerloop.experiment.results": "TrainResult",
            "innerloop.experiment.run": "evaluate_run resume train",
            "innerloop.experiment.sweeps.sweep": "sweep",
            "innerloop.experiment.sweeps.table": "SweepResult SweepRow",
            "innerloop.experiment.takeaway.exporting": "ExportResult export_model",
            "innerloop.experiment.trained": "Run judge_backbone load",
        },
    )
