"""What all sections of a recipe have in common, and the choices that several of them name.

Importing this file must not import torch, nor must any file of sections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, ValidatorFunctionWrapHandler, WrapValidator

from innerloop.core.importing import Trusted
from innerloop.experiment.recipe.rules import Ruled
from innerloop.learners.table import LEARNERS

if TYPE_CHECKING:  # type checkers cannot read the table
    Method: TypeAlias = str
else:
    Method = Literal[tuple(LEARNERS)]

Activation = Literal["relu", "tanh", "erf", "sigmoid", "softplus", "linear", "leaky_relu"]
Norm = Literal["transductive", "support", "running", "group", "none"]
LossName = Literal["mse", "half-mse", "half-sse", "cross-entropy", "cross-entropy-sum"]
Choice = Literal["any", "one-group", "across-groups"]


def _still_trusted(value: Any, read: ValidatorFunctionWrapHandler) -> str:
    text: str = read(value)
    return value if isinstance(value, Trusted) else text


CodeName = Annotated[str, WrapValidator(_still_trusted)]
"""Text that may name code. A :class:`~innerloop.core.importing.Trusted` name stays one."""


class Section(Ruled):
    """A part of a recipe: unknown keys are errors, values are not coerced across kinds."""

    model_config = ConfigDict(extra="forbid", validate_default=True, frozen=True)
