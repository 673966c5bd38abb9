"""Tables and figures of MetaNTK-NAS (Wang et al. 2022), and what only they need."""
