"""Tables and figures of AdaptLR (Zou et al. 2022), and what only they need."""
