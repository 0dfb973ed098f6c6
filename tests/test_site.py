"""The sources of the documentation site: every page is reachable, every public name is documented once, links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import click

import labkit as lk
from docs._ext.command_reference import command_reference
from docs._ext.data_sets import data_sets
from docs._ext.generated import MARK, PARTS, copy_lessons, write_strategies
from docs._ext.panel_terms import lab_terms, panel_list
from docs._ext.root_documents import ROOT_PAGES, root_document
from docs.links import broken_links
from labkit.cli import main
from labkit.data.registry import NAMES, RECIPES
from labkit.lab.glossary import TERMS
from labkit.options import options_of
from labkit.strategies import STRATEGIES
from labkit.views import PANELS

from .public import public_objects

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GENERATED = ("_build", "generated")
SOURCES = sorted(path for path in DOCS.rglob("*.md") if not set(GENERATED) & set(path.parts))
LESSONS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
LINK = re.compile(r"\[[^\]\[]*(?:\[[^\]]*\][^\]\[]*)*\]\(([^()\s]+)\)")


def text_of(path):
    """A page with its generated parts, without blocks of code."""
    text = MARK.sub(lambda found: PARTS[found[1]](), path.read_text())
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def links_of(path):
    return LINK.findall(re.sub(r"`[^`\n]*`", "", text_of(path)))


def anchors(text):
    """Explicit targets, and the anchors that MyST makes from headings."""
    headings = [re.sub(r"[^\w\- ]", "", line.lower()) for line in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    return {line.replace(" ", "-") for line in headings} | set(re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE))


def toctree(path):
    """The pages that a page lists, without patterns."""
    found = re.findall(r"^```\{toctree\}\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)
    return [line for block in found for line in block.splitlines() if line and line[0] != ":" and "*" not in line]


def test_every_page_is_in_exactly_one_table_of_contents():
    listed = [(path.parent / f"{entry}.md").resolve() for path in SOURCES for entry in toctree(path)]
    assert sorted(listed) == [path for path in SOURCES if path != DOCS / "index.md"]


def test_every_lesson_is_listed_in_order():
    shown = re.findall(r"^\| \[\]\(([\w.]+)\)", (DOCS / "lessons" / "index.md").read_text(), re.MULTILINE)
    assert shown == LESSONS


def test_every_public_name_is_documented_exactly_once():
    listed = re.findall(r"^   ([\w.]+)$", (DOCS / "api" / "index.md").read_text(), re.MULTILINE)
    documented = {each for each in listed if "." not in each or each in public_objects()} - {"lessons"}
    assert documented == {name for name in public_objects() if not name.startswith("lessons.")}
    assert len(set(listed)) == len(listed)


def test_every_command_and_option_is_in_the_reference():
    text = command_reference()
    for command_name, command in main.commands.items():
        part = text[text.index(f"\n## labkit {command_name}\n") :].split("\n## ")[1]
        for parameter in command.get_params(
            click.Context(command, parent=click.Context(main, **main.context_settings))
        ):
            if isinstance(parameter, click.Option) and "--help" not in parameter.opts:
                assert re.search(rf"^\| `[^`]*{parameter.opts[0]}\b", part, re.MULTILINE), parameter.opts


def test_every_data_set_has_its_options_and_source():
    text = data_sets()
    for known in NAMES:
        part = text[text.index(f"(data-{known})=") :].split("\n(data-")[0]
        assert lk.Problem(known).dataset.about.split(":")[0] in part.replace("\\", "")
        assert re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE) == list(options_of(RECIPES[known]))


def test_every_panel_is_explained_with_a_picture():
    page = (DOCS / "concepts" / "reading_panels.md").read_text()
    for panel in PANELS:
        part = page[page.index(f"(panel-{panel.replace('_', '-')})=") :].split("\n(panel-")[0]
        assert f".plot.{panel}()\n```" in part
        assert re.search(r"alt: .{20}", part)
        assert f"(#panel-{panel.replace('_', '-')})" in panel_list()
    assert len(re.findall(r"^\| ", panel_list() + "\n" + lab_terms(), re.MULTILINE)) == len(TERMS) + 2 * 2


def test_generated_parts_exist_and_are_used():
    used = [part for path in SOURCES for part in MARK.findall(path.read_text())]
    assert sorted(used) == sorted(PARTS)


def leads_somewhere(path, link):
    """Also links to generated pages, and those of documents in the top folder."""
    target, _, anchor = link.partition("#")
    if re.match(r"\w+:", link):
        return True
    page = (DOCS / target[1:] if target.startswith("/") else path.parent / target).resolve() if target else path
    if page.parent == DOCS / "strategies" / "generated":
        return page.stem in STRATEGIES
    if page.parent == DOCS / "lessons" and page.suffix == ".ipynb":
        return page.name in LESSONS
    return page.exists() and (not anchor or page.suffix != ".md" or anchor in anchors(text_of(page)))


def test_links_lead_to_files_and_anchors():
    links = [(path, link) for path in (*SOURCES, *(ROOT / each for each in ROOT_PAGES)) for link in links_of(path)]
    assert len(links) > 100
    broken = [f"{path.relative_to(ROOT)}: {link}" for path, link in links if not leads_somewhere(path, link)]
    assert not broken, "\n".join(broken)


def test_links_of_top_documents_lead_to_pages(tmp_path):
    text = "".join(root_document(each) for each in ROOT_PAGES if each != "README.md")
    for link in LINK.findall(re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)):
        assert link.startswith(("#", "/", "http")), link


def test_generated_files_are_removed_when_their_source_is(tmp_path):
    (tmp_path / "old.md").write_text("old")
    write_strategies(tmp_path)
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(STRATEGIES)
    (tmp_path / "old.ipynb").write_text("{}")
    copy_lessons(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.ipynb")) == LESSONS
    assert (tmp_path / "ssp.md").exists()


def test_broken_links_are_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<a href="b.html#there">x</a><a href="b.html#gone">x</a><img src="no.png"><p id="c">'
    )
    (tmp_path / "b.html").write_text(
        '<h1 id="there">x</h1><a href="a.html#c">x</a><a href="https://example.org/none">x</a>'
    )
    assert broken_links(tmp_path) == ["a.html: b.html#gone", "a.html: no.png"]
