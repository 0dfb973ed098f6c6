"""`lk.Table`: alignment, number formats, missing values, escaping, and mistakes."""

import html.parser

import numpy as np
import pytest

import labkit as lk


class Cells(html.parser.HTMLParser):
    """Reads the cells of an HTML table: (tag, text alignment, text)."""

    def __init__(self, text):
        super().__init__()
        self.cells, self.title, self.open = [], None, None
        self.feed(text)
        assert self.open is None

    def handle_starttag(self, tag, attrs):
        if tag in ("td", "th", "caption"):
            style = dict(part.split(": ", 1) for part in dict(attrs)["style"].split("; "))
            assert tag == "caption" or dict(attrs)["align"] == style["text-align"]
            self.open = [tag, style["text-align"], ""]

    def handle_data(self, data):
        if self.open:
            self.open[2] += data

    def handle_endtag(self, tag):
        if self.open and tag == self.open[0]:
            if tag == "caption":
                self.title = self.open[2]
            else:
                self.cells.append(tuple(self.open))
            self.open = None


def test_text_is_aligned_by_the_content_of_columns():
    rows = [["w0", 9, "9.5 ms", "80%", 0.5, "late"], ["worker-1", 1234, "120.0 ms", "<1%", 12.25, "12 of 13"]]
    table = lk.Table(["worker", "gradients", "time", "share", "staleness", "state"], rows, "Two workers")
    assert str(table) == repr(table)
    assert str(table).splitlines() == [
        "Two workers",
        "worker    gradients      time  share  staleness  state",
        "w0                9    9.5 ms    80%       0.50  late",
        "worker-1      1,234  120.0 ms    <1%      12.25  12 of 13",
    ]


def test_html_has_the_same_cells_and_alignment():
    parsed = Cells(lk.Table(["worker", "gradients"], [["w0", 1234], ["w1", None]], "A title")._repr_html_())
    assert parsed.title == "A title"
    assert parsed.cells == [
        ("th", "left", "worker"), ("th", "right", "gradients"),
        ("td", "left", "w0"), ("td", "right", "1,234"),
        ("td", "left", "w1"), ("td", "right", "–"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([1, 20, 3000], ["1", "20", "3,000"]),
        ([1.0, 2.0, 3.0], ["1", "2", "3"]),
        ([1, 2.5], ["1.0", "2.5"]),
        ([9.98, 151.23], ["10.0", "151.2"]),
        ([0.0512, 151.23], ["0.0512", "151.2"]),  # with one decimal the first were 0.1
        ([1.5, 12345.6], ["1.5", "12,346"]),
        ([0.9123456, 0.05], ["0.9123", "0.0500"]),
        ([0.25, None, float("nan"), float("inf")], ["0.25", "–", "nan", "inf"]),
        ([np.int64(7), np.float32(0.5), np.float64(2)], ["7.0", "0.5", "2.0"]),
        ([1e30, 2.0], ["1e+30", "2"]),
        ([True, np.bool_(False), None], ["yes", "no", "–"]),
        ([-1.5, 0.0], ["-1.5", "0.0"]),
        ([], []),
    ],
)
def test_numbers_of_a_column(values, texts):
    table = lk.Table(["x"], [[value] for value in values])
    assert [cell for (cell,) in table.cells()] == texts


def test_markup_in_cells_headings_and_title_is_escaped():
    table = lk.Table(["<i>name</i>"], [["<script>alert(1)</script>"], ['"a" & b']], "<b>title</b>")
    for tag in ("<i>", "<script>", "<b>"):
        assert tag not in table._repr_html_()
    parsed = Cells(table._repr_html_())
    assert parsed.title == "<b>title</b>"
    assert [text for *_, text in parsed.cells] == ["<i>name</i>", "<script>alert(1)</script>", '"a" & b']


def test_a_line_break_is_a_space_in_text_and_a_break_in_html():
    table = lk.Table(["note"], [["one\ntwo"]])
    assert str(table).splitlines() == ["note", "one two"]
    assert ">one<br>two</td>" in table._repr_html_()


def test_rows_may_come_from_a_generator_and_be_shown_twice():
    table = lk.Table(("n",), ((n,) for n in range(3)))
    assert str(table) == str(table) == "n\n0\n1\n2"
    assert table == lk.Table(["n"], [[0], [1], [2]])


@pytest.mark.parametrize(
    ("columns", "rows", "message"),
    [
        (["a"], [[1, 2]], r"one cell per column \(a\), not \(1, 2\)"),
        (["a", "b"], [[1, 2], "cd"], "not 'cd'"),
        ([], [], "at least one column"),
        ("ab", [], "list of headings"),
    ],
)
def test_mistakes_are_explained(columns, rows, message):
    with pytest.raises(lk.BadInput, match=message):
        lk.Table(columns, rows)
