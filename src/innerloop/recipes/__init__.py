"""Typed recipes: the schema, one grammar for settings, and the recipes that come with the library. Data only."""
