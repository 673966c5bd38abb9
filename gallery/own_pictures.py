"""Train on a folder of your own pictures, then label new classes from three examples each.

The script draws its pictures: stars of 3, 4, 6 or 8 points, slim or fat, filled or outlined. That
makes 16 classes, one folder each, which is all that `Experiment` needs. The four classes that it
labels afterwards are stars of five points, which the network has never seen.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image, ImageDraw

import innerloop as il


def draw_class(folder: Path, points: int, slim: bool, filled: bool, count: int) -> list[str]:
    """Draws ``count`` stars of one class, each turned and sized by chance, and returns their files."""
    folder.mkdir(parents=True)
    random = np.random.default_rng([points, slim, filled])
    radius = np.tile([1.0, 0.35 if slim else 0.75], points)
    files = [str(folder / f"{number:02d}.png") for number in range(count)]
    for file in files:
        angle = random.uniform(0, 2 * np.pi) + np.arange(2 * points) * np.pi / points
        corners = 14 + random.uniform(8, 13) * radius * np.stack([np.cos(angle), np.sin(angle)])
        picture = Image.new("L", (28, 28))
        ImageDraw.Draw(picture).polygon(corners.T.flatten().tolist(), fill=255 * filled, outline=255)
        picture.save(file)
    return files


kinds = {(True, True): "slim, filled", (True, False): "slim, outlined"}
kinds |= {(False, True): "fat, filled", (False, False): "fat, outlined"}
for points in (3, 4, 6, 8):
    for (slim, filled), name in kinds.items():
        draw_class(Path("stars") / f"{points} points, {name}", points, slim, filled, count=20)

settings = {"outer": {"steps": 40}, "model": {"filters": 16}, "run": {"execution": "loop"}}
settings["eval"] = {"episodes": 40, "validation_episodes": 4, "weights": "last", "baselines": False}
run = il.Experiment("stars/", **settings).fit(progress=False)
print(run.result)

new = {name: draw_class(Path("new") / name, 5, *kind, count=9) for kind, name in kinds.items()}
support = [file for files in new.values() for file in files[:3]]
queries = [file for files in new.values() for file in files[3:]]
truth = [name for name in new for _ in range(6)]
prediction = run.predict(support, [name for name in new for _ in range(3)], queries)
right = sum(said == true for said, true in zip(prediction.labels, truth, strict=True))
print(f"labelled {right} of {len(truth)} pictures of new classes correctly")

figure = Figure(figsize=(8, 3.2))
figure.subplots_adjust(left=0.01, right=0.99, bottom=0.02, top=0.92)
for axes, file, said in zip(figure.subplots(3, 8).flat, queries, prediction.labels, strict=True):
    axes.imshow(Image.open(file), cmap="gray")
    axes.set_title(said, fontsize=7)
    axes.axis("off")
figure.savefig("own_pictures.png", dpi=100)
