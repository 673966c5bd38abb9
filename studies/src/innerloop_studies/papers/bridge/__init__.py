"""Tables and figures of Bridge (Wang et al. 2021), and what only they need."""
