"""The rule of `from_csv`: what is a missing value, a label, a header and a row number. Each table is written by hand."""

import warnings

import numpy as np
import pandas as pd
import pytest

import labkit as lk
from tests.refusals import check_refused


@pytest.fixture
def read(tmp_path):
    """Return (data set, remarks) of a text as a CSV file."""

    def read(text, **options):
        path = tmp_path / "t.csv"
        path.write_text(text)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            made = lk.from_csv(path, **options)
        remarks = [str(each.message) for each in said]
        assert all(each.filename == __file__ for each in said)  # a warning points to the line of the caller
        assert bool(remarks) == ("line" in made.about)
        return made, remarks

    return read


def lines(*columns):
    return "".join(",".join(map(str, cells)) + "\n" for cells in zip(*columns))


def samples(made):
    return made.n_train + made.n_test


MISSING = [
    "",
    " ",
    "NA",
    "na",
    "N/A",
    "n/a",
    "nan",
    "NaN",
    "-nan",
    "NULL",
    "null",
    "None",
    "?",
    ".",
    "#N/A",
    "<NA>",
    "NaT",
]


def test_missing_values_are_refused_wherever_they_are(read):
    def labels(mark, *others):
        return f"p,q,kind\n1.5,2.5,{others[0]}\n2.5,1.5,{mark}\n3.5,0,{others[1]}\n"

    cases = []
    for mark in MISSING:
        cases += [
            (lambda mark=mark: read(labels(mark, "cat", "dog")), "line 3, 'kind' is .*must be a label"),
            (lambda mark=mark: read(labels(mark, 0, 1)), "line 3, 'kind' is .*must be a label"),
            (lambda mark=mark: read(labels(mark, 0.5, 1.5), regression=True), "line 3, 'kind'.*fill the value in"),
            (lambda mark=mark: read(f"p,q,kind\n1,2,cat\n{mark},2,dog\n"), "line 3, 'p'.*fill the value in"),
            (lambda mark=mark: read(f"5,{mark},0\n6,2,1\n"), "line 1, 'column 1'.*fill the value in"),
        ]
    check_refused(cases)


@pytest.mark.parametrize(
    "word", ["none", "NA", "?", "nan", "-", "+", "missing", "unknown", "0x1", "1_0", "inf", "True"]
)
def test_words_that_are_labels(read, word):
    made, remarks = read(lines(["p", 1.5, 2.5, 3.5], ["kind", word, "cat", word]), missing=())
    assert (made.class_names, remarks) == (tuple(sorted([word, "cat"])), [])


WORDS, NUMBERS = ["up", "down"] * 6, [0, 1] * 6
A, B = np.arange(12)[::-1] % 7, np.arange(12) % 5


@pytest.mark.parametrize(
    ("text", "options", "header", "remark"),
    [
        (lines(["2019", *A], ["2020", *B], ["label", *WORDS]), {}, True, True),
        (lines(["2019", *A], ["2020", *B], ["label", *NUMBERS]), {}, True, False),
        (lines(["2019", *A], ["2020", *B], ["label", *WORDS]), {"header": True}, True, False),
        (lines(["label", *WORDS], ["400.5", *A], ["401.5", *B]), {"target": 0}, True, True),
        (lines(["2019", *A], ["2020", *B], ["price", *(B + 0.5)]), {"regression": True}, True, False),
        (lines(["a", *A], ["2020", *B], ["2021", *NUMBERS]), {}, True, False),
        (lines(["2019", *A], ["2020", *B], ["2021", *NUMBERS]), {"header": True}, True, False),
        (lines(["2019", *A], ["k", *WORDS]), {"target": "2019", "regression": True}, None, "line 2, 'k': 'up' is not"),
        (lines(["2019", *A], ["NA", *B], ["rare", *WORDS]), {}, None, "line 1, 'column 1': 'NA'"),
        (lines(["", *A], [8, *B], ["up", *WORDS]), {}, None, "line 1, 'column 0': ''"),
        (lines(A, B, WORDS), {}, False, False),
        (lines(A, B, NUMBERS), {}, False, False),
        (lines([3, *A], [3, *B], ["rare", *WORDS]), {}, False, False),  # names would be different
        (lines([9, *A], [8, *B], ["rare", *WORDS]), {"header": False}, False, False),
        (lines([5, 6, 7], [8, 4, 3], ["rose", "iris", "lily"]), {}, False, False),  # no label is there twice
        (lines(["True", "False"] * 6, B, WORDS), {}, False, False),
    ],
)
def test_a_header(read, text, options, header, remark):
    if header is None:  # refused
        check_refused([(lambda: read(text, **options), remark)])
        return
    made, remarks = read(text, standardize=False, **options)
    first = text.splitlines()[0].split(",")
    assert samples(made) == len(text.splitlines()) - header
    assert bool(made.feature_names) == header
    assert not header or set(made.feature_names) < set(first)
    assert [r for r in remarks if "taken as a header" in r] == remarks
    assert bool(remarks) == remark


