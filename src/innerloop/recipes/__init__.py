"""Typed recipes: the schema, one grammar for settings, and the shipped recipes. Data only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.recipes.library import Shipped as Shipped
    from innerloop.recipes.library import load_recipe as load_recipe
    from innerloop.recipes.library import shipped_names as shipped_names
    from innerloop.recipes.library import shipped_recipes as shipped_recipes
    from innerloop.recipes.schema import Recipe as Recipe
    from innerloop.recipes.settings import make_recipe as make_recipe
    from innerloop.recipes.settings import recipe_from_toml as recipe_from_toml
    from innerloop.recipes.settings import recipe_to_toml as recipe_to_toml
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.recipes.library": "Shipped load_recipe shipped_names shipped_recipes",
            "innerloop.recipes.schema": "Recipe",
            "innerloop.recipes.settings": "make_recipe recipe_from_toml recipe_to_toml",
        },
    )
