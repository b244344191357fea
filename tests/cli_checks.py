"""What holds for every command that refuses its input."""

from __future__ import annotations

from prism.cli.answer import Status


def assert_refused(result, *parts):
    """Status 2, one message on standard error, nothing on standard output, no traceback."""
    assert result.exit_code == Status.BAD_INPUT, (result.exit_code, result.output)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("error:") == 1
    assert "Traceback" not in result.stderr
    for part in parts:
        assert part in result.stderr