NOISE = [0.5, 0.1, 0.9, 0.3, 0.2, 0.7]
KIND = list("aabbcc")


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("", range(6)),
        ("", range(1, 7)),
        ("", [3, 4, 9, 20, 21, 30]),  # rows were left out
        ("", [4, 0, 2, 5, 1, 3]),  # rows were shuffled: the number is that of a file that was sorted by class
        ("", ["r1", "r2", "r3", "r4", "r5", "r6"]),
        ("", [0.0, 0.25, 0.5, 0.75, 1.0, 1.25]),
        ("Unnamed: 0", range(6)),
        ("index", [10, 20, 30, 40, 50, 60]),
        ("Id", range(1, 7)),
        (None, range(6)),
        (None, range(1, 7)),
    ],
)
def test_a_row_number_is_no_feature(read, name, first):
    columns = [list(first), NOISE, KIND]
    text = (
        lines(*columns)
        if name is None
        else lines(*([head, *values] for head, values in zip([name, "p", "kind"], columns)))
    )
    made, remarks = read(text, standardize=False)
    assert made.feature_names == (() if name is None else ("p",))
    assert sorted(np.concatenate([made.x_train, made.x_test])[:, 0].round(3)) == pytest.approx(sorted(NOISE))
    assert len(remarks) == 1
    assert "numbers the lines and is left out" in remarks[0]


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("time", range(6)),  # it has a name
        ("", NOISE),
        ("", [1, 1, 2, 2, 3, 3]),
        ("id", [0.5, 0.25, 0.75, 0.0, 2.0, 1.5]),
        (None, [2, 3, 4, 5, 6, 7]),
        (None, [0, 1, 2, 3, 5, 4]),
    ],
)
def test_a_first_column_that_is_a_feature(read, name, first):
    columns = [list(first), NOISE, KIND]
    text = (
        lines(*columns)
        if name is None
        else lines(*([head, *values] for head, values in zip([name, "p", "kind"], columns)))
    )
    made, remarks = read(text)
    assert (made.features, remarks) == (2, [])


def test_files_of_pandas_with_and_without_index(read):
    frame = pd.DataFrame({"p": NOISE, "q": NOISE[::-1], "kind": KIND})
    plain, _ = read(frame.to_csv(index=False))
    for text in (frame.to_csv(), frame.reset_index().to_csv(index=False), frame.set_axis(list("uvwxyz")).to_csv()):
        made, remarks = read(text)
        assert np.array_equal(made.x_train, plain.x_train)
        assert len(remarks) == 1
    levels = frame.set_index(pd.MultiIndex.from_arrays([range(6), range(1, 7)])).reset_index()
    again = frame.rename_axis("Unnamed: 0").reset_index()
    for text in (again.to_csv(), levels.to_csv(index=False), again.rename_axis("Unnamed: 0.1").to_csv()):
        twice, remarks = read(text)
        assert np.array_equal(twice.x_train, plain.x_train)
        assert len(remarks) == 2
    numbered = frame.set_axis([0, 1, "kind"], axis=1)
    assert read(numbered.to_csv())[0].features == 2
    numbers = frame.assign(kind=[0, 0, 1, 1, 2, 2]).set_axis([0, 1, 2], axis=1)
    assert (samples(read(numbers.to_csv())[0]), read(numbers.to_csv())[0].features) == (6, 2)


def test_true_and_false_are_numbers(read):
    made, _ = read(lines(["p", "True", "FALSE", "true", "False"], ["kind", *"abab"]), standardize=False)
    assert sorted(np.concatenate([made.x_train, made.x_test])[:, 0]) == [0, 0, 1, 1]
