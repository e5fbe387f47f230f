"""The manifests of a snapshot during a commit: kept in memory, filtered, merged."""
