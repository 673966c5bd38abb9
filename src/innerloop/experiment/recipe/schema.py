"""What a recipe may say: one typed section per concern. Only this room reads configuration.

Importing this file must not import torch: ``innerloop ls`` and ``--help`` stay quick.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from innerloop.experiment.recipe.learning_sections import Inner as Inner
from innerloop.experiment.recipe.learning_sections import Model as Model
from innerloop.experiment.recipe.learning_sections import Outer as Outer
from innerloop.experiment.recipe.rules import RECIPE_RULES, Rules
from innerloop.experiment.recipe.section import LossName as LossName
from innerloop.experiment.recipe.section import Section
from innerloop.experiment.recipe.task_sections import Data as Data
from innerloop.experiment.recipe.task_sections import Kind as Kind
from innerloop.experiment.recipe.task_sections import Tasks as Tasks


class Eval(Section):
    """How the result is judged."""

    episodes: int = Field(600, ge=1, description="held-out tasks")
    every: int = Field(0, ge=0, description="validate every so many steps; 0 means ten times a run")
    validation_episodes: int = Field(100, ge=1, description="tasks per validation")
    patience: int | None = Field(
        None, ge=1, description="stop after this many validations without improvement"
    )
    seed: int = Field(
        0, ge=0, description="seed of the held-out tasks (apart from run.seed: runs are comparable)"
    )
    ways: int | None = Field(None, ge=2, description="few-shot: ways in evaluation; none means tasks.ways")
    shots: int | None = Field(None, ge=1, description="shots in evaluation; none means tasks.shots")
    queries: int | None = Field(None, ge=1, description="queries in evaluation; none means tasks.queries")
    head: Literal["learner", "logistic", "svm", "svc", "ridge", "centroid", "cosine", "finetune"] = Field(
        "learner",
        description="pictures: adapt as inner.method says, or fit this head on frozen features; "
        "finetune: Adam on the whole network",
    )
    C: float = Field(1.0, gt=0, description="heads logistic, svm, svc and ridge: inverse penalty")
    normalise_features: bool = Field(True, description="heads: divide features by their norm")
    C_grid: list[float] = Field(
        [],
        description="heads: also judge these inverse penalties on the same tasks, each with and without "
        "normalised features",
    )
    ensemble: bool = Field(
        False,
        description="heads: label by the mean of probabilities over eval.C_grid (none given: 0.01 … 100), "
        "with and without normalised features; for want of validation classes",
    )
    copies: int = Field(
        0, ge=0, description="heads: this many augmented copies in place of each support picture (RFS: 5)"
    )
    head_lr: float = Field(1e-3, gt=0, description="head finetune: Adam's rate")
    head_steps: int = Field(10, ge=0, description="head finetune: Adam's steps")
    label_orders: int = Field(
        1,
        ge=1,
        description="in tests, average predictions over this many orders of the labels (as many as classes: "
        "each class takes each place once)",
    )
    weights: Literal["best", "last"] = Field(
        "best", description="judge the best weights by validation, or the last"
    )
    curve: bool = Field(
        True, description="also score after every number of inner steps up to inner.test_steps"
    )
    baselines: bool = Field(
        True, description="pictures: also judge what needs no training, on the first 200 of the test tasks"
    )
    predictions: int = Field(
        100,
        ge=0,
        le=1000,
        description="pictures: keep the labels that were given in the first test tasks, for the run's page; "
        "0 keeps none",
    )


class Run(Section):
    """Where and how it runs."""

    seed: int = Field(0, ge=0, description="one seed for initialisation and training tasks (short: seed=)")
    device: str = Field("cpu", description="cpu, cuda, mps, another torch device, or auto: what there is")
    ranks: int = Field(1, ge=1, le=1024, description="processes of this machine that share a run's tasks")
    rank_timeout: float = Field(
        600.0, gt=0, description="seconds after which a rank that does not answer is given up"
    )
    dtype: Literal["float32", "float64"] = Field("float32", description="floating point type")
    bfloat16: bool = Field(
        False, description="compute in bfloat16 where it is safe; weights stay as they are"
    )
    execution: Literal["auto", "vmap", "threads", "processes", "loop"] = Field(
        "auto", description="how tasks are mapped"
    )
    compile: Literal["auto", "off", "trace", "full"] = Field(
        "auto", description="full needs a C++ compiler; trace captures the graph without one"
    )
    chunk: int | None = Field(None, ge=1, description="tasks at a time under vmap, to bound memory")
    threads: int | None = Field(None, ge=1, description="cores to use; none means all")
    log_every: int = Field(100, ge=1, description="steps between lines of metrics.jsonl")
    save_every: int = Field(1000, ge=1, description="steps between checkpoints; also every three minutes")
    folder: str = Field("runs", description="run directories are made in here")
    tensorboard: bool = Field(False, description="also write TensorBoard events (extra: tensorboard)")
    track: Literal["none", "trackio", "wandb"] = Field(
        "none",
        description="also track the run by trackio or Weights & Biases, offline (extras: trackio, wandb)",
    )
    project: str = Field(
        "innerloop", min_length=1, description="the project that run.track files the run under"
    )


class Recipe(Section):
    """A complete recipe.

    Training it again repeats the run. What fits together is in ``experiment/recipe/rules.py``.
    """

    RULES: ClassVar[Rules] = RECIPE_RULES

    name: str = Field("unnamed", description="names the folder of its runs")
    description: str = Field("", description="one line for `innerloop ls`")
    data: Data = Data()
    tasks: Tasks = Tasks()
    model: Model = Model()
    inner: Inner = Inner()
    outer: Outer = Outer()
    eval: Eval = Eval()
    run: Run = Run()
