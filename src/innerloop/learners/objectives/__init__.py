"""What is learned across tasks: ``(params, buffers, task) -> loss``."""
