"""What a run leaves on disk: its directory, manifest, checkpoints, metrics, log and progress.

Importing this room does not import torch: ``innerloop ls`` reads run directories and must stay quick.
"""
