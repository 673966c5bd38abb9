"""The command, one file per verb. Nothing here imports torch before a verb needs it."""
