"""Networks with forks: requests that wait for several legs."""
