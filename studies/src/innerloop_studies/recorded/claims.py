"""What the four abstracts claim, and which recorded statements decide it.

A claim names studies, and patterns of the statements that decide it (``what`` of their rows). ``short_of``
says what the recorded setting lacks of the paper's; it is None where the setting is the paper's, is more
favourable to the claim, or has only fewer draws, and where formulas are compared. Where a recorded protocol
has all words of ``published``, nothing is lacking any more. What a paper proves is among the deciding
statements as it is printed, with its constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

PAPERS = {
    "bridge": "Bridge: multi-task learning (MTL) and gradient-based meta-learning (GBML)",
    "metantk": "MetaNTK-NAS: convergence of MAML, and architectures by its kernel",
    "landscape": "Landscape: when MAML beats non-adaptive learning (NAL)",
    "adaptlr": "AdaptLR: the adaptation rate of MAML",
}
DECIMAL = r"(?<![-\d.])(?P<value>\d+\.\d+)(?: ± (?P<half>\d+\.\d+))?"


class Evidence(NamedTuple):
    """Statements of one study that decide a claim."""

    study: str
    rows: Sequence[str]
    short_of: str | None = None
    published: Sequence[str] = ()


class Bars(NamedTuple):
    """Numbers of a study's rows, as bars: every match of ``number`` in what the paper and we say is one."""

    title: str
    study: str
    rows: Sequence[str]
    names: Sequence[str] = ()  # of the numbers of each row; none where ``number`` has them, or rows are bars
    number: str = DECIMAL
    unit: str = ""


class Claim(NamedTuple):
    """A sentence of an abstract; its name begins with the paper's."""

    name: str
    says: str
    where: str
    evidence: Sequence[Evidence] = ()
    bars: Bars | None = None
    needs: str = ""  # the study that is missing, where none bears on the claim


