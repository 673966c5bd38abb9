"""Learn classes from a few rows of numbers each, and hear how sure that is.

`FewShotHead` is a scikit-learn classifier for features of any kind; here they are the 64 pixels of
scikit-learn's digits. From eight examples of each class it estimates how often it will be right,
what it confuses, and what more examples would bring. The script compares these estimates with what
happens on all other pictures.
"""

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

import innerloop as il

X, y = load_digits(return_X_y=True)
random = np.random.default_rng(0)
chosen = np.concatenate([random.choice(np.flatnonzero(y == digit), 8, replace=False) for digit in range(10)])
rest = np.setdiff1d(np.arange(len(y)), chosen)

model = il.FewShotHead().fit(X[chosen], y[chosen])
expected = model.expected_.accuracy
value, low, high = (100 * part for part in (expected.value, expected.low, expected.high))
print(f"expected: {value:.0f} % right, between {low:.0f} and {high:.0f}")
print(f"found on {len(rest)} other pictures: {100 * model.score(X[rest], y[rest]):.0f} %")
sure = model.predict_proba(X[rest]).max(axis=1) > 0.8
print(f"{100 * sure.mean():.0f} % of these are labelled with a probability above 0.8")
print(f"of those, {100 * model.score(X[rest][sure], y[rest][sure]):.0f} % are right")

curve = model.learning_curve()
print("expected with fewer examples:", ", ".join(f"{p.shots}: {100 * p.accuracy:.0f} %" for p in curve))
reached = []
for point in curve:
    fewer = np.concatenate([chosen[y[chosen] == digit][: point.shots] for digit in range(10)])
    reached.append(il.FewShotHead(calibrate=False).fit(X[fewer], y[fewer]).score(X[rest], y[rest]))

axes = (figure := Figure(figsize=(5, 3.2), layout="constrained")).subplots()
shots = [point.shots for point in curve]
axes.plot(shots, [100 * point.accuracy for point in curve], "o-", label="expected, from the examples")
axes.plot(shots, [100 * score for score in reached], "s--", label="found on all other pictures")
axes.set(xlabel="examples of each digit", ylabel="accuracy, %")
axes.legend(frameon=False)
figure.savefig("few_shot_head.png", dpi=100)
