"""Lives of federated jobs, on real rows: the models of makers on the machines of a clinic."""
