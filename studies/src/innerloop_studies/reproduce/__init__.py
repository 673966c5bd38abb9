"""``innerloop reproduce``: the papers' tables and figures, one file per name.

A module ``innerloop_studies.papers.landscape.fig1`` (dashes become underscores) has
``run(scale, say) -> Reproduction``. It may keep finished parts under ``parts`` (a folder; see
:func:`innerloop_studies.reproduce.parts.remembered`) if it takes long.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, TypeAlias

from innerloop.core.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from innerloop_studies.reproduce.rows import Reproduction, Say

    Run: TypeAlias = Callable[[str, Say], Reproduction]

PAPERS = ("adaptlr", "bridge", "landscape", "metantk")
"""Rooms of `papers`: the first word of a name."""
SCALES = ("smoke", "cpu", "paper")
REPRODUCTIONS: dict[str, str] = {
    "adaptlr-fig1": "AdaptLR, Figures 1 and 7: the trajectory of w_m(α) and its distance to the task optima",
    "adaptlr-fig2": "AdaptLR, Figure 2: over-parametrised quadratic regression, loss against α, and H.15",
    "adaptlr-fig3": "AdaptLR, Figure 3: ANIL on Omniglot 20-way 1-shot, default rate against H.3 online",
    "adaptlr-fig4": "AdaptLR, Figure 4: α*_lim against the variance of the data",
    "adaptlr-fig5": "AdaptLR, Figure 5: MAML against ERM after t steps, in loss and in distance",
    "adaptlr-fig6": "AdaptLR, Figure 6 and Examples 1 and 2 (appendix E): α*_lim from moments, exactly",
    "adaptlr-fig8": "AdaptLR, Figure 8: |α*(N) − α*_lim| against the number of tasks",
    "adaptlr-fig9": "AdaptLR, Figure 9: α*_lim against the optimum for four pairs of distributions",
    "adaptlr-fig10": "AdaptLR, Figure 10: the heuristic range for networks against trained ones",
    "adaptlr-fig11": "AdaptLR, Figure 11: Bernacchia's mixed linear regression, same or fixed rates",
    "adaptlr-fig12": "AdaptLR, Figure 12: deep quadratic regression, is the best rate positive?",
    "adaptlr-proposition1": "AdaptLR, Proposition 1: the gap of the population risk to its mean, against N",
    "adaptlr-statements": "AdaptLR, statements without a figure: corollaries, Theorem 2, H.15, H.18, H.19",
    "adaptlr-table2": "AdaptLR, Table 2: one step of the last layer on sinusoids, eleven rates",
    "advice-hardness": "innerloop advise: is the ranking of hard groups that of trained networks? (ours)",
    "advice-landscape": "innerloop advise: is the predicted gain that of trained linear models? (ours)",
    "advice-numbers": "innerloop advise on regression: the first choice of a short race (ours)",
    "advice-race": "innerloop advise: the first choice of a short race against long training (ours)",
    "rate-regret": "inner.lr=auto against the best of eight fixed rates on Quick Draw and CIFAR-FS (ours)",
    "rate-unseen": "inner.lr=auto on Omniglot and Tiny-ImageNet, which no rule was chosen on (ours)",
    "bridge-fig1": "Bridge, Figure 1: the gap of ANIL's and MTL's predictions against depth and λτ",
    "bridge-frozen": "Bridge, eq. 5: ANIL with a head that the outer loop never updates",
    "bridge-spectra": "Bridge, Lemmas 4 and 5: spectra of deep kernels, and the gap of their inverses",
    "bridge-agreement": "Bridge, Theorem 1 on trained networks: ANIL against MTL beside two seeds of one",
    "bridge-convergence": "Bridge, Theorem 3: losses of ANIL and MTL under their bounds (eqs. 29 to 31)",
    "bridge-objectives": "Bridge, §4.2: the objectives of MTL and of meta-learners, and their gradients",
    "bridge-table3": "Bridge, Table 3: multi-task learning beside six meta-learners, on CIFAR-FS and FC100",
    "bridge-table4": "Bridge, Table 4: multi-task learning's accuracy and training time against MetaOptNet's",
    "bridge-fig2": "Bridge, Figure 2: multi-task learning's accuracy against its cost, by batch and epochs",
    "bridge-table5": "Bridge, Table 5: the penalty of the last layer at test; footnote 5 on features",
    "landscape-fig1": "Landscape, Figure 1: four environments, where NAL and MAML start, and the gain",
    "landscape-fig2": "Landscape, Figures 2 and 7: coordinates and excess risks against ρ_H",
    "landscape-fig3": "Landscape, Figure 3: excess risks against R for scattered and packed hard tasks",
    "landscape-fig4": "Landscape, Figures 4, 5 and 6: loss landscapes of neurons, before and after a step",
    "landscape-fig8": "Landscape, Figure 8: logistic regression against ρ_H",
    "landscape-table1": "Landscape, Tables 1 and 4: Omniglot, easy and hard alphabets",
    "landscape-table2": "Landscape, Tables 2 and 5: FS-CIFAR100, oversampling hard tasks",
    "landscape-table3": "Landscape, Table 3: up-weighting hard tasks",
    "landscape-hard-share": "Hard alphabets and superclasses more often, or with more weight (ours)",
    "landscape-proposition1": "Landscape, Proposition 1, Corollaries 1 and 2, Remark 1 (§3): simulated steps",
    "landscape-theorem1": "Landscape, Theorem 1: whose gradient is smaller where MAML ends",
    "landscape-theorem2": "Landscape, Theorem 2 (App. D): NAL on finite samples, slopes in T, n and d",
    "landscape-theorem3": "Landscape, Theorem 3 (App. D): MAML on finite samples, slopes in T, τ and n",
    "maml-permutations": "Ye & Chao 2021: MAML's accuracy against the order of a task's labels",
    "metantk-convergence": "MetaNTK, Theorem 1: MAML's loss and its bound, movement and drift against width",
    "metantk-regression": "MetaNTK, Theorem 2: trained wide networks against kernel predictions",
    "metantk-table1": "MetaNTK-NAS, Table 1: found cells beside MetaNAS' cell and ResNet-12, trained alike",
    "metantk-table2": "MetaNTK-NAS, Table 2: cells found by MetaNTK, NTK, linear regions, chance, and size",
    "metantk-fig2": "MetaNTK-NAS, Figure 2: found cells, drawn; how alike independent searches are",
}
"""Names and what they redo. Nothing here imports torch."""


def check(name: str, scale: str = SCALES[0]) -> None:
    """Complains about a name or a scale that there is not."""
    if name not in REPRODUCTIONS:
        hint = did_you_mean(name, REPRODUCTIONS)
        raise UserError(f"there is no reproduction '{name}'{hint}: `innerloop reproduce ls` lists them.")
    if scale not in SCALES:
        raise UserError(f"there is no scale '{scale}'{did_you_mean(scale, SCALES)}: {', '.join(SCALES)}.")


def find(name: str) -> Run:
    """The function that redoes it: ``(scale, say) -> Reproduction``."""
    check(name)
    run: Run = import_module(module_name(name)).run
    return run


def module_name(name: str) -> str:
    """Where a reproduction is: in the room of its paper, or among those that belong to none of the four.

    >>> module_name("landscape-fig1")
    'innerloop_studies.papers.landscape.fig1'
    >>> module_name("rate-regret")
    'innerloop_studies.papers.further.rate_regret'
    """
    paper, _, rest = name.partition("-")
    room, file = (paper, rest) if paper in PAPERS else ("further", name)
    return f"innerloop_studies.papers.{room}.{file.replace('-', '_')}"


def made_by(name: str) -> dict[str, object]:
    """What the numbers of a reproduction depend on: which version of it, and which torch."""
    check(name)
    return {"version": 1, "torch": version("torch")}
