"""What can be said before training: estimates for a network on its tasks, as typed results."""