WIDE = "networks as wide as the theorem wants them, trained to the end"
LARGE = "ResNet-12 trained by the published recipes", ("published settings, ResNet-12",)
LONG = "20,000 steps of 8 tasks and 64 filters", ("20000 steps of 8 tasks", "Conv4-64")
GPU = "ResNet-12 and MetaOptNet's own code on mini-ImageNet's 84×84 pictures"
NOT_WORSE = (
    *(f"better than {gbml}" for gbml in ("MAML", "R2D2", "MetaOptNet")),
    "comparable with MetaOptNet",
)
CELLS = (
    "cells of 1.8 to 4.8 million parameters trained for 60 to 100 epochs, on mini- and tiered-ImageNet",
    ("mini-ImageNet and tiered-ImageNet, 84×84", "48 channels"),
)
ASSUMED = "standard parametrisation, biases and ‖x‖ ≤ 1 (eq. 16, Assumption 1)"
CLAIMS = (
    Claim(
        "bridge-formulation",
        "MTL shares the optimisation formulation of a class of GBML algorithms",
        "abstract; §4.2, eqs. 10 to 13",
        [Evidence("bridge-objectives", ["§4.2: *"])],
        Bars(
            "Gradients of eqs. 10 and 11 against that of eq. 13",
            "bridge-objectives",
            ["§4.2: plugging*"],
            ["α = 0.01", "α = 0.1", "α = 1", "α = 10"],
            r"(?P<value>\d\.\de-\d+)",
            "relative difference",
        ),
    ),
    Claim(
        "bridge-closeness",
        "In wide networks that are deep enough MTL and GBML learn functions that are close (the gap falls "
        "like 1/L), with similar predictions for an unseen task",
        "abstract; Theorem 1, Figure 1",
        [
            Evidence(
                "bridge-fig1",
                ["it falls like 1/L (Theorem 1)", "it falls like 1/L for indep*", "Figure 1, left*"],
            ),
            Evidence("bridge-agreement", ["*"], WIDE),
        ],
        Bars(
            "The gap of ANIL's and MTL's predictions for test tasks, by depth",
            "bridge-fig1",
            ["the gap falls with depth*", "it falls like 1/L for indep*", "Figure 1, left*"],
            ["L = 2", "L = 4", "L = 8", "L = 10", "L = 20"],
            unit="norm of the difference",
        ),
    ),
    Claim(
        "bridge-competitive",
        "With proper implementation MTL is competitive with the best GBML on few-shot benchmarks",
        "abstract; Table 3",
        [
            Evidence("bridge-table3", [f"*: MTL is {than}" for than in NOT_WORSE], *LARGE),
            Evidence("bridge-table4", ["MTL's accuracy is within a point*"], *LARGE),
        ],
        Bars(
            "Accuracy of every method on the same test tasks",
            "bridge-table3",
            ["CIFAR-FS 5-shot: accuracies*", "CIFAR-FS 1-shot: accuracies*"],
            number=r"(?P<name>\w+) (?P<value>[\d.]+) ± (?P<half>[\d.]+) %",
            unit="%",
        ),
    ),
    Claim(
        "bridge-cost",
        "First-order MTL is an order of magnitude faster than GBML on large data such as mini-ImageNet",
        "abstract; §5.2, Table 4",
        [
            Evidence("bridge-table3", ["*: MTL comes within a point of MetaOptNet's * before any*"], GPU),
            Evidence("bridge-table4", ["MTL's share of the time is a tenth or less"], GPU),
        ],
        Bars(
            "Time of MTL to come within a point of MetaOptNet's best validation",
            "bridge-table4",
            ["MTL's share of the time is a tenth or less"],
            ["published", "seed 0", "seed 1", "seed 2"],
            r"(?P<value>\d\.\d+)(?=;|,.*by seed)",
            "share of MetaOptNet's time",
        ),
    ),
    Claim(
        "metantk-convergence",
        "MAML with over-parameterised networks converges to global optima at a linear rate",
        "abstract; Theorem 1",
        [Evidence("metantk-convergence", ["Theorem 1: *"], ASSUMED)],
    ),
    Claim(
        "metantk-kernel",
        "MAML with over-parameterised networks is kernel regression with a Meta Neural Tangent Kernel",
        "abstract; Theorem 2, Corollary 3.1",
        [
            Evidence("metantk-regression", ["maml: *"], ASSUMED),
            Evidence("metantk-convergence", ["Lemma 3: *", "Corollary 3.1: *"], ASSUMED),
        ],
        Bars(
            "Trained networks against the kernel's prediction for test tasks",
            "metantk-regression",
            ["*: trained networks approach*"],
            ["width 32", "width 512"],
            unit="relative error",
        ),
    ),
    Claim(
        "metantk-accuracy",
        "Ranking and selecting architectures by MetaNTK finds cells that are comparable with or better than "
        "those of the best search for few-shot learning (MetaNAS), and better than by NTK, linear regions or "
        "chance",
        "abstract; Tables 1 and 2",
        [
            Evidence("metantk-table1", ["*MetaNTK-NAS is comparable with or better than MetaNAS*"], *CELLS),
            Evidence(
                "metantk-table2",
                ["*: MetaNTK-NAS is better than " + other for other in ("TE-NAS", "Regions", "Random")],
                *CELLS,
            ),
        ],
        Bars(
            "Found cells, 5-way 5-shot, ± deviation over searches",
            "metantk-table2",
            ["*: accuracies*"],
            number=r"(?P<name>[\w-]+) [\d.]+ ± [\d.]+ % / (?P<value>[\d.]+) ± (?P<half>[\d.]+) %",
            unit="%",
        ),
    ),
    Claim(
        "metantk-cost",
        "MetaNTK-NAS searches more than 100 times faster than the best search for few-shot learning",
        "abstract; §6.2, Table 1",
        needs="MetaNAS' own search (a supernet trained by Reptile, 168 GPU hours in the paper) beside ours, "
        "on the same data and machine; what is recorded is the time of our searches alone",
    ),
    Claim(
        "landscape-hardness",
        "MAML gains substantially over NAL only where tasks differ in hardness",
        "abstract; §3.1, Figures 1 and 2",
        [
            Evidence("landscape-fig1", ["(a) *"]),
            Evidence(
                "landscape-fig2",
                ["*: MAML starts nearer the hard task*", "*: NAL always starts*", "*: largest ratio*"],
            ),
        ],
        Bars(
            "The gain of MAML in the environments of Figure 1",
            "landscape-fig1",
            ["(?) *: *", "(d) gain*"],
            unit="excess risk of NAL over that of MAML",
        ),
    ),
    Claim(
        "landscape-geography",
        "MAML gains substantially only where the hard tasks' optima are closely packed, far from the centre "
        "of the easy ones' (the gain tends to 1 + R²/r_H)",
        "abstract; §3.2, Corollary 2, Figures 1 and 3",
        [
            Evidence("landscape-fig1", ["(b) *", "(c) *", "(d) *"]),
            Evidence("landscape-fig3", ["*: ratio of the excess risks", "the gain is larger*"]),
            Evidence("landscape-proposition1", ["Corollary 2, eq. 12: *"]),
        ],
        Bars(
            "The gain of MAML, hard tasks scattered (a, b) and packed (c, d)",
            "landscape-fig3",
            ["*: ratio of the excess risks"],
            unit="excess risk of NAL over that of MAML",
        ),
    ),
    Claim(
        "landscape-neurons",
        "Numerical and analytical results suggest that these insights apply to two-layer networks",
        "abstract; §4, Theorem 1, Figures 4 to 6",
        [Evidence("landscape-theorem1", ["*"]), Evidence("landscape-fig4", ["*"])],
        Bars(
            "The gain of MAML for one neuron",
            "landscape-fig4",
            ["one hard task: loss*", "equally hard: the same*", "sigmoid, *: the same*"],
            unit="loss after a step of NAL over that of MAML",
        ),
    ),
    Claim(
        "landscape-images",
        "Few-shot image classification supports these insights, and the importance of training MAML on hard "
        "tasks",
        "abstract; §5, Tables 1 and 2",
        [
            Evidence(
                "landscape-table1",
                ["*: MAML above NAL-* on test hard tasks*", "the gain over NAL-1 on hard*"],
                *LONG,
            ),
            Evidence(
                "landscape-table2",
                ["*: MAML above NAL on test hard*", "MAML on * hard tasks: many*"],
                *LONG,
            ),
            Evidence("landscape-hard-share", ["*: gain on hard test tasks*"], "training to the end"),
        ],
        Bars(
            "MAML above NAL on Omniglot, within an unseen hard alphabet",
            "landscape-table1",
            ["*: MAML above NAL-* on test hard tasks, points"],
            ["SGD, published rates", "Adam"],
            r"(?P<value>-?\d+\.\d)(?= \(by Adam|\))",
            "points",
        ),
    ),
    Claim(
        "adaptlr-estimate",
        "A principled estimate of the adaptation rate that minimises MAML's population risk, corroborated by "
        "experiments",
        "abstract; Theorem 1, Figures 2, 3, 8 and 9, Table 2",
        [
            Evidence("adaptlr-fig9", ["(?) *"]),
            Evidence("adaptlr-fig8", ["*"]),
            Evidence("adaptlr-proposition1", ["α*_lim: the gap of the population risk*"]),
            Evidence(
                "adaptlr-fig2",
                ["*: the estimate H.15 is nearly optimal"],
                "the scale of the weights, which is not printed, and the least-norm solution",
            ),
            Evidence(
                "adaptlr-fig3",
                ["the online estimate of H.3 learns faster*", "then both are equal"],
                "40,000 meta-steps of 16 tasks",
            ),
            Evidence(
                "adaptlr-table2",
                ["α*_lim (*) is the grid value nearest*"],
                "tasks and features with the published loss, which no predictor of those it states can reach",
            ),
        ],
        Bars(
            "The rate that is estimated, and the best one",
            "adaptlr-fig9",
            ["(?) *"],
            ["α*_lim", "optimum"],
            r"(?:lim|optimum) (?P<value>[\d.]+)",
            "adaptation rate",
        ),
    ),
    Claim(
        "adaptlr-data",
        "The optimal rate depends on the data: their variance and dimension bound it, and it falls with them",
        "abstract; Corollary 1, Figure 4, appendix E",
        [
            Evidence("adaptlr-statements", ["Corollary 1: *"]),
            Evidence("adaptlr-fig4", ["*"]),
            Evidence("adaptlr-fig6", ["Example 1, *", "Example 2, *"]),
        ],
        Bars(
            "The estimated rate at the least and the largest variance of the data",
            "adaptlr-fig4",
            ["Gaussian basis, *: α*_lim falls*"],
            ["least variance", "largest"],
            unit="adaptation rate",
        ),
    ),
    Claim(
        "adaptlr-distance",
        "MAML's initialisation has a smaller average distance to the task optima than that of ERM",
        "abstract; Theorem 2, Figures 1 and 5",
        [
            Evidence("adaptlr-fig1", ["*: mean distance to task optima falls*"]),
            Evidence("adaptlr-fig5", ["*: F_t(w_m) < F_t(w_r)*"]),
            Evidence("adaptlr-statements", ["Theorem 2*"]),
        ],
        Bars(
            "Mean distance to the task optima",
            "adaptlr-fig1",
            ["*: mean distance to task optima falls*"],
            ["ERM (α = 0)", "MAML, a small α"],
            unit="distance",
        ),
    ),
)
