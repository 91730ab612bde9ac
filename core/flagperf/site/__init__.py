"""The leaderboard (`flagperf site`): a folder of static pages that any web server, or none, can show.

- row: a run, or a published result, as one line of the board
- board: all lines, coded by column, as the page carries them
- index: the page with the board; its script is compare.js, rows.js and board.js, its style board.css
- folder: what is ours in the folder, and what was written for which state of a run
- build: only new and changed runs are rendered again
"""

from flagperf.site.build import Built, LeftOut, Wanted, build_site

__all__ = ["Built", "LeftOut", "Wanted", "build_site"]
