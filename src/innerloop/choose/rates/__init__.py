"""``inner.lr="auto"``: estimated before the first step, and decided by a short sweep where that is needed."""
