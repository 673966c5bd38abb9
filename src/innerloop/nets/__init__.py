"""Networks as pure functions of named parameters and explicit buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.nets import cells as cells
    from innerloop.nets.antisymmetric import antisymmetric as antisymmetric
    from innerloop.nets.convolutional import conv4 as conv4
    from innerloop.nets.convolutional import convnet as convnet
    from innerloop.nets.convolutional import r2d2_conv as r2d2_conv
    from innerloop.nets.efficientnet_lite import efficientnet_lite as efficientnet_lite
    from innerloop.nets.factory import BACKBONES as BACKBONES
    from innerloop.nets.factory import backbone as backbone
    from innerloop.nets.mlp import mlp as mlp
    from innerloop.nets.module import from_module as from_module
    from innerloop.nets.network import Network as Network
    from innerloop.nets.network import apply as apply
    from innerloop.nets.network import with_last_layer as with_last_layer
    from innerloop.nets.neurons import logistic_model as logistic_model
    from innerloop.nets.neurons import neurons as neurons
    from innerloop.nets.noise import with_noise as with_noise
    from innerloop.nets.noise import without_noise as without_noise
    from innerloop.nets.norms import NORM_POLICIES as NORM_POLICIES
    from innerloop.nets.residual import residual_mlp as residual_mlp
    from innerloop.nets.residual import wide_network as wide_network
    from innerloop.nets.resnet12 import resnet12 as resnet12
    from innerloop.nets.weights import load_weights as load_weights
    from innerloop.nets.wide_resnet import wide_resnet as wide_resnet
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.nets.antisymmetric": "antisymmetric",
            "innerloop.nets.convolutional": "conv4 convnet r2d2_conv",
            "innerloop.nets.efficientnet_lite": "efficientnet_lite",
            "innerloop.nets.factory": "BACKBONES backbone",
            "innerloop.nets.mlp": "mlp",
            "innerloop.nets.module": "from_module",
            "innerloop.nets.network": "Network apply with_last_layer",
            "innerloop.nets.neurons": "logistic_model neurons",
            "innerloop.nets.noise": "with_noise without_noise",
            "innerloop.nets.norms": "NORM_POLICIES",
            "innerloop.nets.residual": "residual_mlp wide_network",
            "innerloop.nets.resnet12": "resnet12",
            "innerloop.nets.weights": "load_weights",
            "innerloop.nets.wide_resnet": "wide_resnet",
        },
        rooms="cells",
    )
