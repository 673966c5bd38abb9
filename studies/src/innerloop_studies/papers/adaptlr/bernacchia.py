"""What AdaptLR takes from Bernacchia (2021): settings of his Figure 2, and a range of training rates."""

from typing import Any, NamedTuple

from torch import Tensor

from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.theory.rate.forms import minimise

_FAMILY = {"family": "bernacchia-quadratic", "settings": {"dim": 1, "sigma": 1.0, "nu": 0.5, "mean": 0.0}}
TASKS = 3
QUADRATIC: dict[str, Any] = {
    "tasks": {**_FAMILY, "shots": 30, "queries": 2},
    "model": {"hidden": [60]},
    "inner": {"loss": "half-mse"},
    "outer": {"batch": TASKS},
    "eval": {"shots": 20, "queries": 50},
}
STATED = {
    "tasks": "his quadratic family, σ = 1, ν = 0.5, w₀ = 0; p = 1: 30,001 parameters of 10,000 units leave "
    "no other",
    "samples": "n_t = 30, n_v = 2; in tests n_r = 20 and 50 to judge on",
    "tasks per meta-step": f"{TASKS} (m), drawn anew",
    "net": "1-60-1, ReLU",
    "convention": "½ · mean, as Bernacchia",
    "source": "numbers of his Figure 2; AdaptLR prints none for networks, and his for them are not at hand",
}
"""For protocols."""


def maml_recipe(name: str, setting: dict[str, Any], inner: Any, steps: int, episodes: int) -> Recipe:
    """MAML in such a setting, the rest of its inner loop in ``inner``."""
    own = {
        "name": name,
        "inner": {"method": "maml", **setting["inner"], **inner},
        "outer": {**setting["outer"], "steps": steps, "clip": 10.0},
        "eval": {**setting["eval"], "episodes": episodes},
    }
    return make_recipe({**setting, **own})


class Excess(NamedTuple):
    r"""What the training rate does to :math:`E\|w_m - w_0\|^2` to first order in 1/m, under-parametrised.

    .. math:: \frac1{m\,n_v^2h^2}\Big(\frac{\nu^2}p E\operatorname{tr}(B^\top B)^2
        + \sigma^2 E\operatorname{tr} B^\top(I + \tfrac{\alpha^2}{n_t^2}X_vS_uX_v^\top)B\Big),
        \qquad B = X_v(I - \tfrac\alpha{n_t}S_u),\; h = \tfrac1pE\operatorname{tr}(I - \tfrac\alpha{n_t}S_u)^2

    for standard normal inputs, the expectation over :math:`X_v` taken in closed form.
    """

    values: Tensor
    queries: int
    shots: int

    def spread(self, rate: float) -> float:
        """The factor of ν², up to m: least at 0, where every task weighs all directions alike."""
        a = (1 - rate * self.values).square()
        n, p = self.queries, a.shape[1]
        fourth = (n + 1) * a.square().sum(1) + a.sum(1).square()
        return float(fourth.mean() / (n * p * a.mean() ** 2))

    def noise(self, rate: float) -> float:
        """The factor of σ², up to m."""
        a, n = (1 - rate * self.values).square(), self.queries
        own = rate**2 / self.shots * ((n + 1) * (a * self.values).sum(1) + self.values.sum(1) * a.sum(1))
        return float((a.sum(1) + own).mean() / (n * a.mean() ** 2))

    def least(self, nu: float, sigma: float, low: float = -2.0, high: float = 1.0) -> float:
        """The training rate with the least excess."""
        return minimise(lambda rate: nu**2 * self.spread(rate) + sigma**2 * self.noise(rate), low, high)
