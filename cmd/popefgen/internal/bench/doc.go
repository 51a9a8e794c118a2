// Package bench measures models for the command popefgen: how long requests
// take that are made in one of several ways, what opening a model costs, and
// where the time of a request goes. What the numbers mean to a user is
// described in docs/bench.md.
package bench
