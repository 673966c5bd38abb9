"""Typed recipes: the schema, one grammar for settings, and the shipped recipes. Data only."""
