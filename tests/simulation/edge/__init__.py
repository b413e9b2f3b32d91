"""Lives of devices and deployments: an installation of their own, beside that of nodes and jobs."""
