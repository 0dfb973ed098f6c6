"""Programs that a benchmark runs in a fresh process. Each prints one JSON object as its last line."""
