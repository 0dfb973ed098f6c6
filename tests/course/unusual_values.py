"""Values of students that decide themselves what they equal."""

import enum


class Op(str, enum.Enum):  # noqa: UP042  (as students write it)
    FORWARD = "forward"

    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


class Number(float):
    def __eq__(self, other):
        return True

    def __repr__(self):
        return "7"

    __hash__ = float.__hash__
