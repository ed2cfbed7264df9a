"""What an audit found, as plain values: the contract behind every format."""
