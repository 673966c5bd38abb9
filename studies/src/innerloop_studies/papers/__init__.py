"""The papers' tables and figures, a room for each paper and a file for each table or figure.

``innerloop reproduce`` carries them out.
"""
