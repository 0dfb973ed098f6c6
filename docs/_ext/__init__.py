"""Extensions of Sphinx for this site: the parts of pages that are generated from the code of labkit."""
