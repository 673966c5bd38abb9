"""Compare the tangent kernel of a network with that of an infinitely wide one.

The analytic kernel is the limit of empirical ones as the width grows. The script computes both for
networks of four layers and shows how fast the limit is approached: the distance falls about as one
over the square root of the width.
"""

import numpy as np
import torch
from matplotlib.figure import Figure

import innerloop as il
from innerloop.kernels import empirical_ntk, mlp_kernel

x = torch.nn.functional.normalize(torch.randn(16, 10, generator=torch.Generator().manual_seed(0)))
limit = mlp_kernel(depth=4, activation="relu")(x, x).ntk
widths, distances = [32, 64, 128, 256, 512], []
for width in widths:
    network = il.mlp(10, [width] * 3, 1, parametrisation="ntk", weight_var=2.0)
    apart = []
    for seed in range(16):
        params, _ = network.init(torch.Generator().manual_seed(seed))
        apart.append((empirical_ntk(network, params, x) - limit).norm() / limit.norm())
    distances.append(float(torch.stack(apart).mean()))
    print(f"width {width}: {100 * distances[-1]:.1f} % away from the limit")
slope = np.polyfit(np.log(widths), np.log(distances), 1)[0]
print(f"the distance falls like width to the power of {slope:.2f}")

axes = (figure := Figure(figsize=(5, 3.2), layout="constrained")).subplots()
axes.semilogx(widths, distances, "o-", label="mean over 16 networks")
law = distances[0] * (widths[0] / np.array(widths)) ** 0.5
axes.semilogx(widths, law, "--", label="width to the power of -1/2")
axes.set_xticks(widths, widths)
axes.minorticks_off()
axes.set(xlabel="width", ylabel="relative distance to the limit")
axes.legend(frameon=False)
figure.savefig("network_kernels.png", dpi=100)
