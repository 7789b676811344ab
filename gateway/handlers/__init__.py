"""One module an API: request, service, response. Each begins with its versions. Handlers hold no state."""
