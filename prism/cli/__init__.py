"""The command line: `prism search | tune | optimize | verify | bench | show | list | axioms`.

Each command is one module that returns an `Answer`; `app` finds the module when the command is
called, so that `prism --help` imports nothing heavy, and is the only place where an error becomes
a message and an exit status.
"""

from __future__ import annotations

from prism.cli.app import main

__all__ = ["main"]
