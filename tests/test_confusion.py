"""The confusion matrix of a model, against counts by hand; scikit-learn's values are compared in tests/dev."""

from __future__ import annotations

import numpy as np
import pytest

import labkit as lk
from labkit.confusion import confusion_of
from tests.refusals import check_refused

pytestmark = pytest.mark.simulated

RARE = (np.arange(4000) % 33 == 0).astype(int)
X = np.random.default_rng(1).normal(size=(4000, 2)) + 1.2 * RARE[:, None]


def model(y=RARE, **more):
    data = lk.from_arrays(X, y, stratify=y.dtype.kind != "f")
    cluster, budget = lk.SimulatedCluster(workers=4), lk.Budget(updates=100)
    problem = lk.Problem(data, hidden=(), **more)
    return lk.train(problem, lk.SyncPS(learning_rate=0.5), cluster, budget).wait(progress=False).result(), data


def test_pairs_of_labels_and_predictions_are_counted():
    trained, data = model()
    held_out = data.raw(data.x_test)
    found, predicted = trained.confusion_matrix(), trained.predict(held_out)
    by_hand = [[sum((data.y_test == i) & (predicted == j)) for j in range(2)] for i in range(2)]
    assert found.counts.tolist() == by_hand
    assert found.accuracy == np.mean(predicted == data.y_test)
    assert found.recall.tolist() == [by_hand[i][i] / sum(by_hand[i]) for i in range(2)]
    assert found.precision.tolist() == [by_hand[i][i] / (by_hand[0][i] + by_hand[1][i]) for i in range(2)]
    assert found.balanced_accuracy == pytest.approx(sum(found.recall) / 2)
    assert trained.confusion_matrix(held_out, data.y_test).counts.tolist() == by_hand
    assert str(by_hand[1][0]) in str(found)


def test_a_class_without_samples_and_one_that_is_never_predicted():
    found = confusion_of(np.array([0, 0, 2]), np.array([0, 2, 2]), ("a", "b", "c"))
    assert found.counts.tolist() == [[1, 0, 1], [0, 0, 0], [0, 0, 1]]
    np.testing.assert_array_equal(found.recall, [0.5, np.nan, 1.0])
    np.testing.assert_array_equal(found.precision, [1.0, np.nan, 0.5])
    assert (found.balanced_accuracy, found.worst) == (0.75, 0)
    assert "nan" not in str(found)


def test_the_text_of_a_model_names_the_class_that_its_accuracy_hides(tmp_path):
    plain, weighted = str(model()[0]), str(model(class_weights="balanced")[0])
    assert "held out; of the samples of class 1 12%" in plain
    assert "balanced accuracy" in plain
    assert "of the samples" not in weighted
    assert str(lk.load(model()[0].save(tmp_path / "m.npz"))) == plain


def test_labels_may_be_names(tmp_path):
    words = np.array(["ham", "spam"])[RARE]
    trained, _ = model(words)
    found = trained.confusion_matrix(X, words)
    assert found.names == ("ham", "spam")
    assert found.counts.tolist() == trained.confusion_matrix(X, RARE).counts.tolist()
    loaded = lk.load(trained.save(tmp_path / "m.npz"))
    assert loaded.confusion_matrix(X, words).counts.tolist() == found.counts.tolist()
    numbers, _ = model(RARE + 0.5)
    many = np.arange(301)
    check_refused([
        (loaded.confusion_matrix, "no held-out samples in memory; give x and y"),
        (lambda: trained.confusion_matrix(X), "x and y belong together"),
        (lambda: trained.confusion_matrix(X, words[:-1]), "3999 rows for 4000 samples"),
        (lambda: trained.confusion_matrix(X[:2], ["ham", "egg"]), "no class of this model 'egg'"),
        (lambda: trained.confusion_matrix(X[:2], [0, 2]), "labels are whole numbers from 0 to 1"),
        (confusion_of(many, many, tuple(map(str, many))).figure, "of 301 classes cannot be drawn"),
        (numbers.confusion_matrix, "a regression has no classes".capitalize()),
    ])  # fmt: skip


@pytest.mark.parametrize(("classes", "name"), [(2, "c"), (10, "digit "), (40, "a long name of class "), (150, "")])
def test_the_figure_has_a_recall_and_a_name_for_every_row(classes, name):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, 3000)
    predicted = np.where(rng.random(3000) < 0.8, labels, rng.integers(0, classes, 3000))
    found = confusion_of(labels, predicted, tuple(f"{name}{i}" for i in range(classes)))
    figure = found.figure()
    (axes,) = figure.axes
    pixels = axes.images[0].get_array()
    share = found.counts / found.counts.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(pixels[..., 3] / pixels[..., 3].max(), share / share.max())
    assert len({tuple(pixel) for pixel in pixels[..., :3].reshape(-1, 3)}) == 2
    texts = [text.get_text() for text in axes.texts]
    assert f"{found.recall[0]:.0%}" in texts
    figure.canvas.draw()
    box = figure.bbox
    for text in (*figure.texts, *axes.texts):
        extent = text.get_window_extent()
        assert box.x0 <= extent.x0 and extent.x1 <= box.x1, text  # noqa: PT018
        assert box.y0 <= extent.y0 and extent.y1 <= box.y1, text  # noqa: PT018
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
