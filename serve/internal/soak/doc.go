// Package soak has a test alone: many callers of a server whose devices fail and whose models are replaced all the while.
package soak
