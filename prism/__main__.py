"""`python -m prism` is the command `prism`."""

from __future__ import annotations

from prism.cli import main

if __name__ == "__main__":
    main(prog_name="prism")
