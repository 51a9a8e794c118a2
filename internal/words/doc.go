// Package words tests the language of the repository: that comments and documents
// say the field's terms, and none of some words of our own.
package words
