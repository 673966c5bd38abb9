"""Kernels of networks, analytic (infinite width) and empirical (a given network), and of meta-learners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.kernels import analytic as analytic
    from innerloop.kernels.analytic.networks import analytic_kernel as analytic_kernel
    from innerloop.kernels.analytic.networks import blockwise as blockwise
    from innerloop.kernels.analytic.networks import conv_kernel as conv_kernel
    from innerloop.kernels.analytic.networks import mlp_kernel as mlp_kernel
    from innerloop.kernels.analytic.networks import network_kernel as network_kernel
    from innerloop.kernels.analytic.networks import residual_kernel as residual_kernel
    from innerloop.kernels.analytic.networks import tabulated as tabulated
    from innerloop.kernels.empirical.exact import exact_metantk as exact_metantk
    from innerloop.kernels.empirical.kernel import empirical_kernel as empirical_kernel
    from innerloop.kernels.empirical.kernel import empirical_nngp as empirical_nngp
    from innerloop.kernels.empirical.kernel import empirical_ntk as empirical_ntk
    from innerloop.kernels.meta.descent import Descent as Descent
    from innerloop.kernels.meta.kernel import anil_kernel as anil_kernel
    from innerloop.kernels.meta.kernel import anil_kernel_without_split as anil_kernel_without_split
    from innerloop.kernels.meta.kernel import maml_kernel as maml_kernel
    from innerloop.kernels.meta.kernel import mtl_kernel as mtl_kernel
    from innerloop.kernels.meta.predict import KernelFit as KernelFit
    from innerloop.kernels.meta.predict import fit as fit
    from innerloop.kernels.meta.predict import mtl_anil_gap as mtl_anil_gap
    from innerloop.kernels.meta.predict import predict_tasks as predict_tasks
    from innerloop.kernels.types import KernelFunction as KernelFunction
    from innerloop.kernels.types import Kernels as Kernels
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.kernels.analytic.networks": (
                "analytic_kernel blockwise conv_kernel mlp_kernel network_kernel residual_kernel tabulated"
            ),
            "innerloop.kernels.empirical.exact": "exact_metantk",
            "innerloop.kernels.empirical.kernel": "empirical_kernel empirical_nngp empirical_ntk",
            "innerloop.kernels.meta.descent": "Descent",
            "innerloop.kernels.meta.kernel": "anil_kernel anil_kernel_without_split maml_kernel mtl_kernel",
            "innerloop.kernels.meta.predict": "KernelFit fit mtl_anil_gap predict_tasks",
            "innerloop.kernels.types": "KernelFunction Kernels",
        },
        rooms="analytic",
    )
