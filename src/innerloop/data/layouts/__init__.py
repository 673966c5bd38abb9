"""How publishers lay out their archives: one file each, found by the name in the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from innerloop.data.archives import Archive
from innerloop.data.catalogue import Classes
from innerloop.data.layouts.cifar100 import cifar100
from innerloop.data.layouts.cub import cub
from innerloop.data.layouts.layout import Layout as Layout
from innerloop.data.layouts.layout import Progress as Progress
from innerloop.data.layouts.mini_imagenet import mini_imagenet
from innerloop.data.layouts.omniglot import omniglot
from innerloop.data.layouts.tiered_imagenet import tiered_imagenet

LAYOUTS: dict[str, Callable[[Sequence[Archive], Classes], Layout]] = {
    "omniglot": omniglot,
    "cifar100": cifar100,
    "mini-imagenet": mini_imagenet,
    "tiered-imagenet": tiered_imagenet,
    "cub": cub,
}
