"""The public names of a package: imported when somebody asks for them, and no others."""

from __future__ import annotations

import pytest

from protofly.public_names import public_names


def test_a_name_is_imported_when_somebody_asks_for_it() -> None:
    named = public_names("email", {"Message": "email.message"})
    assert named("Message").__module__ == "email.message"


def test_a_name_that_is_not_listed_is_refused_like_that_of_any_module() -> None:
    named = public_names("email", {"Message": "email.message"})
    with pytest.raises(AttributeError, match="module 'email' has no attribute 'Massage'"):
        named("Massage")
