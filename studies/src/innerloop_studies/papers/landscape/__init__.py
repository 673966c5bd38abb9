"""Tables and figures of Landscape (Collins et al. 2022), and what only they need."""
