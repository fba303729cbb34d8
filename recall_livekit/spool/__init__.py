"""The spool: what could not be stored waits on this machine's disk, and is stored later."""
