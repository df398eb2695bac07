# SPDX-License-Identifier: Apache-2.0
"""What the package raises."""


class InputError(ValueError):
    """An argument is wrong. One line: "FIELD: what is wrong, what was expected"."""


class Skip(Exception):
    """Raised by a function under test for a case that it does not take after all.

    The case then counts as skipped, with this exception's text as the reason.
    """


class Failed(AssertionError):
    """A claim fails. The text holds the finding, its smallest case and the explanation."""


# As people import them, and as pytest prints them.
for _error in (InputError, Skip, Failed):
    _error.__module__ = "qualm"
