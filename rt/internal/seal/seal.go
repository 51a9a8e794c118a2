// Package seal keeps interfaces of rt for types of this module.
package seal

// Mark is the argument of a method that nobody outside can call.
type Mark struct{}
