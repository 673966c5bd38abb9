"""Numbers of the documentation, from the files of ``results/``: ``python -m innerloop_studies.recorded``.

``results/`` holds one small file of JSON for every reproduction, benchmark and evaluation whose numbers the
pages print. ``adopt`` makes such a file from what a command has written, ``run`` runs the commands whose file
is missing or out of date, and ``write`` fills what stands between marks in the pages:

    <!-- results: rows adaptlr-* -->  …  <!-- end -->

The first word names a function of ``marks.TABLES``, the others are its arguments.
"""
