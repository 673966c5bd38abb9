"""Where tasks come from: ``episode(i)`` is a pure function of ``(seed, i)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.tasks.episodes import Kind as Kind
    from innerloop.tasks.families import FAMILIES as FAMILIES
    from innerloop.tasks.families import get_family as get_family
    from innerloop.tasks.few_shot import few_shot_sampler as few_shot_sampler
    from innerloop.tasks.hard_groups import hardest_groups as hardest_groups
    from innerloop.tasks.sampler import Family as Family
    from innerloop.tasks.sampler import Sampler as Sampler
    from innerloop.tasks.sampler import make_sampler as make_sampler
    from innerloop.tasks.supervised import supervised_sampler as supervised_sampler
    from innerloop.tasks.supervised import with_rotations as with_rotations
    from innerloop.tasks.table import Table as Table
    from innerloop.tasks.table import read_table as read_table
    from innerloop.tasks.table import table_sampler as table_sampler
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.tasks.episodes": "Kind",
            "innerloop.tasks.families": "FAMILIES get_family",
            "innerloop.tasks.few_shot": "few_shot_sampler",
            "innerloop.tasks.hard_groups": "hardest_groups",
            "innerloop.tasks.sampler": "Family Sampler make_sampler",
            "innerloop.tasks.supervised": "supervised_sampler with_rotations",
            "innerloop.tasks.table": "Table read_table table_sampler",
        },
    )
