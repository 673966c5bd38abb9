"""The papers' tables and figures, a room for each paper and a file for each: `innerloop reproduce`."""
