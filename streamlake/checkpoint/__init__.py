"""One checkpoint's files -> durable delta manifests -> Committable. Runs on the driver, before the commit."""
