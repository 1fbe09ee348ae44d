"""Programs that the measurements start: core, its peers, and the floors."""
