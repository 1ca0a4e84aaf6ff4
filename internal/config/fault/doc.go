// Package fault checks single values of a configuration, and collects what is wrong with them. Package config reads the
// values.
package fault
