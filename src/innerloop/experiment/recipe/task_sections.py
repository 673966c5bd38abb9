"""The sections of a recipe that say which pictures and which tasks."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from innerloop.experiment.recipe.section import Choice, CodeName, Section


class Kind(Section):
    """One kind of task in a mixture."""

    name: str = Field("", description="for reports")
    share: float = Field(1.0, gt=0, description="how often, relative to the other kinds")
    ways: int = Field(5, ge=2, description="classes per task")
    shots: int = Field(1, ge=1, description="support pictures per class")
    queries: int = Field(15, ge=1, description="query pictures per class")
    choice: Choice = Field("any", description="as tasks.choice")
    groups: list[str] = Field([], description="as tasks.groups")
    hard: bool = Field(False, description="whether outer.hard_weight weighs its tasks")


class Data(Section):
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


class Tasks(Section):
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
    mixture: list[Kind] = Field(
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
