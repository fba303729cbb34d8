"""The engine behind HTTP: routes, keys, problems and streams; no rules of its own."""
