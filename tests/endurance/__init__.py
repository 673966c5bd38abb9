"""What takes too long for CI: storms of ``kill -9`` and long runs, as ``python -m endurance``.

``make kills`` and ``make soak`` call it; ``tests/whole/test_endurance.py`` runs short forms of both.
"""
