"""The adaptation learning rate (AdaptLR): estimates from features, closed forms, and their bracket."""
