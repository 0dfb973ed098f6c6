"""Programs that a benchmark runs in a new process. Each prints one JSON object as its last line."""
