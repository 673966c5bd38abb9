"""MetaNTK-NAS, Figure 2: cells that the search finds, drawn; and how alike independent searches are."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

from innerloop.choose import cell_space, count_parameters, random_candidate
from innerloop.nets.cells import PUBLISHED, Genotype, cell_network, from_table
from innerloop.report.plots.cells import cell_picture_data, cell_picture_figure
from innerloop_studies.papers.metantk.nas import SEEDS, SearchCase, searched
from innerloop_studies.papers.metantk.table import protocol
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, listed, row

TITLE = "MetaNTK-NAS, Figure 2: found cells, drawn; how alike independent searches are"
VERSION = 1
DATA = {"smoke": "glyphs", "cpu": "cifar-fs", "paper": "mini-imagenet"}
# millions of parameters in Table 1, by data, cells and classes in training
SIZES = {("mini", 5, 64): 1.77, ("mini", 8, 64): 3.21, ("tiered", 5, 351): 2.22, ("tiered", 8, 351): 4.78}
CLOSE = 0.01  # relative difference within which a mean of three cells has the size that the paper prints
CHANCE = 4000  # pairs of random cells from which the agreement by chance is taken


def run(scale: str, say: Say) -> Reproduction:
    """Cells of independent searches at this scale, beside the first that was released."""
    searches = searched(cases(scale))
    for case, search in searches.items():
        say(f"{case}: {search['measured']} measurements, {search['seconds']:.0f} s of one core")
    cells = {f"seed-{case.seed}": from_table(each["genotype"]) for case, each in searches.items()}
    drawn = {"found": next(iter(cells.values())), "released": PUBLISHED["metantk-mini-5-1"], **cells}
    pictures = {name: cell_picture_data(cell._asdict()) for name, cell in drawn.items()}
    figures = {f"metantk-fig2-{name}": cell_picture_figure(picture) for name, picture in pictures.items()}
    rows = [*_released_rows(), _drawn_row(pictures, drawn)]
    if scale != "smoke":
        pairs = combinations(cells.values(), 2)
        ours, chance = fmean(agreement(*pair) for pair in pairs), by_chance()
        what = "ours: independent searches agree on more edges than random cells do"
        said = f"{ours:.0%} of edges with their operators, by chance {chance:.0%}"
        rows.append(row(what, "–", said, ours > chance))  # at `cpu` it has not been run yet
    data = {f"seed {case.seed}": each for case, each in searches.items()}
    return Reproduction(rows, figures, {"searches": data, "pictures": pictures}, protocol(scale))


def cases(scale: str) -> list[SearchCase]:
    """Those of MetaNTK-NAS in the tables: the searches are shared."""
    return [SearchCase(scale, DATA[scale], "MetaNTK-NAS", seed) for seed in range(SEEDS[scale])]


def _released_rows() -> list[Row]:
    """What can be told of the twelve released cells without training any."""
    sizes = []
    for data, cells, classes in SIZES:
        names = [f"metantk-{data}-{cells}-{number}" for number in (1, 2, 3)]
        counted = [count_parameters(cell_network(3, 84, classes, genotype=n, cells=cells)) for n in names]
        sizes.append(fmean(counted) / 1e6)
    counts = operators([cell for name, cell in PUBLISHED.items() if name.startswith("metantk-")])
    most = counts.most_common(1)[0]
    what = f"the twelve released cells have the sizes of Table 1 within {CLOSE:.0%}, in means of three"
    paper, ours = f"{listed(SIZES.values(), 'g', ' M, ')} M", f"{listed(sizes, '.2f', ' M, ')} M"
    near = all(abs(one / size - 1) <= CLOSE for one, size in zip(sizes, SIZES.values(), strict=True))
    usual = "in released cells the separable convolution is the most frequent operator"
    said, first = f"{most[0]}, {most[1]} of {counts.total()}", "sep_conv_3x3"
    return [row(what, paper, ours, near), row(usual, first, said, most[0] == first)]


def operators(cells: Sequence[Genotype]) -> Counter[str]:
    """How often every operator occurs."""
    return Counter(edge.operator for cell in cells for kind in cell for node in kind for edge in node)


def agreement(one: Genotype, other: Genotype) -> float:
    """Share of edges, operator and source and target, that two cells have in common."""
    nodes = [pair for kinds in zip(one, other, strict=True) for pair in zip(*kinds, strict=True)]
    shared = [len(set(a) & set(b)) for a, b in nodes]
    return sum(shared) / (2 * len(shared))


def by_chance(pairs: int = CHANCE) -> float:
    """Mean agreement of random cells."""
    space = cell_space(3, 32, 5)
    drawn = [random_candidate(space, 0, "chance", number) for number in range(2 * pairs)]
    return fmean(agreement(*pair) for pair in zip(drawn[::2], drawn[1::2], strict=True))


def _drawn_row(pictures: Mapping[str, Sequence[Any]], cells: Mapping[str, Genotype]) -> Row:
    """Whether every operator of every cell stands in its picture, once."""
    right = []
    for name, cell in cells.items():
        words = [arrow["words"].split("\n") for one in pictures[name] for arrow in one["arrows"]]
        right.append(Counter(word for some in words for word in some if word) == operators([cell]))
    what, said = "pictures show every edge of a cell with its operator", f"{sum(right)} of {len(right)} do"
    return row(what, "12 edges", said, all(right))
