"""What a recipe may say: one typed section per concern. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import (
    ConfigDict,
    Field,
    SerializeAsAny,
    StringConstraints,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from innerloop.core.importing import Trusted
from innerloop.experiment.recipe.rules import RECIPE_RULES, WITHOUT_RULES, Ruled, Rules
from innerloop.learners.table import LEARNERS, OUTSIDE, SETTINGS_OF

Activation = Literal["relu", "tanh", "erf", "sigmoid", "softplus", "linear", "leaky_relu"]
Norm = Literal["transductive", "support", "running", "group", "none"]
LossName = Literal["mse", "half-mse", "half-sse", "cross-entropy", "cross-entropy-sum"]
Choice = Literal["any", "one-group", "across-groups"]


def _still_trusted(value: Any, read: ValidatorFunctionWrapHandler) -> str:
    text: str = read(value)
    return value if isinstance(value, Trusted) else text


CodeName = Annotated[str, WrapValidator(_still_trusted)]
"""Text that may name code. A :class:`~innerloop.core.importing.Trusted` name stays one."""

if TYPE_CHECKING:  # type checkers cannot read the table
    Method: TypeAlias = str
else:
    Own = Annotated[str, StringConstraints(pattern=r"^[\w.]+:\w+$"), WrapValidator(_still_trusted)]
    Method = Literal[tuple(LEARNERS)] | Own


class Section(Ruled):
    """A part of a recipe: unknown keys are errors; a variant has the settings of a method or network."""

    # a setting that a variant has not is no field: it can be read, has its default, and cannot be set

    model_config = ConfigDict(extra="forbid", validate_default=True, frozen=True)
    DECLARED: ClassVar[type[Section] | None] = None

    def __reduce__(self) -> tuple[Any, ...]:  # variants have no name to be found by
        return _section, (self.DECLARED or type(self), frozenset(type(self).model_fields), self.__dict__)


@cache
def variant(section: type[Section], names: frozenset[str]) -> type[Section]:
    """The section with some of its settings only; the others are constants of the class, their defaults."""
    absent = {name: field.default for name, field in section.model_fields.items() if name not in names}
    if not absent:
        return section
    constants = {"__annotations__": dict.fromkeys(absent, ClassVar[Any]), **absent, "DECLARED": section}
    about = {"__module__": section.__module__, "__doc__": section.__doc__}
    made: type[Section] = type(Section)(section.__name__, (section,), {**about, **constants})  # type: ignore[misc]
    return made


def _section(declared: type[Section], names: frozenset[str], values: Mapping[str, Any]) -> Section:
    return variant(declared, names).model_construct(**values)


class KindSettings(Section):
    """One kind of task in a mixture."""

    name: str = Field("", description="for reports")
    share: float = Field(1.0, gt=0, description="how often, relative to the other kinds")
    ways: int = Field(5, ge=2, description="classes per task")
    shots: int = Field(1, ge=1, description="support pictures per class")
    queries: int = Field(15, ge=1, description="query pictures per class")
    choice: Choice = Field("any", description="as tasks.choice")
    groups: list[str] = Field([], description="as tasks.groups")
    hard: bool = Field(False, description="whether outer.hard_weight weighs its tasks")


class DataSettings(Section):
    """Which pictures, for tasks.family few-shot and supervised."""

    name: str = Field(
        "glyphs", description="a dataset of `innerloop data ls`, a folder of class folders, or a .npz"
    )
    auto: bool = Field(
        False,
        description="fit what is not given (ways, shots, queries, size, colour) to the pictures of data.name "
        "when the recipe is loaded: recipes pictures-*",
    )
    splits: str | None = Field(
        None,
        description="which published split (omniglot: vinyals or alphabet); all takes all classes as one, "
        "test tests on all",
    )
    colour: Literal["auto", "grey", "rgb"] = Field("auto", description="as the pictures are, or made so")
    size: int | None = Field(None, ge=8, description="own pictures: side in pixels; none means as they are")
    split_file: str | None = Field(
        None, description="own pictures: json or csv that says which class is in which split"
    )
    on_bad: Literal["refuse", "skip"] = Field(
        "refuse",
        description="own pictures: what to do with damaged files, videos and pictures of several classes",
    )
    leave_out: int = Field(
        0, ge=0, description="own pictures: leave out classes with fewer pictures than this"
    )
    rotations: bool = Field(False, description="turns by 90, 180 and 270 degrees are classes of their own")
    augment: Literal["none", "lee2019"] = Field(
        "none", description="pad-crop, flip and colour jitter in training"
    )
    standardise: bool = Field(
        False, description="subtract mean and divide by deviation of the training pictures"
    )


class TaskSettings(Section):
    """Where tasks come from."""

    family: CodeName = Field(
        "sine", description="a built-in family, few-shot, supervised, or package.module:function of your own"
    )
    ways: int = Field(5, ge=2, description="few-shot: classes per task")
    shots: int = Field(10, ge=1, description="support samples per task (few-shot: per class)")
    queries: int = Field(10, ge=1, description="query samples per task (few-shot: per class)")
    choice: Choice = Field(
        "any", description="few-shot: any classes, all from one group (alphabet), or across groups"
    )
    groups: list[str] = Field([], description="few-shot: groups to draw from; empty means all of the split")
    balanced: bool = Field(
        True, description="few-shot: false draws unequal shots per class with the same total"
    )
    mixture: list[KindSettings] = Field(
        [], description="few-shot: several kinds of tasks with their shares, instead of one"
    )
    hard_share: float | None = Field(
        None,
        ge=0,
        le=1,
        description="few-shot: share of training tasks from hard groups; none means as often as they come",
    )
    hard_groups: list[str] = Field(
        [], description="few-shot: groups whose tasks are hard; empty means those measured as hardest"
    )
    hardest: int = Field(
        5, ge=1, description="few-shot: how many groups of the training split are hard where none are named"
    )
    minibatch: int = Field(64, ge=1, description="supervised: pictures per step")
    n_tasks: int | None = Field(
        None, ge=1, description="how many training tasks; none means new ones for ever"
    )
    resample: bool = Field(True, description="with n_tasks: draw new samples at every visit of a task")
    noise: float = Field(0.0, ge=0, description="standard deviation of noise added to the targets")
    settings: dict[str, Any] = Field({}, description="the family's own settings, such as dim or ranges")


class ModelSettings(Section):
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


class InnerSettings(Section):
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


class OuterSettings(Section):
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


class EvalSettings(Section):
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


class RunSettings(Section):
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
    compile: Literal["auto", "off", "trace", "full", "native"] = Field(
        "auto",
        description="trace captures the graph; full and native (Conv4, steps of mlp) need a C++ compiler",
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


_PICTURES = " ".join(
    [
        *(f"data.{name}" for name in DataSettings.model_fields),
        "tasks.ways tasks.choice tasks.groups tasks.balanced tasks.mixture",
        "eval.ways eval.baselines eval.predictions",
    ]
)
_FEATURES = "eval.normalise_features eval.C_grid eval.ensemble eval.copies"
_CLASSIFIER = f"eval.C {_FEATURES}"
OTHER = ""
"""Any other value of a tag, such as the name of code."""

UNIONS: dict[str, dict[str, str]] = {
    "tasks.family": {
        "few-shot": f"{_PICTURES} tasks.hard_share tasks.hard_groups tasks.hardest outer.hard_weight",
        "supervised": f"{_PICTURES} tasks.minibatch",
        OTHER: "tasks.n_tasks tasks.resample tasks.noise tasks.settings",
    },
    "model.kind": {
        "mlp": "model.hidden model.activation model.parametrisation model.weight_var model.bias",
        "conv4": "model.filters model.pooling model.bias model.norm model.head",
        OTHER: "model.norm model.head model.settings",
    },
    "model.last_layer": {"cosine": "model.cosine_scale"},
    "inner.method": {
        **{
            name: " ".join(
                [*(SETTINGS_OF[each] for each in entry.reads), "inner.settings" if entry.settings else ""]
            )
            for name, entry in LEARNERS.items()
        },
        OTHER: " ".join([*(SETTINGS_OF[each] for each in OUTSIDE.reads), "inner.settings"]),
    },
    "inner.optimiser": {"momentum": "inner.momentum"},
    "outer.objective": {
        "episodic": "inner.split",
        "multitask": "outer.heads",
        "erm": "outer.teacher outer.label_weight outer.teacher_weight outer.temperature",
    },
    "outer.schedule": {
        "step": "outer.milestones outer.factor outer.factors",
        "plateau": "outer.factor outer.plateau_patience",
    },
    "eval.head": {
        "learner": "eval.label_orders",
        **dict.fromkeys(("logistic", "svm", "svc", "ridge"), _CLASSIFIER),
        **dict.fromkeys(("centroid", "cosine"), _FEATURES),
        "finetune": f"{_FEATURES} eval.head_lr eval.head_steps",
    },
    "run.execution": {"auto": "run.chunk", "vmap": "run.chunk"},
    "run.track": {"trackio": "run.project", "wandb": "run.project"},
}
"""Tags, and the settings that each of their values has. A setting that no tag lists is always there; one that
several list is there where all of them have it."""
_LISTED = {tag: {key for keys in values.values() for key in keys.split()} for tag, values in UNIONS.items()}
_OTHERS = {
    "tasks.family": "families of functions",
    "model.kind": "other networks",
    "inner.method": "own code",
}


def _value(recipe: Recipe, tag: str) -> Any:
    section, _, name = tag.partition(".")
    return getattr(getattr(recipe, section), name)


def _has(recipe: Recipe, tag: str) -> set[str]:
    """What the value that a recipe gives a tag has."""
    return set(UNIONS[tag].get(_value(recipe, tag), UNIONS[tag].get(OTHER, "")).split())


def absent(recipe: Recipe, keys: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Settings that a recipe has not: the tag that is why, and what they are for."""
    found: dict[str, tuple[str, str]] = {}
    for tag, listed in _LISTED.items():
        for key in [key for key in keys if key in listed - _has(recipe, tag) and key not in found]:
            values = [value for value, has in UNIONS[tag].items() if key in has.split()]
            words = f"{tag}={' or '.join(value for value in values if value)}" if any(values) else ""
            more = [_OTHERS[tag]] if OTHER in values else []
            found[key] = (tag, ", and ".join([*([words] if words else []), *more]))
    return found


