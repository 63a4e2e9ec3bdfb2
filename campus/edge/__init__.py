"""The HTTP edge: what stands between the network and every route, before anyone knows what is asked."""
