"""Maps a function over tasks: in a loop, under ``vmap``, in threads or processes; compiled where it pays."""
