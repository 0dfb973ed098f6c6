"""Messages between roles: byte streams (TCP, shared memory), frames, connections, and the endpoint of a role."""
