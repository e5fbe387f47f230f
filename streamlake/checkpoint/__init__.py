"""Staging on the driver before the commit: a checkpoint's files -> durable delta manifests -> Committable."""
