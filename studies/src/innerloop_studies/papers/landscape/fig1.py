"""Figure 1: four environments, where NAL and MAML start in each, and what it costs them."""

import torch

from innerloop.theory.landscape.geography import Geography, environment, geography
from innerloop_studies.papers.figures import Plane, planes_figure
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row

TITLE = "Landscape, Figure 1: four environments, where NAL and MAML start, and the gain"
VERSION = 1
DIM, SHOTS, SHOWN = 10, 500, 100
R_LARGE, SPREAD = 2.0, 0.4  # R²/r_H = 10, the ratio of Figure 3 (c, d); the paper does not print R and r here


def run(scale: str, say: Say) -> Reproduction:
    """Closed forms only, so every scale is the full setting."""
    del scale
    environments = {
        "(a) equal hardness": Geography(DIM, 0.9, 0.9, R_LARGE, SPREAD, SPREAD),
        "(b) near centres": Geography(DIM, 0.1, 0.9, 0.4, SPREAD, SPREAD),
        "(c) scattered hard tasks": Geography(DIM, 0.1, 0.9, R_LARGE, 4.0, SPREAD),
        "(d) benign": Geography(DIM, 0.1, 0.9, R_LARGE, SPREAD, SPREAD),
        "(d) with ρ_H/ρ_E = 0.2": Geography(DIM, 0.18, 0.9, R_LARGE, SPREAD, SPREAD),
    }
    gains, planes = dict[str, float](), list[Plane]()
    for i, (name, env) in enumerate(environments.items()):
        solved = geography(env, lr=1 / 0.9, shots=SHOTS)
        gains[name] = float(solved.gain)
        _, optima, _ = environment(env, SHOWN // 2, torch.Generator().manual_seed(i))
        hard, easy = (some.tolist() for some in optima[:, :2].split(SHOWN // 2))
        nal, maml = ([float(one.coordinate)] * 2 for one in (solved.nal, solved.maml))
        risks = {"NAL": float(solved.nal.risk), "MAML": float(solved.maml.risk)}
        planes.append({"title": name, "hard": hard, "easy": easy, "nal": nal, "maml": maml, "risks": risks})
    say("gains: " + ", ".join(f"{name} {gain:.2f}" for name, gain in gains.items()))
    protocol = {
        "d": DIM,
        "m": SHOTS,
        "inner rate": "1/ρ_E",
        "R, r_H, r_E": f"{R_LARGE}, {SPREAD}, {SPREAD} in (d): not printed; R²/r_H = 10 is Figure 3's",
        "ρ_H": "§3.2 says 0.1 with ρ_E = 0.9, the introduction ρ_H/ρ_E = 0.2 for (d): both are shown",
    }
    figures, data = {"landscape-fig1": planes_figure(planes)}, {"planes": planes, "gains": gains}
    return Reproduction(_rows(gains), figures, data, protocol)


def _rows(gains: dict[str, float]) -> list[Row]:
    benign = gains["(d) benign"], gains["(d) with ρ_H/ρ_E = 0.2"]
    others = [gains[name] for name in list(gains)[:3]]
    return [
        row("(a) equal hardness: nothing to gain", "about 1", others[0], abs(others[0] - 1) < 1e-9),
        row("(b) centres near: little to gain", "small", others[1], others[1] < 1.5),
        row("(c) hard tasks scattered: little to gain", "small", others[2], others[2] < 2),
        row("(d) gain, ρ_H/ρ_E = 0.11 (§3.2)", 3, benign[0], abs(benign[0] - 3) <= 0.3),
        row("(d) gain, ρ_H/ρ_E = 0.2 (introduction)", 3, benign[1], abs(benign[1] - 3) <= 0.3),
        row("(d) has the largest gain", "yes", min(benign) > max(others), min(benign) > max(others)),
    ]
