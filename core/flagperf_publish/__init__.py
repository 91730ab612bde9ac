"""What passes on recorded runs: pages, leaderboards, tables, archives. Core imports none of it."""
