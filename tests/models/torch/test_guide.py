"""The examples of the guide that need PyTorch run, and print what it shows."""

from tests.test_documents import ROOT, blocks_of, run


def test_the_examples_with_pytorch_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = [block for block in blocks_of(ROOT / "docs" / "guides" / "own_model.md") if "from torch" in block.code]
    assert blocks
    for block in blocks:
        run(block, tmp_path)
