"""The modules that tests of course work share are in this folder, which pytest puts on the path."""
