"""The sections of a recipe that say which network learns, in the inner and in the outer loop."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from innerloop.experiment.recipe.section import Activation, CodeName, LossName, Method, Norm, Section


class Model(Section):
    """Which network, and how it starts."""

    kind: CodeName = Field(
        "mlp",
        description="mlp, conv4, convnet, cells, r2d2-conv, resnet12, resnet12-thin, wrn-28-10, "
        "efficientnet-lite0 … lite4, timm:NAME, hf:NAME-or-FOLDER, or package.module:factory of your own",
    )
    hidden: list[int] = Field([40, 40], description="mlp: width of each hidden layer")
    activation: Activation = Field("relu", description="mlp: nonlinearity")
    parametrisation: Literal["standard", "ntk"] = Field(
        "standard", description="mlp: NTK scales weights at use"
    )
    bias: bool = Field(True, description="whether layers have biases")
    weight_var: float | None = Field(
        None,
        gt=0,
        description="mlp: variance of first weights times inputs; none means 2 for ReLU (He), else 1",
    )
    outputs: int | None = Field(None, ge=1, description="outputs; none means as many as the tasks ask for")
    filters: int = Field(32, ge=1, description="conv4: channels of every block")
    pooling: Literal["max", "stride"] = Field(
        "max", description="conv4: halve by pooling or by strided convolution"
    )
    norm: Norm = Field(
        "transductive", description="whose statistics normalise: part of every reported number"
    )
    head: str | None = Field(
        None, description="own module: name of its last layer, for ANIL, BOIL and per-task heads"
    )
    last_layer: Literal["linear", "normalised", "cosine"] = Field(
        "linear",
        description="how the last layer reads features: as they are, at length one, or by their angle",
    )
    cosine_scale: float = Field(10.0, gt=0, description="last_layer=cosine: factor on the cosines")
    settings: dict[str, Any] = Field(
        {},
        description="other networks: their own settings (docs/backbones.md, docs/search.md); "
        "own module: keyword arguments of the factory",
    )
    init: str | None = Field(
        None,
        description="start from a run directory, a .safetensors file, or the published weights (pretrained: "
        "efficientnet-lite0 … lite4)",
    )


class Inner(Section):
    """What happens inside a task."""

    method: Method = Field(
        "maml", description="none: predict without adapting; maml-lslr: learned rate per layer and step"
    )
    lr: float | Literal["auto"] = Field(
        0.01, description="inner learning rate, under inner.loss's convention; auto estimates it first"
    )
    online: Literal["off", "h3", "h15", "trace"] = Field(
        "off",
        description="anil: let the rate follow the features in training (h3, h15: as AdaptLR; it drifts)",
    )
    steps: int = Field(1, ge=0, description="inner steps in training")
    test_steps: int | None = Field(
        None, ge=0, description="inner steps in evaluation; none means inner.steps"
    )
    optimiser: Literal["sgd", "momentum", "adam"] = Field("sgd", description="inner update rule")
    momentum: float = Field(0.9, ge=0, lt=1, description="for inner.optimiser=momentum")
    loss: LossName = Field("mse", description="inner loss; its convention gives inner.lr its meaning")
    truncate: int | None = Field(
        None, ge=0, description="differentiate through only this many of the last steps"
    )
    checkpoint: bool = Field(False, description="keep no graph of inner steps, recompute them (less memory)")
    head_start: Literal["learned", "frozen", "one-vector", "zero"] = Field(
        "learned",
        description="the last layer before inner steps: trained, as it was drawn, one trained row for all "
        "classes (UNICORN-MAML), or zero",
    )
    split: bool = Field(True, description="judge on query samples; false: adapt to and judge on all samples")
    settings: dict[str, Any] = Field(
        {}, description="the learner's own settings, for those that have some (docs/taxonomy.md)"
    )


class Outer(Section):
    """What is learned across tasks."""

    objective: Literal["episodic", "multitask", "erm", "reptile", "none"] = Field(
        "episodic",
        description="episodic: through the inner loop; multitask: one head per task; erm: no adaptation; "
        "none: train nothing, judge pretrained weights",
    )
    heads: Literal["shared", "independent", "released"] = Field(
        "independent",
        description="multitask: do all heads start from one draw or from one each; released: class rows "
        "without bias, scaled as in Bridge's code",
    )
    teacher: str | None = Field(
        None, description="erm: a finished run whose predictions are learned too (self-distillation)"
    )
    label_weight: float = Field(0.5, ge=0, description="with a teacher: weight of the loss on the labels")
    teacher_weight: float = Field(
        0.5, ge=0, description="with a teacher: weight of the divergence from its predictions"
    )
    temperature: float = Field(4.0, gt=0, description="with a teacher: what both outputs are divided by")
    loss: LossName | None = Field(None, description="outer loss; none means inner.loss")
    steps: int = Field(10_000, ge=1, description="meta-steps")
    batch: int = Field(25, ge=1, description="tasks per meta-step")
    optimiser: str = Field("adam", description="any class of torch.optim: adam, radam, sgd, adamw, …")
    lr: float = Field(1e-3, gt=0, description="meta learning rate")
    options: dict[str, Any] = Field(
        {}, description="further arguments of the optimiser, such as weight_decay"
    )
    schedule: Literal["constant", "cosine", "step", "plateau"] = Field(
        "constant", description="how outer.lr moves"
    )
    milestones: list[float] = Field([0.5, 0.75], description="schedule=step: fractions of the run")
    factor: float = Field(0.1, gt=0, lt=1, description="schedule=step and plateau: multiply the rate by this")
    factors: list[float] = Field(
        [], description="schedule=step: shares of outer.lr after each milestone, in place of outer.factor"
    )
    plateau_patience: int = Field(4, ge=1, description="schedule=plateau: validations without improvement")
    warmup: int = Field(0, ge=0, description="steps over which the rate rises linearly from zero")
    clip: float | None = Field(None, gt=0, description="clip the meta-gradient to this norm")
    hard_weight: float = Field(
        1.0,
        gt=0,
        description="few-shot: weight of hard tasks against others, normalised in each batch (Landscape's ζ)",
    )
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="cross-entropy: this share of a label goes to the other classes, evenly"
    )