class Recipe(Section):
    """A complete recipe.

    Training it again repeats the run. What fits together is in ``experiment/recipe/rules.py``.
    """

    RULES: ClassVar[Rules] = RECIPE_RULES

    name: str = Field("unnamed", description="names the folder of its runs")
    description: str = Field("", description="one line for `innerloop ls`")
    data: SerializeAsAny[DataSettings] = DataSettings()
    tasks: SerializeAsAny[TaskSettings] = TaskSettings()
    model: SerializeAsAny[ModelSettings] = ModelSettings()
    inner: SerializeAsAny[InnerSettings] = InnerSettings()
    outer: SerializeAsAny[OuterSettings] = OuterSettings()
    eval: SerializeAsAny[EvalSettings] = EvalSettings()
    run: SerializeAsAny[RunSettings] = RunSettings()

    @model_validator(mode="after")
    def _has_its_own_settings(self, info: ValidationInfo) -> Self:
        given = [f"{name}.{key}" for name in _SECTIONS for key in getattr(self, name).model_fields_set]
        if info.context != WITHOUT_RULES and (wrong := absent(self, given)):
            raise ValueError("\n".join(unknown(self, key) for key in wrong))
        return self._with_variants()

    def _with_variants(self) -> Self:
        """Every section as the tags say: with the settings that there are."""
        out = set().union(*(listed - _has(self, tag) for tag, listed in _LISTED.items()))
        for name, declared in _SECTIONS.items():
            section = getattr(self, name)
            names = frozenset(key for key in declared.model_fields if f"{name}.{key}" not in out)
            if type(section) is not variant(declared, names):
                self.__dict__[name] = _section(declared, names, {key: getattr(section, key) for key in names})
        return self

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As of pydantic; a section that was changed gets the settings that its new tags have."""
        return super().model_copy(update=update, deep=deep)._with_variants()


_SECTIONS: dict[str, type[Section]] = {
    name: field.annotation
    for name, field in Recipe.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}


def unknown(recipe: Recipe, key: str) -> str:
    """What is said of a setting that a recipe's method, network, … has not."""
    tag, words = absent(recipe, [key])[key]
    leaf = key.partition(".")[2]
    named_alike = [f"{each}.{leaf}" for each, declared in _SECTIONS.items() if leaf in declared.model_fields]
    near = [each for each in named_alike if leaf != "settings" and not absent(recipe, [each])]
    hint = f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""
    return f"unknown setting '{key}' with {tag}={_value(recipe, tag)}{hint}: it is for {words}."
