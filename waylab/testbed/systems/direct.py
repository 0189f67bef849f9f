"""The system `direct`: memcached servers that the load generators reach themselves."""

from waylab.testbed.systems.key_value import RunningKeyValueSystem


class RunningDirectSystem(RunningKeyValueSystem):
    """Servers alone. Behind a proxy the sampled requests of both sides would differ, so only here servers record."""

    def start_servers(self) -> list[str]:
        """Start the servers; a single one leaves records that join those of the load."""
        return self.start_backends(records=self.counts["backends"] == 1)

    def connections_of_a_client(self, addresses: list[str]) -> int:
        """One to its server, or one to each."""
        return len(addresses) if self.trial.system.direct_to == "all" else 1

    def server_options(self, index: int, addresses: list[str]) -> list[str]:
        """One server for each generator in turn, or all servers by key."""
        if self.trial.system.direct_to == "one":
            return ["--server", addresses[index % len(addresses)]]
        return super().server_options(index, addresses)
