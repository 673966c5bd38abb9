"""Samplers take a family of tasks, or pictures, by name."""

from __future__ import annotations

import pytest
import torch

from innerloop.core.errors import UserError
from innerloop.data import glyphs
from innerloop.tasks import few_shot_sampler, get_family, make_sampler, supervised_sampler


def test_a_family_may_be_named() -> None:
    named, given = make_sampler("sine", shots=5), make_sampler(get_family("sine"), shots=5)
    assert torch.equal(named.episode(3).x_support, given.episode(3).x_support)
    with pytest.raises(UserError, match="did you mean 'sine'"):
        make_sampler("sinus")
    with pytest.raises(UserError, match="a function or a name"):
        make_sampler(3)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="shots='5' must be a whole number"):
        make_sampler("sine", shots="5")  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [few_shot_sampler, supervised_sampler])
def test_pictures_may_be_named(make: object) -> None:
    assert callable(make)
    assert torch.equal(make("glyphs").episode(1).x_support, make(glyphs()).episode(1).x_support)
    with pytest.raises(UserError, match="did you mean 'glyphs'"):
        make("glyfs")
