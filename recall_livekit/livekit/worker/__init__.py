"""A worker's main process: its jobs, its drain, its watcher."""
