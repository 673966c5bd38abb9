"""How a model of timm wants its pictures: its ``pretrained_cfg``, in our words. Not run with the real one."""

from __future__ import annotations

import math
from typing import Any

from innerloop.core.errors import UserError
from innerloop.core.importing import Trusted, load_object
from innerloop.core.preprocessing import RESAMPLES, Preprocessing, check_preprocessing


def timm_preprocessing(name: str) -> Preprocessing:
    """What timm says of the weights of a model."""
    try:
        config: Any = load_object(Trusted("timm.models:get_pretrained_cfg"))(name)
    except UserError:
        raise UserError(f"timm:{name} needs timm: pip install 'innerloop[timm]'.") from None
    if config is None:
        raise UserError(f"timm has no pretrained weights for '{name}': see timm.list_pretrained().")
    _, height, width = config.input_size
    share = float(config.crop_pct)
    mode, resample = str(config.crop_mode or "center"), str(config.interpolation)
    if resample not in RESAMPLES or mode not in ("center", "squash"):
        raise UserError(
            f"timm:{name} asks for {mode} and {resample}, which is not known here: give "
            "preprocessing=Preprocessing(…)."
        )
    before = (math.floor(height / share), math.floor(width / share))
    return check_preprocessing(
        Preprocessing(
            before,
            "short" if mode == "center" and height == width else "exact",
            crop=(height, width),
            resample=resample,
            mean=tuple(config.mean),
            std=tuple(config.std),
        )
    )
