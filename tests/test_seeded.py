"""The seeded defects are up to date: each patch still applies to the code."""

import re

from tests.seeded import AREAS, ENGINES, FIELDS, ROOT, CodeGone, seeds


def test_every_patch_applies_and_its_header_is_complete():
    wrong, found = [], seeds()
    for seed in found:
        fields = seed.fields
        try:
            for path, text in seed.changed(ROOT).items():
                compile(text, str(path), "exec")
        except (CodeGone, SyntaxError) as error:
            wrong.append(
                f"{seed.name}: {error}\nIt takes {fields.get('Commit')} back. Do so in the present code, and store "
                "`git diff -U2 labkit` below its header; or remove the patch, if its place is gone."
            )
        if (
            set(fields) != set(FIELDS)
            or fields["Engine"] not in ENGINES
            or not re.fullmatch(r"[0-9a-f]{8}", fields["Commit"])
        ):
            wrong.append(f"{seed.name}: the header is {fields}, not {FIELDS}")
        if not seed.hunks or not all(hunk.file.startswith("labkit/") for hunk in seed.hunks):
            wrong.append(f"{seed.name} changes nothing in labkit/, or something else")
        for file, _, name in (test.partition("::") for test in seed.tests):
            if not (ROOT / file).exists() or (name and f"def {name}(" not in (ROOT / file).read_text()):
                wrong.append(f"{seed.name}: there is no {file} {name}")
    areas = [seed.fields["Area"] for seed in found]
    wrong += [f"{area}: fewer than two patches" for area in AREAS if areas.count(area) < 2]
    wrong += [f"{area} is none of {', '.join(AREAS)}" for area in {*areas} - {*AREAS}]
    assert not wrong, "\n\n".join(wrong)
