"""The critical path over the graph of all ranks, and what-if by replaying it with one thing changed.

A worker finds of each rank what waited for what (`items`, `depend`) and keeps nodes at communication, host waits and
step edges only, with the chains between them as weighted edges (`compress`). The main process joins the ranks by
matched calls (`joint`), walks back from the end of each step (`path`; `pieces`: what an edge holds; `segments`: the
tables) and replays the graph (`replay`, `whatif`).
"""

from __future__ import annotations
